// Package stress lets everything go wrong at once: one real broker and one real Postgres under idempotent producers,
// consumer groups and an administrator, whose connections are cut, whose broker is killed and whose Postgres crashes at
// random, and then checks what must hold all the same. The test prints its seed; PGBROKER_STRESS_SEED repeats the choices
// (not the timing), PGBROKER_STRESS_SECONDS makes the storm longer. At the end "pgbroker log verify" judges the files.
package stress
