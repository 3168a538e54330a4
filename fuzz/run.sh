#!/usr/bin/env bash
# Seeds the corpus, then fuzzes every target for some seconds each: fuzz/run.sh [SECONDS]
# Needs cargo-fuzz and a C++ compiler (libFuzzer is C++).
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}

# Apart from the loop, where a failure would be taken for no targets.
targets=$(cargo fuzz list --fuzz-dir fuzz)
cargo run --quiet --manifest-path fuzz/Cargo.toml --example seed

# Coverage counters are an unstable option of the compiler: RUSTC_BOOTSTRAP lets a stable one have
# it. Without a sanitizer, because what is fuzzed is safe Rust, and those need a nightly compiler.
for target in $targets; do
  echo "fuzzing $target for $seconds s"
  RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir fuzz --sanitizer none "$target" -- \
    -max_total_time="$seconds" -verbosity=0 -print_final_stats=1
done
