// Package system tests the whole broker from outside: the real binary, a real Postgres, real clients, real crashes.
package system
