# Sluice. Nothing but Go is needed for build, run, up and test; tools are pinned in tools/ and built on first use.
GO       ?= go
TOOL      = $(GO) tool -modfile=tools/go.mod
LINT      = $(GO) tool -modfile=tools/lint/go.mod
FUZZTIME ?= 10m
SEEDS    ?= 200
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null)
DEVFLAGS  = $(OFFSET:%=-offset %) -upstream "$(UPSTREAM)" -model "$(MODEL)"
LDFLAGS   = -ldflags "-X main.version=$(VERSION)"

.DEFAULT_GOAL := help
.PHONY: help build run up test test-race test-system test-wire test-sdk test-model sim sim-mutants bench-quota bench-relay fuzz lint gen check

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/sidecar, bin/quotad, bin/bench, and bin/dev for make run
	@mkdir -p bin
	@$(GO) build $(LDFLAGS) -o bin/ ./sidecar/cmd/sidecar ./quotad/cmd/quotad ./bench/cmd/bench ./deploy/dev

run: build ## fake provider, one quotad, one sidecar, a demo organisation, and a curl to try (UPSTREAM=url MODEL=name: your own server; OFFSET=100: other ports)
	@exec bin/dev -dir .dev$(OFFSET:%=/%) $(DEVFLAGS)

up: build ## the same with three quotad and two sidecars
	@exec bin/dev -dir .dev/up$(OFFSET:%=/%) -nodes 3 -sidecars 2 $(DEVFLAGS)

test: ## every test but the long suites; no network, nothing but Go
	@$(GO) test $(GOTESTFLAGS) -timeout 8m ./...

test-race: ## the same under the race detector; needs a C compiler
	@$(GO) test -race -timeout 20m ./...

test-system: build ## the long whole-system suite with real processes
	@SLUICE_SYSTEM=1 $(GO) test -count=1 -timeout 45m -v ./bench/system/...

test-wire: ## every recorded provider answer through real processes, for callers of every dialect, and docs/providers.md
	@$(GO) test -count=1 -timeout 10m ./bench/wire

test-sdk: ## unmodified SDKs against a running sidecar, and docs/sdks.md against what passed: Go; Node and Python where installed
	@bench/sdk/run

test-model: ## a model server of your own behind real processes, and what was seen (UPSTREAM=http://127.0.0.1:8080/v1 MODEL=name VENDOR=llamacpp)
	@test -n "$(UPSTREAM)" -a -n "$(MODEL)" || (echo "make test-model UPSTREAM=http://127.0.0.1:8080/v1 MODEL=my-model [VENDOR=llamacpp]"; exit 1)
	@SLUICE_UPSTREAM="$(UPSTREAM)" SLUICE_MODEL="$(MODEL)" SLUICE_VENDOR="$(VENDOR)" \
	  $(GO) test -count=1 -timeout 20m -v -run '^TestModelServer$$' ./bench/system

sim: build ## SEEDS (200) seeded worlds of sidecar lease machines and the ledger; a failing one is named with its replay
	@bin/bench sim --seeds $(SEEDS)

sim-mutants: build ## break the product in each known way (bench/sim/mutants) and require that the simulator finds out
	@bin/bench sim mutants

bench-quota: build ## lease operations a second, latencies, failover, start: quotad beside a bare Raft (QUOTAFLAGS="--parts failover --length 5s")
	@bin/bench quota $(QUOTAFLAGS)

bench-relay: build ## what the relay does with one chunk, in ns and allocations, beside a plain loop of the recipe (RELAYFLAGS="--rounds 1000")
	@bin/bench relay $(RELAYFLAGS)

fuzz: ## every fuzz target for FUZZTIME (10m each: hours)
	@for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
	    echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p || exit 1; done; done

lint: ## golangci-lint, buf lint, buf breaking
	@$(LINT) golangci-lint run ./...
	@$(TOOL) buf lint
	@$(TOOL) buf build -o -\#format=binpb | $(TOOL) buf breaking -\#format=binpb --against proto/baseline.binpb \
	  --config '{"version":"v2","breaking":{"use":["FILE"]}}'

gen: ## regenerate proto/gen
	@$(TOOL) buf generate

check: gen ## generated code, formatting and modules are current: fails when the tree changes
	@gofmt -l . | (! grep .) || (echo "gofmt -w the files above"; exit 1)
	@$(GO) mod tidy -diff
	@git diff --exit-code --stat -- proto/gen go.mod go.sum
	@test -z "$$(git status --porcelain -- proto/gen)"
