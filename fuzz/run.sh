#!/usr/bin/env bash
# Fuzzes targets for some seconds each, all of them unless some are named: fuzz/run.sh [SECONDS [TARGET...]]
# Starts from fuzz/corpus; what is worth keeping goes to fuzz/found, and what ends wrong to fuzz/artifacts.
# Needs cargo-fuzz, a C++ compiler (libFuzzer is C++), and Atheris for the parsers written in Python.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
wanted=("${@:2}")

# Apart from the loop, where a failure would be taken for no targets.
rust=$(cargo fuzz list --fuzz-dir fuzz)
python=$(python -c 'from fuzz.python.targets import TARGETS; print(*TARGETS)')
options=("-max_total_time=$seconds" -timeout=10 -rss_limit_mb=512 -verbosity=0 -print_final_stats=1)

[[ ${#wanted[@]} -gt 0 ]] || read -rd '' -a wanted <<<"$rust $python" || true

for target in "${wanted[@]}"; do
  echo "fuzzing $target for $seconds s"
  mkdir -p "fuzz/found/$target" "fuzz/artifacts/$target"
  folders=("fuzz/found/$target" "fuzz/corpus/$target")
  if [[ " ${rust//$'\n'/ } " == *" $target "* ]]; then
    # Coverage counters are an unstable option of the compiler: RUSTC_BOOTSTRAP lets a stable one have
    # it. Without a sanitizer, because what is fuzzed is safe Rust, and those need a nightly compiler.
    RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir fuzz --sanitizer none "$target" "${folders[@]}" -- \
      "${options[@]}"
  else
    python -m fuzz.python "$target" "${folders[@]}" "-artifact_prefix=fuzz/artifacts/$target/" \
      "${options[@]}"
  fi
done
