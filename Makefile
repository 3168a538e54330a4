# One recipe per thing a person or CI does. Each sets up what it needs, once.
#
#   make demo     measure a device under test on this machine, write a report
#   make test     every test, Rust and Python
#   make help     the others

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash
MAKEFLAGS += --no-print-directory

# scripts/setup looks for Rust and Python where the caller has them; recipes use what it chose.
HOST_PATH := $(PATH)
export PATH := $(CURDIR)/.venv/bin:$(CURDIR)/.venv/rust:$(PATH)
export VIRTUAL_ENV := $(CURDIR)/.venv
unexport CONDA_PREFIX PYTHONHOME PYTHONPATH

TOOLS := .venv/tools.stamp
ENGINE := python/tailscope/_engine.abi3.so
# Folders are listed too, so that a file that goes away is noticed.
ENGINE_SOURCES := Cargo.toml Cargo.lock pyproject.toml \
	$(shell find crates -not -path '*/tests*' -not -path 'crates/dataplane*' -not -path 'crates/dpdk*' \( -type d -o -name '*.rs' -o -name Cargo.toml \))

# What needs DPDK is left out where there is none; looked at when a recipe runs, after set-up.
WITHOUT_DPDK = $(shell pkg-config --exists libdpdk 2>/dev/null || \
	printf -- '--exclude %s ' tailscope-dpdk-sys tailscope-dpdk tailscope-dataplane)

.PHONY: help setup setup-testbed setup-suricata setup-vm setup-ci system dataplane demo test test-rust test-python lint fuzz bench batch-effect docs clean

help:
	@sed -n 's/^## //p' Makefile

# --- set-up ------------------------------------------------------------------

## make setup    system packages, Rust, .venv, the engine and the data plane: what the others need
setup: $(ENGINE) dataplane

## make setup-testbed   LXC, QEMU, kernels for guests, Suricata, stress-ng, xdp-tools
setup-testbed: setup
	@scripts/setup testbed

## make setup-suricata  only Suricata 7 with DPDK
## make setup-vm        only QEMU and kernels for guests
setup-suricata setup-vm: setup-%: $(TOOLS)
	@scripts/setup $*

## make setup-ci        all of the testbed, and what tests start: an sshd, a browser, PostgreSQL
setup-ci: setup
	@scripts/setup ci

## make system   as root: the system packages only, for users who have no sudo
system:
	@scripts/setup system

$(TOOLS): export PATH := $(HOST_PATH)
$(TOOLS): scripts/setup constraints.txt
	@scripts/setup
	@touch $@

$(ENGINE): $(TOOLS) $(ENGINE_SOURCES)
	@echo 'setup: building the engine, about a minute from nothing' >&2
	@UV_OFFLINE=1 maturin develop --quiet --locked --release --uv
	@touch $@

# Always asked: cargo knows best what has changed, DPDK's headers included.
dataplane: $(TOOLS)
	@[[ -n '$(WITHOUT_DPDK)' ]] || { cargo build --quiet --locked --release -p tailscope-dataplane && \
		install -D -C target/release/tailscope-dp python/tailscope/bin/tailscope-dp; }

# --- jobs --------------------------------------------------------------------

## make demo     calibrate, measure l2fwd at three rates, and write demo/report.html
demo: $(ENGINE) dataplane
	@rm -rf demo
	tailscope calibrate --duration 4s
	tailscope run --dut l2fwd --rate 10k --duration 5s --out demo/10k
	tailscope run --dut l2fwd --rate 100k --duration 5s --out demo/100k
	tailscope run --dut l2fwd --rate 1M --duration 5s --out demo/1M
	@echo
	tailscope report demo/10k demo/100k demo/1M --out demo/report.html
	@echo "The report: $(CURDIR)/demo/report.html"

## make test     every test, Rust and Python
test: test-rust test-python

# The binding crate has no Rust tests: pytest tests it from Python.
test-rust: $(TOOLS)
	cargo test --locked --quiet --workspace --exclude tailscope-python $(WITHOUT_DPDK)

# What measures needs the machine for itself; all else runs side by side.
test-python: $(ENGINE) dataplane
	pytest -m 'not alone' --numprocesses 2 --dist loadfile
	pytest -m alone

## make lint     formatting, clippy, ruff, mypy and words
# Clippy 1.85, Debian 13's, objects to more under these two names than later ones do.
lint: CLIPPY_LATER := -A clippy::precedence -A clippy::format_collect
lint: $(TOOLS) .venv/rust/cargo-clippy
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --locked --quiet --workspace $(WITHOUT_DPDK) --all-targets -- -D warnings $(CLIPPY_LATER)
	ruff check
	ruff format --check
	mypy
	scripts/words

.venv/rust/cargo-clippy: | $(TOOLS)
	@scripts/setup lint

## make docs     docs/reference from the code, and the Rust crates' documentation in target/doc
docs: $(ENGINE)
	python -m docs.reference
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --quiet --workspace $(WITHOUT_DPDK) --no-deps

## make fuzz     every fuzz target for 60 seconds (FUZZ_SECONDS=N)
FUZZ_SECONDS ?= 60
fuzz: $(TOOLS) .venv/bin/cargo-fuzz
	fuzz/run.sh $(FUZZ_SECONDS)

.venv/bin/cargo-fuzz: | $(TOOLS)
	@scripts/setup have c++:g++
	cargo install --quiet --locked --root .venv cargo-fuzz@0.12.0

## make bench    against PostgreSQL, testpmd (installed if need be), DuckDB and plain hashing
bench: $(ENGINE) dataplane
	@scripts/setup have pg_ctlcluster:postgresql setpriv:util-linux dpdk-testpmd:dpdk-dev
	python -m bench

## make batch-effect   bursts against batches of l2fwd: experiments/results/batch-effect.svg
batch-effect: $(ENGINE) dataplane
	python -m experiments.batch_effect --out experiments/results

## make clean    what the recipes made
clean:
	rm -rf .venv target demo fuzz/target python/tailscope/bin $(ENGINE)
