#!/usr/bin/env bash
# What README's recording shows: two commands as a person types them. `make recording` runs it in a terminal.
set -euo pipefail

type_and_run() {
    local word
    printf '\033[1;32m$\033[0m'
    for word in $1; do
        sleep 0.15
        printf ' %s' "$word"
    done
    echo
    sleep 0.4
    $1
    sleep 4
}

cd "$(mktemp -d)"
trap 'rm -rf "$PWD"' EXIT
type_and_run 'tailscope run --dut l2fwd --rate 100k --duration 5s --out first'
printf '\033[2J\033[H'
type_and_run 'tailscope explain first'
