# `make ci` is the whole check. Its steps, each of which also runs alone:
#
#   make fmt          the code is formatted (`cargo fmt` formats it)
#   make prose        the prose of the project is plain technical English (scripts/check-prose)
#   make crates       the default features stay under 70 crates
#   make build        everything, once, with all features
#   make examples     every example runs to its end
#   make bench-build  every bench runs one tiny round; `cargo bench` measures
#   make doctest      the documentation tests with all features
#   make features     the library compiles with the default features, with none, with each layer and with two halves of the others
#   make test         the tests with the default features, as the README says: executors, agents and stores, but no workflows
#   make test-all     all other tests with all features, on PostgreSQL and NATS servers of its own
#   make torture-ci   short torture campaigns on SQLite, PostgreSQL and NATS, and three planted bugs to find
#
# In CI `build` and `features` also run clippy, and `doctest` also builds the documentation; warnings are errors.
#
# Outside of CI:
#
#   make lint         clippy on all features and on the default features; warnings are errors
#   make doc          the documentation, as docs.rs builds it but without feature badges; warnings are errors
#   make torture      the long campaigns and all planted bugs: more than an hour (docs/torture.md)
#   make large        a million suspended runs, finished runs and events on each store: up to an hour
#   make fuzz         a million cases for every fuzz test, optimised
#   make features-all every feature alone, and none, and all
#   make slow         the twenty slowest tests (needs cargo-nextest)
#   make deny         licences, advisories and duplicate crates (needs cargo-deny)
#
# PostgreSQL and NATS come from PyPI wheels through scripts/services, which needs Linux on x86-64.

.PHONY: ci fmt prose crates build examples bench-build doctest features test test-all torture-ci \
	lint doc torture large fuzz features-all slow deny
.NOTPARALLEL:
.DEFAULT_GOAL := ci

# Given to every cargo command that resolves dependencies.
CARGO_FLAGS ?=

# The one selection of packages, features and targets that every step but `test` and `features` shares. Another selection
# would compile the crate again.
ALL := --workspace --all-features

# Set by scripts/ci once `build` has run, so that running what it built does not wait for cargo.
BUILT :=

# scripts/ci sets this. The compiler then lints as well, and rustdoc also builds the documentation: `make lint` and
# `make doc` would compile everything a second and a third time.
ALSO_LINT :=
RUSTC := $(if $(ALSO_LINT),RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/scripts/clippy-rustc)
RUSTDOC := $(if $(ALSO_LINT),$(RUSTC) RUSTDOC=$(CURDIR)/scripts/rustdoc-twice)

# The features that have code of their own; `make features-all` checks each.
FEATURES := agents cli conformance embed-local genai metrics mock nats openai postgres rcrt schema sqlite templates testing uuid validate workflows workloads yaml

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

test:
	cargo test $(CARGO_FLAGS)

doctest:
	$(RUSTDOC) cargo test $(CARGO_FLAGS) $(ALL) --doc

lint:
	cargo clippy $(CARGO_FLAGS) $(ALL) --all-targets -- -D warnings
	cargo clippy $(CARGO_FLAGS) -- -D warnings

# `build` covers all features. Each layer includes the ones before it. Each half has a durable store that the other lacks.
features:
	$(RUSTC) cargo check $(CARGO_FLAGS) --lib
	$(RUSTC) cargo check $(CARGO_FLAGS) --lib --no-default-features
	$(RUSTC) cargo check $(CARGO_FLAGS) --lib --no-default-features --features agents
	$(RUSTC) cargo check $(CARGO_FLAGS) --lib --no-default-features --features workflows
	$(RUSTC) cargo check $(CARGO_FLAGS) --lib --no-default-features --features workloads
	$(RUSTC) cargo check $(CARGO_FLAGS) --lib --no-default-features --features cli,conformance,embed-local,sqlite,templates,yaml
	$(RUSTC) cargo check $(CARGO_FLAGS) --lib --no-default-features --features genai,metrics,mock,nats,openai,postgres,rcrt,testing,uuid,validate

features-all:
	@for flags in "" $(FEATURES:%=--features=%) --all-features; do \
		echo "==> cargo check --lib --no-default-features $$flags"; \
		cargo check $(CARGO_FLAGS) --quiet --lib --no-default-features $$flags || exit 1; \
	done

doc:
	RUSTDOCFLAGS="-D warnings" cargo doc $(CARGO_FLAGS) --no-deps --all-features

# Without servers the suites of PostgreSQL and NATS fail, because UX_REQUIRE_SERVICES is set.
test-all: $(if $(BUILT),,build)
	@trap 'scripts/services --name make stop' EXIT; trap 'exit 143' HUP INT TERM; \
	services=$$(scripts/services --name make start --in-memory) || exit 1; \
	export UX_REQUIRE_SERVICES=1 $$services; \
	scripts/built tests

examples: $(if $(BUILT),,build)
	scripts/built examples

bench-build: $(if $(BUILT),,build)
	scripts/built benches

# The seed of a campaign, to repeat it.
SEED :=

# Defines the shell function `campaign`, which passes its arguments to the command in $(1). Chance may let too few faults land
# (exit status 2): then the campaign runs again, at most twice. A broken promise (1) is final.
CAMPAIGN = campaign() { for _ in 1 2 3; do $(1) "$$@" $(SEED); code=$$?; [ $$code -eq 2 ] || break; done; return $$code; }

# The two halves run side by side, because a campaign mostly waits. The verdicts come last, where a short log ends.
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

# The full campaigns run the crate without planted bugs.
torture:
	@$(call CAMPAIGN,cargo run $(CARGO_FLAGS) -p torture -- full); \
	campaign && campaign --on postgres && campaign --on postgres+nats
	cargo run $(CARGO_FLAGS) -p torture --features _bugs -- bugs all
	cargo run $(CARGO_FLAGS) -p torture --features _bugs -- controls all

# Each bench prints one line for each store, and fails if a promise is broken. Bytes and rates: docs/scaling.md.
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

deny:
	cargo deny check
