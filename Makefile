# `make ci` runs all checks. Each of its steps can also run alone:
#
#   make fmt          checks the format of the code (`cargo fmt` formats it)
#   make prose        checks that the prose is plain technical English (scripts/check-prose)
#   make crates       checks that the default features depend on fewer than 70 crates
#   make build        builds everything once with all features
#   make examples     runs every example to its end
#   make bench-build  runs one tiny round of every bench; `cargo bench` measures
#   make doctest      runs the documentation tests with all features
#   make features     compiles the library without features, and with the layers agents and workflows, each with half of the other features
#   make test         runs the tests with the default features, as in the README: executors, agents and stores, but no workflows
#   make tutorial     follows the tutorial literally in a new project, and compares all output with the pages
#   make test-all     runs all tests with all features, on temporary PostgreSQL and NATS servers
#   make torture-ci   runs short torture campaigns on SQLite, PostgreSQL and NATS, and checks that they detect three planted bugs
#   make third-party  tests the MCP client and server with programs of other projects, from PyPI and npm (scripts/third-party)
#
# In CI, `build`, `features` and `test` also run clippy, and `doctest` also builds the documentation. Warnings are errors.
#
# Outside of CI:
#
#   make lint         runs clippy with all features and with the default features; warnings are errors
#   make doc          builds the documentation like docs.rs, but without feature badges; warnings are errors
#   make torture      runs the long campaigns and all planted bugs: more than an hour (docs/contributing/torture.md)
#   make large        measures a million suspended runs, finished runs and events on each store: up to an hour
#   make fuzz         runs a million cases of every fuzz test, optimised
#   make features-all compiles the library with every feature alone, none, and all
#   make slow         lists the twenty slowest tests (needs cargo-nextest)
#   make deny         checks licences, advisories and duplicate crates (needs cargo-deny)
#
# scripts/services gets PostgreSQL and NATS from PyPI wheels, and needs Linux on x86-64.

.PHONY: ci fmt prose crates build examples bench-build doctest features test test-all torture-ci third-party tutorial \
	lint doc torture large fuzz features-all slow deny
.NOTPARALLEL:
.DEFAULT_GOAL := ci

# Extra arguments of every cargo command that resolves dependencies.
CARGO_FLAGS ?=

# Packages and features of every step except `test` and `features`. Another selection would compile the crate again.
ALL := --workspace --all-features

# scripts/ci sets this after `build`, so that the later steps run the built programs without waiting for cargo.
BUILT :=

# scripts/ci sets this. The compiler then also lints, and rustdoc also builds the documentation, because `make lint` and
# `make doc` would compile everything a second and a third time.
ALSO_LINT :=
RUSTC := $(if $(ALSO_LINT),RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/scripts/clippy-rustc)
RUSTDOC := $(if $(ALSO_LINT),$(RUSTC) RUSTDOC=$(CURDIR)/scripts/rustdoc-twice)

# Features with their own code. `make features-all` checks each.
FEATURES := agents cli conformance embed-local genai mcp mcp-server metrics mock nats openai postgres rcrt schema sqlite templates testing uuid validate workflows workloads yaml

ci:
	@scripts/ci --locked

fmt:
	cargo fmt --all --check

prose:
	scripts/check-prose --check

crates:
	scripts/check-crates $(CARGO_FLAGS)

build:
	@messages=$$(mktemp); trap 'rm -f "$$messages"' EXIT; set -x; \
	$(RUSTC) cargo build $(CARGO_FLAGS) $(ALL) --all-targets --message-format=json-render-diagnostics > "$$messages" \
	&& cp "$$messages" target/build.json

# In CI, `doctest` runs the documentation tests, and `test-all` runs 500 cases of each fuzz test.
test:
ifdef ALSO_LINT
	$(RUSTC) cargo build $(CARGO_FLAGS) --examples
	FUZZ_CASES=100 $(RUSTC) cargo test $(CARGO_FLAGS) --lib --tests
else
	cargo test $(CARGO_FLAGS)
endif

doctest:
	$(RUSTDOC) cargo test $(CARGO_FLAGS) $(ALL) --doc

lint:
	cargo clippy $(CARGO_FLAGS) $(ALL) --all-targets -- -D warnings
	cargo clippy $(CARGO_FLAGS) -- -D warnings

# `build` covers all features, which include the layer workloads, and `test` the default features. The layers agents and workflows
# each have half of the other features, with a durable store that the other half lacks.
features:
	$(RUSTC) cargo check $(CARGO_FLAGS) --lib --no-default-features
	$(RUSTC) cargo check $(CARGO_FLAGS) --lib --no-default-features --features agents,cli,conformance,embed-local,sqlite,templates
	$(RUSTC) cargo check $(CARGO_FLAGS) --lib --no-default-features --features workflows,genai,mcp-server,metrics,mock,nats,openai,postgres,rcrt,testing,uuid,validate

