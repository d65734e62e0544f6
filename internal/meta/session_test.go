package meta

import "testing"

func TestMajorVersion(t *testing.T) {
	for version, want := range map[string]int{"15.18 (Debian 15.18-0+deb12u1)": 15, "9.6.24": 9, "17beta1": 17, "14": 14, "": 0, "odd": 0} {
		if got := majorVersion(version); got != want {
			t.Errorf("%q is %d, want %d", version, got, want)
		}
	}
}
