# pgbroker: `make help` lists the targets.
SHELL := /bin/bash
GO ?= go
BIN := bin/pgbroker
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.buildVersion=$(VERSION)
# The race detector needs a C compiler; without one the tests run without it.
RACE := $(shell command -v $${CC:-cc} >/dev/null 2>&1 && echo -race)
# Tests of the whole broker measure times, so they run one package at a time.
WHOLE = github.com/pgbroker/pgbroker/test/%
DURATION ?= 10m
SEED ?=
PACKAGES = $(shell $(GO) list ./... | grep -v /test/root)

.PHONY: help build dev test lint unit storm test-root compat seeded golden many bench-log torture soak bench-quick bench bench-full bench-pgbench bench-report chaos image clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-13s %s\n", $$1, $$2}'

build: ## build bin/pgbroker, static
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/pgbroker

dev: build ## run a broker with a private Postgres (ARGS=... are passed on)
	@exec $(BIN) dev $(ARGS)

test: lint unit ## what every change must pass, as any user

lint: ## gofmt, go vet, staticcheck
	@out=$$(gofmt -l $$(git ls-files '*.go' 2>/dev/null || find . -name '*.go')); test -z "$$out" || { echo "gofmt: $$out"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

unit: build ## the Go tests
	$(GO) test $(RACE) -timeout 8m $(filter-out $(WHOLE),$(PACKAGES))
	PGBROKER_TEST_BINARY=$(CURDIR)/$(BIN) $(GO) test -p 1 $(RACE) -timeout 8m $(filter $(WHOLE),$(PACKAGES))

test-root: build ## what needs root: containers, loop mounts, network namespaces
	PGBROKER_TEST_BINARY=$(CURDIR)/$(BIN) $(GO) test -count=1 -timeout 4m -v ./test/root/...

compat: build ## the foreign clients against this broker
	test/compat/run
	test/compat/interchange/run
	test/compat/perf
	test/compat/differential
	PGBROKER_ECOSYSTEM=short PGBROKER_TEST_BINARY=$(CURDIR)/$(BIN) $(GO) test -count=1 -timeout 8m -v ./test/ecosystem

compat-postgres: build ## the metadata store and system tests on Postgres 14, 16, 17 and 18
	PGBROKER_TEST_REQUIRE=all PGBROKER_POSTGRES_MAJORS="14 16 17 18" PGBROKER_TEST_BINARY=$(CURDIR)/$(BIN) $(GO) test -count=1 -timeout 40m -v ./test/ecosystem -run TestPostgresMajors

ecosystem: build ## Kafka Streams, Connect, MirrorMaker, a registry, agents, Spring, Parallel Consumer, verifiable tools under kills, franz-go's suites, pgbouncer, at length
	PGBROKER_TEST_REQUIRE=all PGBROKER_ECOSYSTEM=long PGBROKER_TEST_BINARY=$(CURDIR)/$(BIN) $(GO) test -count=1 -timeout 60m -v ./test/ecosystem

golden: ## record anew what a real Kafka answers to the scripts of test/differential
	PGBROKER_TEST_REQUIRE=all $(GO) test -count=1 -timeout 10m -v ./test/differential -run TestRecordGolden -record

many: build ## 10,000 partitions under ulimit -n 4096; 10,000 connections beside a web console with 1,000 topics; churn of ids
	PGBROKER_MANY_PARTITIONS=10000 PGBROKER_MANY_CONNECTIONS=10000 PGBROKER_TEST_BINARY=$(CURDIR)/$(BIN) $(GO) test -count=1 -timeout 10m -v ./test/many
	PGBROKER_CHURN=3000 PGBROKER_TEST_BINARY=$(CURDIR)/$(BIN) $(GO) test -count=1 -timeout 10m -v ./test/system -run TestTablesDoNotGrow

bench-log: ## what the log does in process: the figures of docs/performance.md
	$(GO) test ./internal/segstore -run '^$$' -bench . -benchmem -timeout 20m

seeded: ## which tests see each seeded bug
	PGBROKER_SEEDED_LONG=1 $(GO) test -count=1 -timeout 40m -v ./test/seeded
	PGBROKER_SEEDED_LONG=1 $(GO) test -count=1 -timeout 40m -v ./test/chaos -run TestSeededBugs

torture: build ## random stories, injected faults and power cuts at length (SEED= CUTS= FAULTS= RUNS= SECONDS_MEMORY=)
	test/torture/run

soak: DURATION = 1h
soak: build ## an hour at a fixed rate: nothing may grow (DURATION=1h RATE=bytes a second, JSON=file of all samples)
	PGBROKER_TEST_REQUIRE=all PGBROKER_TEST_BINARY=$(CURDIR)/$(BIN) PGBROKER_SOAK_DURATION=$(DURATION) PGBROKER_SOAK_RATE=$(RATE) \
		PGBROKER_SOAK_JSON=$(JSON) $(GO) test -count=1 -timeout 0 -v -run TestSoak ./test/soak

storm: ## 2,000 members commit every second, then beside an open snapshot (five minutes)
	PGBROKER_STORM=1 $(GO) test ./internal/coordinator -run TestCommitStorm -count=1 -timeout 15m -v

# What a benchmark writes: the results, and the section of the document with its plots (DOC= leaves them alone).
RESULTS ?= bench/results/$(shell date -u +%Y-%m-%dT%H%M)-$@.json
DOC ?= docs/performance.md
BENCH = $(GO) build -o bin/bench ./bench && bin/bench

bench-quick: build ## throughput beside Kafka and the floor, in ten minutes (FILL=0: leave the page cache alone)
	$(BENCH) run -tier quick -results $(RESULTS) $(ARGS)

bench: build ## every figure that we want to hold, beside Kafka, in 75 minutes; renews docs/performance.md
	$(BENCH) run -tier must -results $(RESULTS) -doc "$(DOC)" $(ARGS)

bench-full: build ## the same, the matrix of transactions and Kafka's perf tool: three hours
	$(BENCH) run -tier full -results $(RESULTS) -doc "$(DOC)" $(ARGS)

bench-pgbench: build ## what a broker costs the Postgres beside it, against a program that only writes
	$(BENCH) pgbench -results $(RESULTS) -doc "$(DOC)" $(ARGS)

bench-report: ## tables of an earlier run, and docs/performance.md from it (RESULTS=bench/results/...)
	$(BENCH) report -results $(RESULTS) -doc "$(DOC)"

chaos: build ## clients under kills, pauses, cuts and failovers, their histories judged (DURATION=10m, SEED=...)
	PGBROKER_TEST_BINARY=$(CURDIR)/$(BIN) PGBROKER_CHAOS_DURATION=$(DURATION) PGBROKER_CHAOS_SEED=$(SEED) $(GO) test -count=1 -timeout 0 -v ./test/chaos -run TestChaos

FUZZTIME ?= 10s
fuzz: ## each fuzz target for FUZZTIME=10s, one after the other
	@set -e; for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' cmd internal | xargs -n1 dirname | sort -u); do \
		for target in $$($(GO) test -list '^Fuzz' ./$$dir | grep '^Fuzz'); do \
			echo "== $$dir $$target"; $(GO) test ./$$dir -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME); \
		done; \
	done

image: ## build the container image pgbroker:dev
	docker build -t pgbroker:dev .

clean: ## remove what was built
	rm -rf bin