features-all:
	@for flags in "" $(FEATURES:%=--features=%) --all-features; do \
		echo "==> cargo check --lib --no-default-features $$flags"; \
		cargo check $(CARGO_FLAGS) --quiet --lib --no-default-features $$flags || exit 1; \
	done

doc:
	RUSTDOCFLAGS="-D warnings" cargo doc $(CARGO_FLAGS) --no-deps --all-features

# UX_REQUIRE_SERVICES makes the PostgreSQL and NATS suites fail without servers.
test-all: $(if $(BUILT),,build)
	@trap 'scripts/services --name make stop' EXIT; trap 'exit 143' HUP INT TERM; \
	services=$$(scripts/services --name make start --in-memory) || exit 1; \
	export UX_REQUIRE_SERVICES=1 $$services; \
	scripts/built tests

tutorial:
	@trap 'scripts/services --name tutorial stop' EXIT; trap 'exit 143' HUP INT TERM; \
	services=$$(scripts/services --name tutorial start --in-memory) || exit 1; \
	export $$services; \
	scripts/tutorial

examples: $(if $(BUILT),,build)
	scripts/built examples

bench-build: $(if $(BUILT),,build)
	scripts/built benches

# Seed of a campaign, to repeat it.
SEED :=

# Defines the shell function `campaign`, which passes its arguments to the command in $(1). By chance, a campaign can have too
# few faults (exit status 2). It then runs again, at most twice. A broken promise (exit status 1) is final.
CAMPAIGN = campaign() { for _ in 1 2 3; do $(1) "$$@" $(SEED); code=$$?; [ $$code -eq 2 ] || break; done; return $$code; }

# The two halves run in parallel, because a campaign mostly waits. The verdicts are printed last, so that a truncated log has them.
torture-ci: $(if $(BUILT),,build)
	@torture=$$(scripts/built path torture) || exit 1; \
	$(call CAMPAIGN,$$torture ci); \
	( campaign && $$torture bugs some ) > target/torture-sqlite.log 2>&1 & sqlite=$$!; \
	( campaign --on postgres && campaign --on postgres+nats ) > target/torture-services.log 2>&1 & servers=$$!; \
	code=0; wait $$sqlite || code=1; wait $$servers || code=1; \
	logs="target/torture-sqlite.log target/torture-services.log"; \
	if [ $$code -ne 0 ]; then cat $$logs; fi; \
	grep -hE '^(every promise was kept|broken: |not shown: |caught: |MISSED: |[0-9]+ of [0-9]+ mistakes|Error: )' $$logs; \
	exit $$code

# The full campaigns use a build without the planted bugs.
torture:
	@$(call CAMPAIGN,cargo run $(CARGO_FLAGS) -p torture -- full); \
	campaign && campaign --on postgres && campaign --on postgres+nats
	cargo run $(CARGO_FLAGS) -p torture --features _bugs -- bugs all
	cargo run $(CARGO_FLAGS) -p torture --features _bugs -- controls all

# Each bench prints one line per store, and fails if a promise is broken. docs/operations/scaling.md has the results.
large:
	@trap 'scripts/services --name make stop' EXIT; trap 'exit 143' HUP INT TERM; \
	services=$$(scripts/services --name make start) || exit 1; \
	export $$services; set -x; \
	for bench in large growth soak; do cargo bench $(CARGO_FLAGS) --all-features --bench $$bench || exit 1; done

fuzz:
	scripts/fuzz

slow:
	@trap 'scripts/services --name make stop' EXIT; trap 'exit 143' HUP INT TERM; \
	services=$$(scripts/services --name make start --in-memory) || exit 1; \
	export UX_REQUIRE_SERVICES=1 $$services; \
	cargo nextest run $(CARGO_FLAGS) $(ALL) --no-fail-fast --status-level pass > target/slow.log 2>&1; code=$$?; \
	tail -3 target/slow.log; sed -nE "s/.*PASS \[ *([0-9.]+)s\] *(\([^)]*\))? */\1 s  /p" target/slow.log | sort -rn | head -20; \
	exit $$code

# UX_REQUIRE_THIRD_PARTY makes the tests fail without the programs.
third-party:
	@programs=$$(scripts/third-party) || exit 1; \
	export UX_REQUIRE_THIRD_PARTY=1 $$programs; set -x; \
	$(if $(BUILT),scripts/built test agents,cargo test $(CARGO_FLAGS) --features mcp-server,validate --test agents --) mcp::third_party

deny:
	cargo deny check
