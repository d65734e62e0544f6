package stress

import (
	"testing"

	"github.com/pgbroker/pgbroker/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
