# Go and PostgreSQL's binaries are all that is needed. Where PostgreSQL is
# missing, `make run` and `make test` say what to install, and install it
# themselves on Debian as root.

GO          ?= go
STATICCHECK  = honnef.co/go/tools/cmd/staticcheck@v0.8.2
SQLC         = github.com/sqlc-dev/sqlc/cmd/sqlc@v1.30.0
TOOLS        = $(CURDIR)/.cache/tools

# One private PostgreSQL for all test processes of a command.
WITH_DB = $(GO) run ./internal/devdb/cmd/testdb --

# Packages whose code runs concurrently; those that exist are tested with -race.
RACE = $(addsuffix /...,$(addprefix ./,$(wildcard internal/operation internal/flow internal/sweep \
       internal/sandbox acquirer internal/httpapi internal/outbox internal/intake inbox)))

# The nested module: tests that need other people's parts, which this module does not depend on.
NESTED = cd test &&

# Where other people's parts that are not Go are installed.
PEERS = $(CURDIR)/.cache/peers

.PHONY: run build test race check vet staticcheck gofmt arch generate model peers kafka

run: build ## everything on this machine: PostgreSQL, sandbox acquirer, API, workers
	./bin/hapax dev

build:
	$(GO) build -o bin/hapax ./cmd/hapax

test: ## every test
	$(WITH_DB) sh -c 'failed=0; $(GO) test -timeout 20m ./... || failed=1; ($(NESTED) $(GO) test -timeout 20m ./...) || failed=1; exit $$failed'

race: ## the concurrent packages under the race detector
	$(WITH_DB) $(GO) test -race -short -timeout 25m $(RACE)

check: vet staticcheck gofmt arch ## everything that reads the code

vet:
	$(GO) vet ./...
	$(NESTED) $(GO) vet ./...

staticcheck:
	GOBIN=$(TOOLS) $(GO) install $(STATICCHECK)
	$(TOOLS)/staticcheck ./...
	$(NESTED) $(TOOLS)/staticcheck ./...

gofmt:
	@unformatted=$$($$($(GO) env GOROOT)/bin/gofmt -l $$(git ls-files '*.go' 2>/dev/null || echo .)); \
	if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi

arch:
	$(GO) test ./internal/archtest/...

generate: ## code from the SQL of internal/store; building sqlc takes minutes
	GOBIN=$(TOOLS) $(GO) install $(SQLC)
	PATH="$(TOOLS):$$PATH" sh internal/store/gen.sh

model: ## the protocol as a model, checked by Spin; a minute (needs spin and gcc, and says so)
	@sh model/run.sh

peers: ## our webhooks against npm's library (needs node, npm and its registry)
	mkdir -p $(PEERS)/npm
	cp test/peers/npm/package.json test/peers/npm/package-lock.json $(PEERS)/npm/
	cd $(PEERS)/npm && npm ci --ignore-scripts --no-audit --no-fund
	$(NESTED) HAPAX_PEERS=$(PEERS) $(GO) test -count=1 -v ./peers/

kafka: ## events to Apache Kafka 4, killed and cut off (needs Java 17, Maven and its registry; minutes)
	GO="$(GO)" $(WITH_DB) sh test/kafka/run.sh
