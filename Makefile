# Everything a contributor runs. `make` alone lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

GO ?= go
BIN := .bin

GOLANGCI_VERSION := v2.15.0
GOLANGCI := $(BIN)/golangci-lint-$(GOLANGCI_VERSION)

# What tests and benchmarks run on; make test PKGS=./breaker/... ARGS='-run Probe -v'
PKGS ?= ./...
ARGS ?=

# Checks build binaries only to throw them away. Without the commit stamped in they
# also build where git refuses to look at a checkout that another user owns.
test-race test-client test-bench quick lint bench soak: export GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false)

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Show it all in one process: jobs, limit, breaker, recovery
	$(GO) run ./cmd/tidegate demo $(ARGS)

.PHONY: build
build: ## Build the binaries into .bin
	$(GO) build -trimpath -o $(BIN)/ ./cmd/...

.PHONY: test
test: redis cc curl chromium interpreters postgres fmt-check ## Run all checks and all tests, as CI does
	@# Tests wait more than they compute: what only computes runs beside them and yields to them.
	@nice -n 10 $(MAKE) --no-print-directory --keep-going lint test-client & beside=$$!; \
	trap 'kill $$beside 2>/dev/null || true' EXIT; trap 'exit 130' INT TERM; \
	failed=; $(MAKE) --no-print-directory test-race || failed=', tests (named above)'; \
	wait $$beside || failed="$$failed, lint or test-client"; \
	scripts/count.sh; \
	[ -z "$$failed" ] || { echo "make test: FAILED: $${failed#, }; everything else ran and passed" >&2; exit 1; }; \
	echo 'make test: everything ran and passed'

.PHONY: count
count: ## Count the lines of product and tests, and the words of the documents; ARGS=-v: of each package
	@scripts/count.sh $(ARGS)

# Tests of the breaker that make so many calls, most of them in virtual time, that the race detector makes minutes of them.
MANY_CALLS := ^Test(Limits|FailuresAmongSuccessesAreNoOutage|LearnedLimits|LimitOfAllKeysIsTheDestinations|LimitsOfKeysHoldOthersSeldom|NoDeletedKeyWedges|SpacedCalls|PacedCallsGoOnBesideFailures|PaceEndsWithTheLimit|BucketsWhoseResetIsTheNextToken|EarlyTests|RulesInRedis|Model|MeterAndItsDouble|PermitsAheadKeepTheLimit|WorkersThatDisagreeKeepTheLargerRate|IncidentsAreKeptInBounds|JitterIsAddedToCooldownsThatHaveGrown|RemainingShowsWhoseLimitItIs|SlowStartEndsAtTheCapacityOfTheFleet|ManyKeysCostBoundedMemoryAndOneReadATime|MeteredCallAllocates|BadJobsThatAlternateReopenOnce|TimeWithoutCallersSlowsNothingDown|Budgets|WindowThatRefusalsRenewIsClimbedOnce|InstancesOfAnIncidentAreKeptInBounds|PermitsThatAreNeverReportedEndAfterProbeTimeout|SlowStartAfterAnOutage|SlowStarts|FewCallsAreRefusedWhereALimitIsMetEarly|DeclaredLimitsHold|OutageIsTestedEarly|PlainCooldown|KeyedProbeOfBoth|ListLimits|Windows|Keys|HintsAreJudged|LearnsFromRefusalsAlone|LearnerIsNeverStuck|RefusalsOfACallTeachNothing|Cooldowns|HintsAreBetterThanWhatIsLearned|ForcedClosed|HintsTeach|LearnsTheWindowOfASingleCaller)$$

# Packages whose goroutines meet in memory. The others compute in one goroutine or wait for Redis: there the
# race detector finds nothing and takes most of the time.
RACE := /(breaker(/breakerhttp)?|(publisher|alerts|internal/([a-z]+/)?(access|api|app|asynqx|callbacks|cli|dashboard|engine|expression|feed|health|lease|minutes|oauth|outage|redisconn|secret|store|telemetry|tokens|webserver))(/.*)?)$$

