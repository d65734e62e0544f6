package broker

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

func TestValidTopicName(t *testing.T) {
	good := []string{"a", "A-b_c.d9", "...", "_", "-", strings.Repeat("x", 249)}
	bad := []string{"", ".", "..", "a b", "a/b", "ü", "a\x00", "a:b", "a\n", strings.Repeat("x", 250)}
	for _, name := range good {
		if err := validTopicName(name); err != nil {
			t.Errorf("%q is refused: %v", name, err)
		}
	}
	for _, name := range bad {
		err := validTopicName(name)
		if !errors.Is(err, errInvalidTopic) || codeOf(err) != kerr.InvalidTopicException.Code {
			t.Errorf("%q gives %v, code %d; want INVALID_TOPIC_EXCEPTION", name, err, codeOf(err))
		}
	}
}

func TestCollides(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"a.b", "a_b", true}, {"a.b", "a.b", true}, {"a.b.c", "a_b.c", true}, {"a.b", "a-b", false}, {"ab", "a_b", false},
	} {
		if got := collides(c.a, c.b); got != c.want {
			t.Errorf("collides(%q, %q) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}
