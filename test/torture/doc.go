// Package torture runs the real binary under strace, which makes the N-th call of a kind fail or kills the process at it:
// fdatasync, pwrite64 and rename with EIO and ENOSPC, and kill -9 at each. After each the broker is started again without
// strace, and everything that was acknowledged is read. Only faults that really hit count.
//
// Together with the random stories of internal/segstore (TestTorture) and the power cuts of test/root (TestPowerCuts) it is
// what make torture runs at length; run in this folder starts all three. PGBROKER_TORTURE_SEED repeats the choices,
// PGBROKER_TORTURE_FAULTS says how many faults.
package torture
