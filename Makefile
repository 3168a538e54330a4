# One recipe per thing a person or CI does. Each sets up what it needs, once.
#
#   make demo     measure a device under test on this machine, write a report
#   make test     the tests, Rust and Python
#   make help     the others
#
# PROFILE=quick builds engine and data plane as tests need them: sooner, slower, with assertions.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash
MAKEFLAGS += --no-print-directory

# scripts/setup looks for Rust and Python where the caller has them; recipes use what it chose.
HOST_PATH := $(PATH)
export PATH := $(CURDIR)/.venv/bin:$(CURDIR)/.venv/rust:$(PATH)
export VIRTUAL_ENV := $(CURDIR)/.venv
unexport CONDA_PREFIX PYTHONHOME PYTHONPATH PYTHONDONTWRITEBYTECODE

# While cargo builds one thing, Python packages and those of the system come in.
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += --jobs=2
endif

PROFILE ?= release
# A build on top of an earlier one says nothing of how long one from nothing takes.
BUILT := $(if $(wildcard target/$(PROFILE)),; again)
# Cargo would look for a job server that make keeps from it.
WITHOUT_MAKE := env -u MAKEFLAGS -u MFLAGS
CARGO := $(WITHOUT_MAKE) cargo --locked --quiet

RUST := .venv/rust.stamp
TOOLS := .venv/tools.stamp
ENGINE := python/tailscope/_engine.abi3.so
# What draws the figures of a page: a script of Bokeh, whose Python is not used.
BOKEH := python/tailscope/report/bokeh/bokeh.min.js
# Another profile builds the engine anew: a benchmark must not find the one that tests have left.
PROFILED := .venv/profile-$(PROFILE).stamp
# Folders are listed too, so that a file that goes away is noticed.
ENGINE_SOURCES := Cargo.toml Cargo.lock pyproject.toml \
	$(shell find crates -not -path '*/tests*' -not -path 'crates/dataplane*' -not -path 'crates/dpdk*' -not -path 'crates/messages*' \( -type d -o -name '*.rs' -o -name Cargo.toml \))

# What needs DPDK is left out where there is none; looked at when a recipe runs, after set-up.
INSTRUMENT := tailscope-dpdk-sys tailscope-dpdk tailscope-dataplane
WITHOUT_DPDK = $(shell pkg-config --exists libdpdk 2>/dev/null || printf -- '--exclude %s ' $(INSTRUMENT))

# Stages of packets in the kernel are left out where there is no clang to compile BPF programs, and where
# a path has a space: libbpf is built by a Makefile of its own, which cannot have that.
HAS_SPACE := $(word 2,$(CURDIR))$(word 2,$(or $(CARGO_HOME),$(HOME)))
WITH_STAGES = $(if $(WITHOUT_DPDK)$(HAS_SPACE),,$(shell command -v clang >/dev/null && \
	pkg-config --exists libbpf libelf zlib && printf -- '--features tailscope-dataplane/stages'))

.PHONY: help setup setup-testbed setup-suricata setup-snort setup-vm setup-arm setup-ci packages-testbed packages-ci system \
	dataplane demo test test-rust test-together test-alone test-long test-arm lint lint-rust lint-python lint-text messages \
	fuzz fuzz-corpus wheel image release parts-of-wheel parts-of-image site bench calibration chaos soak batch-effect ceiling docs recording clean

help:
	@sed -n 's/^## //p' Makefile

# --- set-up ------------------------------------------------------------------

## make setup    system packages, Rust, .venv, the engine and the data plane: what the others need
setup: $(ENGINE) dataplane

## make setup-testbed   LXC, podman, QEMU, kernels for guests, Suricata, Open vSwitch, nftables, WireGuard, testpmd, stress-ng, xdp-tools
setup-testbed: setup packages-testbed

## make setup-suricata  only Suricata 7 with DPDK
## make setup-snort     only Snort 3, of SNORT=DIR: the sources snort3 and libdaq, or a tree that was built from them
## make setup-vm        only QEMU and kernels for guests
setup-suricata setup-snort setup-vm: setup-%: $(TOOLS)
	@scripts/setup $* $(if $(filter snort,$*),'$(SNORT)')

