# What to run, and what `make ci` is made of:
#
#   make fmt          is the code formatted? (`cargo fmt` formats it)
#   make lint         clippy on the default features and on all of them, warnings are errors
#   make features     the library compiles with no feature, each heavy one alone, and all of them
#   make crates       the default features stay light
#   make test         unit, integration and documentation tests
#   make doc          the documentation, broken links are errors
#   make examples     every file in examples/ runs to its end
#   make torture-ci   workers on one SQLite file are killed, stopped and misled, and three mistakes have to be found
#   make torture-services  the same campaign on PostgreSQL and on PostgreSQL with NATS (needs Linux on x86-64)
#   make bench-build  the benches compile and run one tiny round; `cargo bench` measures
#   make ci           all of the above, with Cargo.lock as committed
#   make torture      the same with 500 kills on each, and all mistakes: more than an hour; see docs/torture.md
#   make services-test  of the tests only what needs PostgreSQL and NATS, on servers of its own (Linux on x86-64)
#   make deny         licences, advisories and duplicate crates (needs cargo-deny)

.PHONY: fmt lint features crates test doc examples bench-build torture-ci torture-services torture services-test ci deny
.NOTPARALLEL:
.DEFAULT_GOAL := ci

# Given to every cargo command that resolves dependencies.
CARGO_FLAGS ?=

# Features that bring a dependency or test support; one that joins is checked alone as well.
# With none and all this makes seventeen combinations.
HEAVY_FEATURES := cli conformance embed-local genai metrics mock nats openai postgres rcrt schema sqlite templates validate yaml

# Tests that are made of more than the default features. Those that need a server fail without one.
FULL_TESTS := agent agent_kill agent_ways cli flow flow_kill genai key_order meaning metrics openai rcrt source_nats sqlite_desk store_postgres store_sqlite tls tools workload workload_kill

ci: CARGO_FLAGS := --locked
ci: fmt crates lint features test doc examples bench-build torture-ci torture-services
	@echo "==> ci: everything passed"

fmt:
	@echo "==> fmt: is the code formatted?"
	cargo fmt --all --check

lint:
	@echo "==> lint: clippy on the default features"
	cargo clippy $(CARGO_FLAGS) -- -D warnings
	@echo "==> lint: clippy on all features, tests, examples and benches"
	cargo clippy $(CARGO_FLAGS) --workspace --all-targets --all-features -- -D warnings

features:
	@for flags in --no-default-features $(HEAVY_FEATURES:%=--no-default-features,--features=%) --all-features; do \
		flags=$$(echo "$$flags" | tr ',' ' '); \
		echo "==> features: cargo check --lib $$flags"; \
		cargo check $(CARGO_FLAGS) --quiet --lib $$flags || exit 1; \
	done

crates:
	@echo "==> crates: what the default features pull in"
	scripts/check-crates $(CARGO_FLAGS)

test:
	@echo "==> test: unit, integration and documentation tests"
	cargo test $(CARGO_FLAGS)
	@echo "==> test: what needs a feature that is not on by default, with PostgreSQL and NATS"
	@trap 'scripts/services stop' EXIT; \
	services=$$(scripts/services start) || exit 1; \
	export UX_REQUIRE_SERVICES=1 $$services; \
	cargo test $(CARGO_FLAGS) --features full --lib $(FULL_TESTS:%=--test %)
	cargo test $(CARGO_FLAGS) --features full --doc -- meaning nats postgres Postgres providers rcrt Rcrt sse sqlite Sqlite

doc:
	@echo "==> doc: the documentation, warnings are errors"
	RUSTDOCFLAGS="-D warnings" cargo doc $(CARGO_FLAGS) --no-deps --all-features

examples:
	@for file in examples/*.rs; do \
		[ -e "$$file" ] || continue; \
		name=$$(basename "$$file" .rs); \
		echo "==> examples: $$name"; \
		case $$name in \
			flow|human_approval|openai_compatible|service|sqlite|workers) features="--features full" ;; \
			*) features= ;; \
		esac; \
		SERVICE_SECONDS=1 cargo run $(CARGO_FLAGS) --quiet $$features --example "$$name" || { echo "example $$name failed" >&2; exit 1; }; \
	done

# The development profile shares the dependencies that `test` compiled; an optimised build would take
# longer than all other steps together and prove no more.
bench-build:
	@echo "==> bench-build: the benches compile and run one tiny round"
	cargo bench $(CARGO_FLAGS) --features full --profile dev --bench '*' -- --quick

# The seed of a campaign, where it shall be the same each time.
SEED ?=

torture-ci:
	@echo "==> torture-ci: a campaign against workers that share a store, and three mistakes to be found"
	cargo test $(CARGO_FLAGS) --quiet -p torture --features _bugs
	cargo build $(CARGO_FLAGS) -p torture --features _bugs
	@# Chance may let too few faults land (2): then once more. A promise that is broken (1) is broken.
	target/debug/torture ci $(SEED) || { [ $$? -eq 2 ] && target/debug/torture ci $(SEED); }
	target/debug/torture bugs some

torture-services:
	@echo "==> torture-services: campaigns against workers that share PostgreSQL, without and with NATS"
	cargo build $(CARGO_FLAGS) -p torture --features _bugs
	@for on in postgres postgres+nats; do \
		echo "==> torture-services: $$on"; \
		target/debug/torture ci --on $$on $(SEED) || { [ $$? -eq 2 ] && target/debug/torture ci --on $$on $(SEED); } || exit 1; \
	done

torture:
	@echo "==> torture: full campaigns, then every mistake, and the same campaigns without one"
	cargo build $(CARGO_FLAGS) -p torture
	target/debug/torture full $(SEED)
	target/debug/torture full --on postgres $(SEED)
	target/debug/torture full --on postgres+nats $(SEED)
	cargo build $(CARGO_FLAGS) -p torture --features _bugs
	target/debug/torture bugs all
	target/debug/torture controls all

services-test:
	@echo "==> services-test: the store in PostgreSQL, and events through NATS"
	@trap 'scripts/services stop' EXIT; \
	services=$$(scripts/services start) || exit 1; \
	export UX_REQUIRE_SERVICES=1 $$services; \
	cargo test $(CARGO_FLAGS) --features full --lib --test meaning --test source_nats --test store_postgres --test tls

deny:
	@echo "==> deny: licences, advisories, bans and sources"
	cargo deny check
