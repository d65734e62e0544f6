//go:build !seededbugs

package seededbug

// Built says whether this build has the seeded bugs.
const Built = false

// Active is the bug that is turned on, "" none.
func Active() Bug { return "" }

// On says whether a bug is turned on.
func On(Bug) bool { return false }

// Every says whether a bug is turned on and this is the n-th, 2n-th, … call that asked for it.
func Every(Bug, uint64) bool { return false }