## make setup-arm       what builds for AArch64 take, unpacked in .venv: Debian's arm64 libraries and Python, and QEMU
setup-arm: $(TOOLS)
	@scripts/setup arm

## make setup-ci        all of the testbed, and what tests start: an sshd, a browser, PostgreSQL, tshark, iperf3
setup-ci: setup packages-ci

# Beside the compiler, with make -j2.
packages-testbed packages-ci: packages-%: $(TOOLS)
	@scripts/setup $*

## make system   as root: the system packages only, for users who have no sudo
system:
	@scripts/setup system

$(RUST): export PATH := $(HOST_PATH)
$(RUST): scripts/setup
	@scripts/setup
	@touch $@

$(TOOLS): $(RUST) constraints.txt
	@scripts/setup python
	@touch $@

$(PROFILED): | $(TOOLS)
	@rm -f .venv/profile-*.stamp
	@touch $@

$(BOKEH): $(TOOLS)
	@library=$$(python -c 'import importlib.util as u; print(*u.find_spec("bokeh").submodule_search_locations)') && \
		install -D -m 0644 -t $(@D) "$$library"/LICENSE.txt "$$library"/server/static/js/bokeh{,-api}.min.js

$(ENGINE): $(TOOLS) $(PROFILED) $(ENGINE_SOURCES) | $(BOKEH)
	@scripts/step 'building the engine ($(PROFILE)$(BUILT))' \
		$(WITHOUT_MAKE) UV_OFFLINE=1 maturin develop --quiet --locked --profile $(PROFILE) --uv
	@touch $@

# Always asked: cargo knows best what has changed, DPDK's headers included.
dataplane: $(RUST)
	@[[ -n '$(WITHOUT_DPDK)' ]] || { scripts/step 'building the data plane ($(PROFILE)$(BUILT))' \
		$(CARGO) build --profile $(PROFILE) -p tailscope-dataplane $(WITH_STAGES) && \
		install -D -C target/$(PROFILE)/tailscope-dp python/tailscope/bin/tailscope-dp; }

# --- jobs --------------------------------------------------------------------

## make demo     calibrate, measure l2fwd at three rates, and write demo/report.html
demo: $(ENGINE) dataplane
	@rm -rf demo
	tailscope calibrate --duration 4s || [[ $$? -eq 3 ]]
	tailscope run --dut l2fwd --rate 10k --duration 5s --out demo/10k || [[ $$? -eq 3 ]]
	tailscope run --dut l2fwd --rate 100k --duration 5s --out demo/100k || [[ $$? -eq 3 ]]
	tailscope run --dut l2fwd --rate 1M --duration 5s --out demo/1M || [[ $$? -eq 3 ]]
	@echo
	tailscope report demo/10k demo/100k demo/1M --out demo/report.html
	@echo "The report: $(CURDIR)/demo/report.html"

