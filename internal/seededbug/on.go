//go:build seededbugs

package seededbug

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"
)

// Built says whether this build has the seeded bugs.
const Built = true

var (
	active = fromEnvironment()
	asked  atomic.Uint64 // by Every, for the bug that is on
)

const variable = "PGBROKER_SEEDED_BUG"

// fromEnvironment takes the variable out of the environment, whose other PGBROKER_ names are settings. It panics for a name
// that is in no list: a test of a bug that does not exist would pass for ever.
func fromEnvironment() Bug {
	b := Bug(os.Getenv(variable))
	_ = os.Unsetenv(variable)
	if b != "" && !slices.ContainsFunc(Catalog(), func(e Entry) bool { return e.Bug == b }) {
		panic(fmt.Sprintf("PGBROKER_SEEDED_BUG=%s is no seeded bug", b))
	}
	return b
}

// Active is the bug that is turned on, "" none.
func Active() Bug { return active }

// On says whether a bug is turned on.
func On(b Bug) bool { return active == b }

// Every says whether a bug is turned on and this is the n-th, 2n-th, … call that asked for it.
func Every(b Bug, n uint64) bool { return active == b && asked.Add(1)%n == 0 }
