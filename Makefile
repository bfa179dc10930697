# Everything a newcomer types. `make` alone lists it.
# Each target sets up what it needs in .venv; stamp files keep it from being done twice.

PYTHON ?= $(firstword $(foreach name,python3.11 python3 python3.12 python3.13 python3.14,$(shell \
	$(name) -c 'import sys; sys.version_info >= (3, 11) and print("$(name)")' 2>/dev/null)))
CARGO ?= cargo
VENV := .venv
BENCH_VENVS := .venv-bench
LIBRARIES_VENV := .venv-libraries
OPENAPI_VENV := .venv-openapi
SUITE_VENV := .venv-suite
STAMPS := $(VENV)/stamps
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Debian packages that some tests use; without them those tests are skipped.
TEST_PACKAGES := chromium strace
# Debian packages that some of the benchmarks' peers are or need; without them those rows are skipped.
BENCH_PACKAGES := fio openssl postgresql redis-server wrk

# What the guest of test-verbs needs: tools to build its kernel, and the library with its Soft-RoCE provider.
VERBS_PACKAGES := bc xz-utils iproute2 libibverbs1 ibverbs-providers

# distributed's sources, whose wheels come without tests; of the release that the group "test" installs.
DISTRIBUTED := $(or $(FOREBAY_DISTRIBUTED_TESTS),target/distributed)
DISTRIBUTED_RELEASE := 2026.8.0

# Most tests wait for other processes, or for time, more than they compute.
TEST_PROCESSES := 3

# Of tests that may take minutes: the stacks of those that are well are no news.
LONG := --quiet -o faulthandler_timeout=0

# Before the commands of Rust's tests, such as "nice", where they run beside Python's.
NICE :=

# The machine's SQLite where its headers are (libsqlite3-dev), else one that is compiled in: one more minute.
SQLITE := $(or $(SQLITE),$(if $(shell \
	pkg-config --atleast-version=3.34.1 sqlite3 2>/dev/null && echo there),system,bundled)-sqlite)
TEST_FEATURES := $(if $(filter bundled-sqlite,$(SQLITE)),--features forebay-executor/bundled-sqlite)

# Fuzz targets are a workspace of their own, and share what is built.
FUZZ := --locked --manifest-path fuzz/Cargo.toml --target-dir target --features $(SQLITE)

# maturin goes by this one, whatever environment the shell is in.
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
unexport CONDA_PREFIX
# Byte code is kept, as users have it; without, each of some thousand processes compiles the package.
unexport PYTHONDONTWRITEBYTECODE

# Modules of Rust's tests that need more than a user has; where these may not run, cargo lists them as ignored.
PRIVILEGED = $(strip $(shell [ "$$(id -u)" = 0 ] && unshare --mount true 2>/dev/null && echo as_root::) \
	$(shell [ -w /sys/fs/cgroup/memory/tasks ] || [ -w /sys/fs/cgroup/cgroup.subtree_control ] && echo in_cgroup::))