## make test     every test, Rust and Python, but those of make test-long
# Those that run alone come first: what they compile, those that run together need not compile each.
test: $(ENGINE) dataplane
	@failed=(); for part in test-rust test-alone test-together; do \
		SECONDS=0; $(MAKE) $$part || failed+=("$$part"); \
		echo "make test: $$part took $$SECONDS s"; \
	done; [[ $${#failed[@]} -eq 0 ]] || { echo "make test: failed: $${failed[*]}" >&2; exit 1; }

# Engine and data plane at once: what both depend on is built with the same features (crates/features).
test-rust: $(TOOLS)
	$(CARGO) test --profile quick --no-fail-fast --workspace $(WITHOUT_DPDK) $(WITH_STAGES)

# Tests that judge times have the machine for themselves; all others run side by side, more than there
# are CPUs, as a fifth of their time is waiting. In the order of their folders: those that take long, of
# few tests each, would come last otherwise.
test-together: SELECTED := -m 'not alone and not long'
test-together: export OPENBLAS_NUM_THREADS := 1
test-together: $(ENGINE) dataplane
	pytest $(SELECTED) --numprocesses 4 --dist loadfile --no-loadscope-reorder || $(AGAIN)

test-alone: SELECTED := -m 'alone and not long'
test-alone: $(ENGINE) dataplane
	pytest $(SELECTED) || $(AGAIN)

# Others share the machine, and hundreds of tests measure on it: what failed is tried once more, with
# nothing beside it, and fails when it fails again.
AGAIN = { [[ $$? -eq 1 ]] && echo 'make test: what failed, once more' && \
	pytest $(SELECTED) --last-failed --last-failed-no-failures none --maxfail 3; }

## make test-long   what takes minutes: campaigns that are killed, guests of every kernel, pages that measure
test-long: $(ENGINE) dataplane
	pytest -m long

## make test-arm    the Rust tests built for AArch64, and a wheel for it (dist/), run by QEMU: figures must be those of this machine
# The engine is tested in the wheel.
test-arm: setup-arm $(ENGINE)
	scripts/arm $(CARGO) test --profile quick --no-fail-fast --workspace --exclude tailscope-python
	@$(MAKE) wheel ARCH=aarch64
	pytest tests/test_aarch64.py

## make lint     formatting, clippy, shellcheck, ruff, mypy, words, circles of imports, generated types
lint: lint-rust lint-python lint-text

# Clippy 1.85, Debian 13's, objects to more under these two names than later ones do.
lint-rust: CLIPPY_LATER := -A clippy::precedence -A clippy::format_collect
lint-rust: $(TOOLS) .venv/rust/cargo-clippy
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) clippy --profile quick --workspace $(WITHOUT_DPDK) $(WITH_STAGES) --all-targets -- -D warnings $(CLIPPY_LATER)

lint-python: $(TOOLS)
	ruff check
	ruff format --check
	mypy

lint-text: $(TOOLS)
	@scripts/setup have shellcheck:shellcheck
	scripts/shell
	scripts/words
	scripts/circles --types
	scripts/messages --check

.venv/rust/cargo-clippy: | $(TOOLS)
	@scripts/setup lint

## make messages   Python's types of what tailscope-dp says, from the Rust structs in crates/messages
messages: $(TOOLS)
	@$(CARGO) run --profile quick -p tailscope-messages --example schema > target/messages.json
	@mv target/messages.json crates/messages/schema.json
	@scripts/messages

## make docs     docs/reference and docs/pictures from the code, and the Rust crates' documentation in target/doc
docs: $(ENGINE)
	python -m docs.reference
	python -m docs.pictures
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace $(WITHOUT_DPDK) $(WITH_STAGES) --no-deps

## make recording   docs/pictures/session.svg, which README shows: a real session, recorded and drawn anew
recording: $(ENGINE) dataplane .venv/bin/asg .venv/recording/asciinema
	@PYTHONPATH=.venv/recording python -m asciinema rec --quiet --overwrite --cols 80 --rows 36 \
		--command docs/pictures/session.sh target/session.cast
	@asg --font-family 'DejaVu Sans Mono,Menlo,Consolas,monospace' target/session.cast docs/pictures/session.svg >/dev/null

.venv/bin/asg: | $(TOOLS)
	$(CARGO) install --locked --root .venv asg@0.1.2

.venv/recording/asciinema: | $(TOOLS)
	UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1 uv pip install --quiet --no-deps --target .venv/recording asciinema==2.4.0

## make site     the documentation as a site in target/site, with a search; it asks no other server for anything
site: $(TOOLS)
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet
	@echo 'python3 -m http.server --bind 127.0.0.1 --directory target/site 8000'

## make wheel    dist/tailscope-*.whl: for machines without a compiler, without DPDK and without root (ARCH=aarch64: for ARM)
wheel: ACROSS = $(if $(ARCH),scripts/arm)
wheel: parts-of-wheel $(if $(ARCH),setup-arm) $(ENGINE) dataplane
	@[[ '$(or $(ARCH),aarch64)' == aarch64 ]] || { echo 'error: ARCH: got $(ARCH), expected aarch64 or nothing' >&2; exit 1; }
	@python -m docs.manual target/manual
	@[[ -n '$(WITHOUT_DPDK)' ]] || { \
		TAILSCOPE_DPDK=static $(ACROSS) $(CARGO) --config profile.$(PROFILE).strip=true build --profile $(PROFILE) \
			--target-dir target/wheel -p tailscope-dataplane $(if $(ARCH),,$(WITH_STAGES)) && \
		install target/wheel/$(if $(ARCH),$(ARCH)-unknown-linux-gnu/)$(PROFILE)/tailscope-dp python/tailscope/bin/tailscope-dp; }
	@rm -rf target/wheel/built
	@status=0; $(ACROSS) $(WITHOUT_MAKE) maturin build --quiet --locked --profile $(PROFILE) --out target/wheel/built || status=$$?; \
		$(MAKE) dataplane && exit $$status
	@scripts/pack target/wheel/built/*.whl target/manual dist

## make image    dist/tailscope-*-oci.tar: the wheel in an OCI image of Debian packages, for podman or docker
image: parts-of-image wheel
	@scripts/image

## make release  dist/ anew: wheel, sdist, image where podman is, SBOM, notes of the version, checksums (docs/release.md)
release: $(ENGINE)
	@scripts/release notes >/dev/null
	@rm -rf dist
	@if command -v podman >/dev/null; then $(MAKE) image; else \
		$(MAKE) wheel && echo 'make release: no image: podman is not installed' >&2; fi
	@$(WITHOUT_MAKE) maturin sdist --out dist
	@scripts/sbom >dist/tailscope.cdx.json
	@scripts/release notes >dist/RELEASE-NOTES.md
	@scripts/release sums dist
	@ls -l dist

# What is not there is told before anything is built, which takes minutes.
parts-of-wheel parts-of-image: parts-of-%: $(TOOLS)
	@scripts/setup $*

## make fuzz     every fuzz target for 60 seconds (FUZZ_SECONDS=N)
FUZZ_SECONDS ?= 60
fuzz: $(ENGINE) .venv/bin/cargo-fuzz .venv/fuzz/atheris
	PYTHONPATH=.venv/fuzz fuzz/run.sh $(FUZZ_SECONDS)

## make fuzz-corpus   fuzz/corpus anew: the fewest inputs, with those that were found, that reach all that is reached
fuzz-corpus: $(ENGINE) .venv/bin/cargo-fuzz .venv/fuzz/atheris
	PYTHONPATH=.venv/fuzz fuzz/renew.sh

.venv/bin/cargo-fuzz: | $(TOOLS)
	@scripts/setup have c++:g++
	cargo install --quiet --locked --root .venv cargo-fuzz@0.12.0

# Apart from what the project uses: only fuzzing does.
.venv/fuzz/atheris: | $(TOOLS)
	UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1 uv pip install --quiet --no-deps --target .venv/fuzz atheris==3.0.0

## make bench    against PostgreSQL, testpmd (installed if need be), DuckDB, plain hashing, and with PEERS=DIR programs
##               that match packets, built from the archives in DIR: pcap-match.tar.zst, exact-capture.tar.zst
bench: $(ENGINE) dataplane
	@scripts/setup have pg_ctlcluster:postgresql setpriv:util-linux dpdk-testpmd:dpdk-dev
	python -m bench

## make calibration   what models promised and what came: docs/calibration.md (needs the papers' data)
calibration: $(ENGINE)
	python -m docs.calibration

## make chaos    let each file operation of commands fail, attack measurements for an hour (CHAOS_MINUTES=N), and print tables
CHAOS_MINUTES ?= 60
chaos: $(ENGINE) dataplane
	python -m tests.chaos.faults --json target/faults-$$(git describe --always --dirty).jsonl
	python -m tests.chaos --minutes $(CHAOS_MINUTES)

## make soak     measure for 30 minutes without a pause, and see whether anything grows (SOAK_MINUTES=N)
SOAK_MINUTES ?= 30
soak: $(ENGINE) dataplane
	python -m tests.chaos.soak --minutes $(SOAK_MINUTES)

## make batch-effect   bursts against batches (Figure 5 of noms2020): experiments/results/batch-effect.svg
batch-effect: $(ENGINE) dataplane
	python -m experiments.batch_effect --out experiments/results

## make ceiling  packets a second by frame size and flows (docs/performance.md): docs/pictures/ceiling.svg
ceiling: $(ENGINE) dataplane
	python -m experiments.ceiling --out docs/pictures

## make clean    what the recipes made
clean:
	rm -rf .venv target demo fuzz/target python/tailscope/bin $(ENGINE) $(dir $(BOKEH))
