package logtool

import (
	"testing"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

const golden = "../segstore/testdata/kafka-4.4"

// TestKafkasFolderIsClean: what Kafka 4.4 wrote breaks no rule.
func TestKafkasFolderIsClean(t *testing.T) {
	s, err := Verify(t.Context(), VerifyOptions{FS: vfs.OS{}, Dir: golden}, func(f Finding) error {
		t.Error(f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Logs != 1 || s.Batches != 63 || s.Records != 103 || !s.Clean || s.Live {
		t.Errorf("%+v", s)
	}
}
