// Package system tests the whole broker from outside: the real binary, a real Postgres, real clients, real crashes.
//
// Every acknowledgement is kept in a ledger, and a verifier that reads the log afresh compares the two: what was
// acknowledged is there once, in order, at its offset, with its bytes (verifier_test.go; its own test makes each kind of
// violation by hand). Groups keep a history as well: members, generation, assignments, and every offset that was
// acknowledged or shown (group_test.go). "pgbroker log verify", which shares no code with what wrote the files, judges them
// after the crashes (logverify_test.go).
//
// With -short the outages of forty seconds are left out.
package system
