#!/usr/bin/env bash
# Makes fuzz/corpus anew: the fewest of its inputs, and of those in fuzz/found, that reach all that is reached.
# Needs what fuzz/run.sh needs.
set -euo pipefail
cd "$(dirname "$0")/.."

rust=$(cargo fuzz list --fuzz-dir fuzz)
python=$(python -c 'from fuzz.python.targets import TARGETS; print(*TARGETS)')
options=(-merge=1 -set_cover_merge=1 -use_counters=0 -max_len=8192 -timeout=10 -verbosity=0)
cargo run --quiet --manifest-path fuzz/Cargo.toml --example seed
python -m fuzz.python.seeds

for target in $rust $python; do
  mkdir -p "fuzz/found/$target" "fuzz/corpus/$target"
  new=$(mktemp -d "fuzz/found/.$target.XXXXXX")
  folders=("$new" "fuzz/found/$target" "fuzz/corpus/$target")
  if [[ " ${rust//$'\n'/ } " == *" $target "* ]]; then
    RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir fuzz --sanitizer none "$target" "${folders[@]}" -- \
      "${options[@]}"
  else
    python -m fuzz.python "$target" "${folders[@]}" "${options[@]}"
  fi
  rm -r "fuzz/corpus/$target"
  mv "$new" "fuzz/corpus/$target"
  chmod 755 "fuzz/corpus/$target"
done
