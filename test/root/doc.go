// Package root holds the tests that need root: the container image and docker-compose.yml, run by a Docker daemon of the
// tests' own, and power cuts of file systems that the tests make and mount.
//
// The test binary starts itself again in process, mount and network namespaces of its own (room_test.go). What it does
// there, from the daemon's firewall rules to port 9092 of 127.0.0.1, nobody outside sees, and all of it ends with the
// process, however that ends. No registry is asked: the base images are stand-ins that are made from the machine's own
// Go and Postgres (standin_test.go).
package root