RUST_SOURCES := $(shell find crates -name target -prune -o \( -name '*.rs' -o -name Cargo.toml \) -print)
LOOM_CRATES := $(patsubst crates/%/tests/loom.rs,%,$(wildcard crates/*/tests/loom.rs))
TYPED := $(wildcard python/forebay clients/python/forebay_client benchmarks tools examples)
# Set-up runs two steps at once, cargo beside pip; under make --jobs it is among its jobs.
SETUP = $(MAKE) --silent $(if $(findstring jobserver,$(MAKEFLAGS)),,--jobs 2)

# `lint` leaves out those that WITHOUT names.
LINTS := $(addprefix lint-,format ruff types stubs imports tidy rustfmt clippy audit fuzz)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo demo-all autotune test lint soak chaos fuzz planted mutants coverage sanitize bench-setup bench node originals scenes wheel picture clean
.PHONY: setup test-packages test-rust test-python test-slow test-engine test-verbs test-verbs-if-built test-libraries lint-setup $(LINTS)

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo:  ## watch warm services answer, then tune gcc with them (under three minutes once built)
	@$(SETUP) $(STAMPS)/package $(STAMPS)/group-demo
	@$(BIN)/python -m examples.gcc_tuning

# AUTOTUNE_OPTIONS='--engine dask' runs either on a cluster; --http 127.0.0.1:0 shows the dashboard.
AUTOTUNE_NEEDS = $(STAMPS)/group-demo $(if $(findstring dask,$(AUTOTUNE_OPTIONS)),$(STAMPS)/group-cluster) \
	$(if $(findstring http,$(AUTOTUNE_OPTIONS)),$(STAMPS)/group-gateway)
demo-all:  ## one program through all five systems: a policy learns gcc's flags (one to four minutes once built)
	@$(SETUP) $(STAMPS)/package $(AUTOTUNE_NEEDS)
	@$(BIN)/python -m examples.autotune --quick $(AUTOTUNE_OPTIONS)

autotune:  ## the same with five seeds and eight programs, for figures and picture of the docs (ten to thirty minutes)
	@$(SETUP) $(STAMPS)/package $(AUTOTUNE_NEEDS)
	@$(BIN)/python -m examples.autotune --json docs/autotune.json --picture docs/pictures/autotune.png $(AUTOTUNE_OPTIONS)

# What fails hides nothing of the others.
test: test-packages  ## run every test: Rust, loom, Python, and RDMA verbs where their guest is built
	@status=0; \
	$(MAKE) --keep-going test-rust test-python || status=1; \
	$(MAKE) test-verbs-if-built || status=1; \
	exit $$status

test-verbs:  ## RDMA verbs over Soft-RoCE, and limits, in User-Mode Linux (builds it once: six to fifteen minutes)
	@bash tools/debian_packages.sh $(VERBS_PACKAGES)
	@$(SETUP) $(STAMPS)/package $(STAMPS)/group-test
	@CARGO='$(CARGO)' PYTHON='$(BIN)/python' bash tools/verbs/test.sh always

test-slow:  ## distributed's suite over our comms, in spawned processes too (some hours, goes on where it was; clones it once)
	@$(SETUP) $(STAMPS)/package $(STAMPS)/group-test $(SUITE_VENV)/installed $(DISTRIBUTED)/conftest.py
	FOREBAY_MIXED=all $(BIN)/python -m pytest $(LONG) tests/dask/test_mixed_clusters.py
	PYTHONPATH=python $(SUITE_VENV)/bin/python -m tests.dask.suite $(DISTRIBUTED) $(SUITE_OPTIONS)

test-engine:  ## the executor's tests with their workers on a Dask cluster of two processes (a quarter of an hour)
	@$(SETUP) $(STAMPS)/package $(STAMPS)/group-test
	env --unset=MAKEFLAGS $(BIN)/python -m pytest \
		--numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder tests/executor --engine dask $(PYTEST_OPTIONS)

test-libraries:  ## pandas, polars, tensorflow and ten more in templates (installs 3 GB of them once)
	@$(SETUP) $(STAMPS)/package $(LIBRARIES_VENV)/installed
	FOREBAY_LIBRARIES=all PYTHONPATH=python $(LIBRARIES_VENV)/bin/python -m pytest --quiet tests/pool/service/test_libraries.py

lint: $(filter-out $(WITHOUT),$(LINTS))  ## format, lints, types, stubs, import contracts, tidy test

soak:  ## 20,000 leases while everything that can die is killed or stopped, and long searches (ten minutes)
	@$(SETUP) $(STAMPS)/package $(STAMPS)/group-test
	FOREBAY_SOAK_LEASES=20000 FOREBAY_GCC_SEQUENCES=200 FOREBAY_GCC_SEEDS=3 FOREBAY_GCC_PROGRAMS=8 FOREBAY_DIRECT_BATCHES=50 \
		$(BIN)/python -m pytest $(LONG) tests/pool/faults/test_soak.py tests/gcc_tuning/test_pooled.py \
		tests/blockio/test_allocations.py

chaos:  ## kill 100 servers under 2,000 requests, and 100 writers of record files; 20 overruns; 100 gateways; 20 servers under readers of events, 30 under hooks; 20 backups and 20 take-overs under load; nodes and schedulers of a cluster 50 times under 1,000 requests; forebay chaos with five seeds, two minutes each (an hour)
	@$(SETUP) $(STAMPS)/package $(STAMPS)/group-test
	FOREBAY_CHAOS_KILLS=100 FOREBAY_CHAOS_OVERRUNS=20 FOREBAY_RECORD_KILLS=34 FOREBAY_GATEWAY_KILLS=100 \
		FOREBAY_FEED_KILLS=20 FOREBAY_BACKUPS=20 FOREBAY_TAKEOVERS=20 FOREBAY_HOOK_KILLS=30 FOREBAY_HOOK_TIMES=1 \
		FOREBAY_CHAOS_SEEDS=1,2,3,4,5 FOREBAY_CHAOS_MINUTES=2 FOREBAY_ENGINE_KILLS=50 \
		$(BIN)/python -m pytest $(LONG) tests/executor/server/test_chaos.py \
		tests/executor/server/test_chaos_memory.py tests/blockio/test_record_crash.py \
		tests/gateway/http/test_process.py tests/gateway/http/test_feed_killed.py \
		tests/executor/backup/test_backup.py tests/executor/server/hooks/test_outages.py \
		tests/executor/server/test_takeover.py tests/cli/service/test_replaced.py \
		tests/executor/engine/test_kills.py tests/testing/experiment/test_experiment.py

fuzz:  ## ten million mutated inputs for every decoder that strangers reach (some hours; FOREBAY_MUTATIONS says how many)
	$(CARGO) run --release $(FUZZ) --bin mutate
	@$(SETUP) $(STAMPS)/package $(STAMPS)/group-test
	FOREBAY_MUTATIONS=$(or $(FOREBAY_MUTATIONS),10000000) $(BIN)/python -m pytest $(LONG) --timeout 0 --capture=no -k mutated \
		$(wildcard tests/*/test_codec.py tests/*/*/test_codec.py) tests/blockio/test_record_mutation.py \
		tests/gateway/test_forms.py tests/gateway/test_results.py

sanitize:  ## miri, AddressSanitizer and ThreadSanitizer over the crates (an hour; needs rustup, or valgrind)
	@CARGO='$(CARGO)' SQLITE=bundled-sqlite bash tools/sanitize.sh

bench-setup:  ## install what the benchmarks need, and their peers into .venv-bench
	@bash tools/debian_packages.sh $(BENCH_PACKAGES)
	@$(SETUP) $(STAMPS)/package $(STAMPS)/group-bench
	@$(BIN)/python -m benchmarks.peers $(BENCH_VENVS)

bench: bench-setup  ## run every benchmark system beside its peers
	@$(BIN)/python -m benchmarks all

node: bench-setup  ## every bound that was asked, beside its figure: a quiet machine, control groups
	@broken=; hold() { echo "==> $$2"; $(BIN)/python "$$@" || broken="$$broken $$2"; }; \
	hold -m benchmarks.executor.lanes; hold -m benchmarks.executor.node; \
	hold -m benchmarks.gateway.node; \
	hold -m benchmarks.executor.takeover; \
	hold -m benchmarks.executor.bounds; hold -m benchmarks.pool.bounds; \
	hold -m benchmarks.transport.crowd; \
	FOREBAY_FRAMES=hold hold -m pytest $(LONG) tests/gateway/browser/test_large.py; \
	[ -z "$$broken" ] || { echo "==> broken bounds:$$broken"; exit 1; }

planted:  ## plant the bugs of tests/planted in a copy, and demand that each is found (fifteen minutes)
	@$(SETUP) $(STAMPS)/package $(STAMPS)/group-test
	@$(BIN)/python -m tools.planted

mutants: | $(BIN)/python  ## change each machine at 100 random places, and see what its model notices (some hours)
	@$(BIN)/python -m tools.mutants

coverage: test-packages  ## which lines of Rust and Python the tests run; a file below 80 % needs a reason
	@$(SETUP) $(STAMPS)/package $(STAMPS)/group-coverage
	@env --unset=MAKEFLAGS CARGO='$(CARGO)' SQLITE='$(SQLITE)' PRIVILEGED='$(PRIVILEGED)' $(NICE) \
		$(BIN)/python -m tools.coverage $(COVERAGE_OPTIONS)

originals: bench-setup  ## measure the originals' own tables, and render their page from that run
	@rm -f docs/originals.json
	@$(BIN)/python -m benchmarks originals --json docs/originals.json || echo "==> not all of them ran"
	@$(BIN)/python -m tools.originals docs/originals.json > docs/originals.md

scenes: wheel  ## play what the guides show in fresh environments, compare and record it (gcc, control groups)
	@$(SETUP) $(STAMPS)/package $(STAMPS)/group-demo
	@$(BIN)/python -m tools.scenes --write environments small_node training

wheel: $(STAMPS)/group-build  ## build the abi3 wheel and that of the client over HTTP into dist/
	$(BIN)/maturin build --release --locked --out dist
	$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir dist clients/python

picture:  ## draw the pictures of README and docs from real runs (needs chromium)
	@$(SETUP) $(STAMPS)/package $(STAMPS)/group-picture
	@$(BIN)/python -m tools.picture docs/pictures/demo.svg --columns 104 --rows 74 \
		--title 'make demo, two of its programs' -- \
		$(BIN)/python -m examples.gcc_tuning --programs lz,sorting
	@$(BIN)/python -m tools.dashboard_pictures

clean:  ## remove what was built; keeps nothing but the sources
	rm -rf $(VENV) $(BENCH_VENVS) $(LIBRARIES_VENV) $(OPENAPI_VENV) $(SUITE_VENV) target dist build python/forebay/*.so
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# --- the parts of `make test` and `make lint` -------------------------------------------------

test-packages:
	@bash tools/debian_packages.sh $(TEST_PACKAGES)

test-rust:
	status=0; \
	$(NICE) $(CARGO) test --locked --no-fail-fast $(TEST_FEATURES) || status=1; \
	$(if $(PRIVILEGED),$(NICE) $(CARGO) test --locked --no-fail-fast $(TEST_FEATURES) \
		--lib --tests -- --ignored $(PRIVILEGED) || status=1;) \
	$(foreach crate,$(LOOM_CRATES),RUSTFLAGS='--cfg loom' $(NICE) $(CARGO) test --locked --release \
		--target-dir target/loom --package forebay-$(crate) --test loom || status=1;) \
	exit $$status

test-python: | test-packages
	@$(SETUP) $(STAMPS)/package $(STAMPS)/group-test $(OPENAPI_VENV)/installed
	env --unset=MAKEFLAGS $(BIN)/python -m pytest \
		--numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(PYTEST_OPTIONS)

# `test` runs it after the others: what it measures wants the machine.
test-verbs-if-built:
	@CARGO='$(CARGO)' PYTHON='$(BIN)/python' $(NICE) bash tools/verbs/test.sh if-built

# What `lint` and `test` need, for a caller that then runs both at once: neither sets up anything any more.
setup: test-packages
	@$(SETUP) $(STAMPS)/package $(STAMPS)/group-lint $(OPENAPI_VENV)/installed

lint-setup:
	@$(SETUP) $(STAMPS)/package $(STAMPS)/group-lint

lint-format: | lint-setup
	$(BIN)/ruff format --check .

lint-ruff: | lint-setup
	$(BIN)/ruff check .

lint-types: | lint-setup
	$(BIN)/mypy --cache-dir .mypy_cache/types --strict $(TYPED)

lint-stubs: | lint-setup
	$(BIN)/python -m mypy.stubtest forebay._core --mypy-config-file pyproject.toml

lint-imports: | lint-setup
	$(BIN)/lint-imports --no-cache

lint-tidy: | lint-setup
	$(BIN)/python -m pytest --quiet tests/tidy

lint-rustfmt:
	$(CARGO) fmt --all --check

lint-clippy:
	$(CARGO) clippy --locked --workspace --all-targets -- --deny warnings

# The fuzz targets compile; they are linked with libFuzzer by cargo-fuzz alone.
lint-fuzz: | lint-clippy
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) clippy $(FUZZ) -- --deny warnings

lint-audit:
	@bash tools/audit.sh

# --- set-up -----------------------------------------------------------------------------------

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Forebay needs CPython 3.11 or later: install it, or make PYTHON=/path/to/python"; exit 1; }
	@echo "==> virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(STAMPS)/group-build: pyproject.toml | $(BIN)/python
	@echo "==> build tools"
	@$(PIP) install --quiet 'pip>=25.1'
	@$(PIP) install --group build
	@mkdir -p $(STAMPS) && touch $@

# The library alone, copied into the package: cargo runs while pip fetches.
$(STAMPS)/extension: $(RUST_SOURCES) Cargo.lock | $(STAMPS)/group-build
	@echo "==> the extension module (cargo)"
	@$(BIN)/maturin develop --release --locked --features $(SQLITE) --skip-install
	@touch $@

# One pip at a time, so the groups wait for each other.
$(STAMPS)/group-demo: pyproject.toml | $(STAMPS)/group-build
$(STAMPS)/group-bench: pyproject.toml | $(STAMPS)/group-demo
$(STAMPS)/group-test: pyproject.toml | $(STAMPS)/group-demo
$(STAMPS)/group-coverage: pyproject.toml | $(STAMPS)/group-test
$(STAMPS)/group-lint: pyproject.toml | $(STAMPS)/group-test
$(STAMPS)/group-picture: pyproject.toml | $(STAMPS)/group-demo
$(STAMPS)/group-%:
	@echo "==> Python packages: $*"
	@$(PIP) install --group $*
	@touch $@

# An environment of their own: three gigabytes that no other test needs.
$(LIBRARIES_VENV)/installed: pyproject.toml | $(BIN)/python
	@echo "==> popular libraries in $(LIBRARIES_VENV)"
	@$(BIN)/python -m venv $(LIBRARIES_VENV)
	@$(LIBRARIES_VENV)/bin/python -m pip --disable-pip-version-check install --quiet 'pip>=25.1'
	@$(LIBRARIES_VENV)/bin/python -m pip --disable-pip-version-check install --group libraries
	@touch $@

# An environment of their own: they bring a hundred packages, and a plugin of pytest.
$(OPENAPI_VENV)/installed: pyproject.toml | $(STAMPS)/group-build
	@echo "==> what reads OpenAPI in $(OPENAPI_VENV)"
	@$(BIN)/python -m venv $(OPENAPI_VENV)
	@$(OPENAPI_VENV)/bin/python -m pip --disable-pip-version-check install --quiet 'pip>=25.1'
	@$(OPENAPI_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --group openapi
	@touch $@

# An environment of their own: tests of ours say what holds without pandas.
$(SUITE_VENV)/installed: pyproject.toml | $(BIN)/python
	@echo "==> what distributed's suite can use in $(SUITE_VENV)"
	@$(BIN)/python -m venv $(SUITE_VENV)
	@$(SUITE_VENV)/bin/python -m pip --disable-pip-version-check install --quiet 'pip>=25.1'
	@$(SUITE_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --group suite
	@touch $@

target/distributed/conftest.py:
	@echo "==> the sources of distributed $(DISTRIBUTED_RELEASE)"
	@rm -rf target/distributed
	@git clone --quiet --depth 1 --branch $(DISTRIBUTED_RELEASE) https://github.com/dask/distributed target/distributed

# The packages' metadata and path files that point at their sources; cargo finds nothing to do.
$(STAMPS)/package: pyproject.toml clients/python/pyproject.toml README.md $(STAMPS)/extension | $(STAMPS)/group-demo
	@echo "==> the package and its client over HTTP, editable"
	@$(BIN)/maturin develop --release --locked --features $(SQLITE)
	@$(PIP) install --quiet --no-build-isolation --editable clients/python
	@touch $@
