# agentcli. On a fresh machine: `make demo`, `make test`. Everything they need is
# fetched into the user's cache folder by scripts/setup.sh.

CACHE  := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/agentcli
PYTHON := $(CACHE)/python/bin/python
GO     := go
TAGS   := -tags libtorch
LINT   := $(GO) tool -modfile=tools.mod golangci-lint

# Packages without cgo: they are tested under the race detector.
PURE = $(shell $(GO) list ./...)

# CGO_CXXFLAGS and CGO_LDFLAGS for libtorch; written by set-up.
-include $(CACHE)/torch.env.mk

.PHONY: all setup setup-test build build-lite test test-lite test-full test-generic test-fast lint demo bench clean

all: build

# CUDA=1 also fetches what a GPU needs.
setup:
	@scripts/setup.sh $(if $(CUDA),cuda)

setup-test:
	@scripts/setup.sh python

# Make reads torch.env.mk when it starts, before set-up has written it: the
# targets that need it run in a second make.
build: setup
	@$(MAKE) --no-print-directory bin/agentcli

build-lite:
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/agentcli-lite ./cmd/agentcli

.PHONY: bin/agentcli
bin/agentcli:
	@[ -n "$(CGO_LDFLAGS)" ] || { echo "run make build" >&2; exit 1; }
	@echo "building bin/agentcli (the first build compiles the libtorch bindings: about 3 minutes)" >&2
	$(GO) build $(TAGS) -o bin/agentcli-torch ./cmd/agentcli
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/agentcli ./cmd/agentcli

# What the second half needs is compiled while the first one waits.
test: setup-test
	@nice $(GO) build $(TAGS) ./... >/dev/null 2>&1 & built=$$!; \
	$(MAKE) --no-print-directory test-lite && { wait $$built || true; } && $(MAKE) --no-print-directory test-full

# The inner loop, at most 90 seconds on two idle cores; a package whose files are those of
# the last time is not run again. It leaves out: the race detector, libtorch, the
# comparisons with Python, what -short leaves out (most damaged Parquet files, each probe in
# each half of the sandbox), and the tests of the command that play whole runs with faults.
test-fast:
	CGO_ENABLED=0 $(GO) test -short -skip '$(WHOLE_RUNS)' ./...

# Whole runs against servers that fail.
WHOLE_RUNS = TestNoSecretLeavesThePlaceWhereItWasGiven|TestKilledAtAnyMomentARunGoesOn|$\
  TestFaultsOfTheServerLoseAndMislabelNothing|TestAnOutageIsNeverARewardOfZero|TestResumeWaitsForItsServer|$\
  TestARunGoesOnWithoutAServerThatDies

# What the command says, takes and refuses, and training: one command after the other, for
# which the race detector has nothing to find.
COMMAND_LINES = ^TestModelConvert$$|^TestFlagsWithoutEffectAreRefused$$|^TestFlagsWithAnEffectAreTaken$$|^TestMessages$$|$\
  ^TestResumeRefusesWhatIsFixed$$|^TestTheMetricsAreThoseThatAreDocumented$$|^TestResumeLooksAtEveryFileOfARun$$|$\
  ^TestNumbersAreChecked$$|^TestPrintConfigReadsBackAsTheSameSettings$$|^TestRolloutsAreHeldToWhatIsFixed$$|$\
  ^TestCommandsOfThePagesRun$$|^TestDoctorTriesTheSandbox$$|^TestLoopRefusesWhatItCannotDo$$|$\
  ^TestALoop|^TestEveryGivenAlgorithmTrainsResumesAndShows$$|$\
  ^TestScripts$$/^(usage|datasets|compare|failed|filter|own_data|train|full|tokenmode|environment|retriever)$$

# The pure-Go build: tests under the race detector in random order; whole runs and
# command lines without it, which would make them ten times as long.
test-lite:
	CGO_ENABLED=0 $(GO) build ./...
	AGENTCLI_PYTHON=$(PYTHON) $(GO) test -race -shuffle=on -count=1 -timeout 30m \
	  -skip '$(WHOLE_RUNS)|$(COMMAND_LINES)' $(PURE)
	AGENTCLI_SEEDS=2000 CGO_ENABLED=0 $(GO) test -count=1 ./internal/simulation ./parquet & faults=$$!; \
	AGENTCLI_PYTHON=$(PYTHON) CGO_ENABLED=0 $(GO) test -count=1 -run '$(WHOLE_RUNS)|$(COMMAND_LINES)' ./cmd/agentcli && wait $$faults

# The build with libtorch. One package at a time: two torch processes on the
# same cores slow each other down tenfold. Of the command only the tests that open models:
# test-lite has played the others.
test-full:
	@[ -n "$(CGO_LDFLAGS)" ] || { echo "run make test" >&2; exit 1; }
	AGENTCLI_PYTHON=$(PYTHON) $(GO) test $(TAGS) -p 1 -count=1 -timeout 30m ./internal/torch ./policy ./trainer/... ./app/models ./app/train \
	  ./app/loop ./app/rollout ./app/serve ./examples/...
	AGENTCLI_PYTHON=$(PYTHON) $(GO) test $(TAGS) -count=1 -timeout 30m -run "$$(scripts/libtorch_tests.sh cmd/agentcli)" ./cmd/agentcli
	$(MAKE) --no-print-directory test-generic

# What a GPU computes, without one: libtorch's own operations in place of our CPU kernels,
# and a device whose memory faults when the host touches it (internal/torch/testdevice).
test-generic:
	AGENTCLI_TEST_KERNELS=none $(GO) test $(TAGS) -count=1 -timeout 30m ./policy
	AGENTCLI_TEST_KERNELS=none $(GO) test $(TAGS) -short -count=1 -timeout 30m ./trainer
	AGENTCLI_TEST_DEVICE=testdevice $(GO) test $(TAGS) -short -count=1 -timeout 30m ./policy

lint:
	@[ -z "$$(gofmt -l $$(git ls-files '*.go'))" ] || { gofmt -l $$(git ls-files '*.go'); echo "not gofmt-ed" >&2; exit 1; }
	$(GO) mod tidy -diff
	$(GO) mod verify
	@$(MAKE) --no-print-directory vulncheck
	$(GO) vet ./...
	$(GO) vet $(TAGS) ./...
	$(LINT) run --disable unused ./...
	$(LINT) run $(patsubst -tags,--build-tags,$(TAGS)) ./...
	@GO="$(GO)" TAGS="$(TAGS)" scripts/deadcode.sh

# Known faults in what we import and call. Its database is on the network.
.PHONY: vulncheck
vulncheck:
	@scripts/vulncheck.sh

demo: build
	@scripts/demo.sh

# A model with random weights learns where to look.
.PHONY: demo-look
demo-look: build
	@scripts/demo_look.sh

bench: setup
	@scripts/setup.sh peers
	@$(MAKE) --no-print-directory bench-run

.PHONY: bench-run bench-engine
bench-run:
	@PYTHON=$(CACHE)/peers/bin/python bench/compare.sh

# The engine against a mock server, beside a bare client.
bench-engine: build-lite
	$(GO) run ./bench/engine -agentcli bin/agentcli-lite -n 3

clean:
	rm -rf bin runs demo
