package metatest_test

import (
	"testing"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/meta/metatest"
)

func TestMemoryConforms(t *testing.T) {
	metatest.RunConformance(t, func(*testing.T) meta.Store { return metatest.NewMemory() })
}