.PHONY: test-race
test-race: redis cc curl chromium interpreters postgres ## Run the tests only, with the race detector where goroutines meet
	@# Processes, a browser and clocks take part in e2e and browsertest: they run beside each other only.
	@# The longest of the rest begin first.
	@# A failure does not keep the later groups from running; the last line names the groups that failed.
	@export CGO_ENABLED=1 all="$$($(GO) list $(PKGS))"; failed=; \
	run() { group=$$1 race=$$2; shift 2; [ $$# -eq 0 ] || $(GO) test $$race -vet=off -p $$(($$(getconf _NPROCESSORS_ONLN) + 1)) -count=1 -timeout 40m $(ARGS) "$$@" || failed="$$failed, $$group"; }; \
	pick() { grep -E "$$@" <<<"$$all" || true; }; \
	[ "$(PKGS)" != ./... ] || { skip='$(MANY_CALLS)'; run 'tests of many calls' '' -run "$$skip" ./breaker; }; \
	run 'packages with the race detector' -race -skip "$${skip-^$$}" $$(pick '/(publisher|breaker|alerts)$$') $$(pick '$(RACE)'); \
	run 'packages without it' '' $$(pick -v '$(RACE)|/internal/test/(e2e|browsertest)$$'); \
	run 'e2e and browser tests' '' $$(pick '/internal/test/(e2e|browsertest)$$'); \
	[ -z "$$failed" ] || { echo "tests failed: $${failed#, }; the other groups ran and passed" >&2; exit 1; }

.PHONY: quick
quick: redis ## Run the unit tests of the packages that differ from BASE=main, and of their importers
	@scripts/quick.sh $(BASE)

.PHONY: test-client
test-client: redis ## Test the HTTP API with a client that is generated from its document
	@# What a generated client needs is not a dependency of ours: it is a module of its own.
	cd internal/serve/api/clienttest && $(GO) generate ./... && $(GO) vet ./... && $(GO) test -count=1 -timeout 20m ./...

.PHONY: lint
lint: $(GOLANGCI) ## Run golangci-lint
	$(GOLANGCI) config verify
	$(GOLANGCI) run
	cd bench && $(GO) vet .

.PHONY: bench
bench: redis ## Run the benchmarks and the comparisons with other programs
	$(GO) test -run '^$$' -bench . -benchmem -timeout 60m $(ARGS) $(PKGS)
	@# Other breakers are not dependencies of ours: the comparisons are a module of their own.
	$(GO) test -C bench -run '^$$' -bench . -timeout 60m $(ARGS)

.PHONY: test-bench
test-bench: redis ## Test the comparisons with other programs
	cd bench && $(GO) vet . && $(GO) test -count=1 -timeout 20m .

.PHONY: oracle
oracle: redis ## Compare the learned limits with an oracle that knows them
	$(GO) test -count=1 -timeout 20m -v -run 'TestOracle|TestRefusalsAtRandom' ./internal/lab/simulate $(or $(ARGS),-args -oracle.all)

.PHONY: soak
soak: redis ## Run the long tests: end to end, and against the invariants; up to an hour
	@# In turn, each with a timeout of its own. What fails prints the seed that repeats it.
	$(MAKE) --no-print-directory test-bench
	$(GO) test -tags soak -count=1 -timeout 20m -v $(ARGS) ./internal/test/modeltest
	$(GO) test -tags soak -count=1 -timeout 20m -v -run Soak $(ARGS) ./internal/app
	$(GO) test -tags soak -count=1 -timeout 10m -v -run Model $(ARGS) ./breaker
	$(GO) test -count=1 -timeout 10m -run TestLearnerIsNeverStuck ./breaker -args -rapid.checks=20000
	$(GO) test -tags soak -count=1 -timeout 10m -v $(ARGS) ./internal/view/feed
	$(GO) test -tags soak -count=1 -timeout 10m -v -run 'OpenBreakerWithABacklog|HundredThousandKeys|SlotsOfKeysAreUsed|Blips' $(ARGS) ./publisher
	$(GO) test -tags soak -count=1 -timeout 20m -v -run TestSoak $(ARGS) ./jobs
	$(GO) test -tags soak -count=1 -timeout 40m -v $(ARGS) ./internal/test/e2e

.PHONY: image
image: ## Build the container image tidegate:local with docker, podman or buildah
	@deploy/image.sh

GORELEASER := $(BIN)/goreleaser-v2.15.1
CYCLONEDX := $(BIN)/cyclonedx-gomod

.PHONY: snapshot
snapshot: $(GORELEASER) $(CYCLONEDX) ## Build a release into dist without publishing it; without Docker it has no image
	@docker info >/dev/null 2>&1 || skip=--skip=docker; \
	PATH="$$PWD/$(BIN):$$PATH" $(GORELEASER) release --snapshot --clean $${skip:-}

.PHONY: release
release: $(GORELEASER) $(CYCLONEDX)
	PATH="$$PWD/$(BIN):$$PATH" $(GORELEASER) release --clean

$(GORELEASER):
	GOBIN="$$PWD/$(BIN)" $(GO) install github.com/goreleaser/goreleaser/v2@v2.15.1
	@mv $(BIN)/goreleaser $@

$(CYCLONEDX):
	GOBIN="$$PWD/$(BIN)" $(GO) install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

.PHONY: validate
validate: ## Check chart, rules and compose file with helm, promtool and the like; installs them into .bin
	@scripts/validate.sh

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities in what the code calls; needs the internet
	@scripts/vulncheck.sh

.PHONY: fmt
fmt: $(GOLANGCI) ## Format the code
	$(GOLANGCI) fmt

.PHONY: tools
tools: redis cc curl chromium interpreters postgres $(GOLANGCI) ## Install what the other targets need

.PHONY: fmt-check
fmt-check:
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then printf 'not formatted, run make fmt:\n%s\n' "$$files" >&2; exit 1; fi

.PHONY: redis
redis: ## Install redis-server if it is missing
	@scripts/ensure-redis.sh

.PHONY: chromium
chromium: ## Install Chromium, for the tests of the dashboard, if it is missing
	@scripts/ensure-chromium.sh

.PHONY: interpreters
interpreters:
	@scripts/ensure-interpreters.sh

.PHONY: postgres
postgres: interpreters
	@scripts/ensure-postgres.sh

.PHONY: cc
cc:
	@scripts/ensure-cc.sh

.PHONY: curl
curl:
	@scripts/ensure-curl.sh

$(GOLANGCI):
	@echo "installing golangci-lint $(GOLANGCI_VERSION) into .bin (once, a minute or two)"
	@GOFLAGS= GOBIN="$(CURDIR)/$(BIN)/new" $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION) \
		|| { echo "golangci-lint $(GOLANGCI_VERSION) could not be installed: see the error above; it needs the Go module proxy" >&2; exit 1; }
	@mv $(BIN)/new/golangci-lint $@ && rmdir $(BIN)/new
