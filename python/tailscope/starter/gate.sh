#!/usr/bin/env bash
# Measures an experiment, and judges it: gate.sh EXPERIMENT OUT
#
#   SLO        service level, such as 'p99<1ms, loss<1e-4'; empty judges by the baseline alone
#   AS_IT_IS   true judges the device with the other programs on its CPU
#   BASELINE   what `tailscope baseline save` wrote of the state to compare with, if that is there
#   FAIL_ON    how much worse than it runs may be: limits, separated by commas
#
# OUT has the runs, report.html, baseline.json (of these runs), verdicts.xml and comparison.xml (JUnit).
# Exit status: 0 pass, 1 could not be measured, 2 fail, 3 not enough evidence.
set -uo pipefail

experiment=${1:?expected an experiment}
out=${2:?expected a folder for results}
slo=${SLO:-} as_it_is=${AS_IT_IS:-} baseline=${BASELINE:-}
IFS=, read -r -a limits <<<"${FAIL_ON:-p99>+10%,lost>+0.1%}"

format=text
[[ ${GITHUB_ACTIONS:-} != true ]] || format=github
worst=0

# judge COMMAND...: of several verdicts the worst is what counts: 1, then 2, then 3.
judge() {
    "$@"
    local status=$?
    ((status == 0)) || { ((worst != 0 && worst < status)) || worst=$status; }
}

mkdir -p "$out"
tailscope run "$experiment" --out "$out/runs" || exit
judge tailscope report "$out/runs" --out "$out/report.html"
judge tailscope baseline save "$out/runs" --out "$out/baseline.json"
if [[ -n "$slo" ]]; then
    options=(--slo "$slo" --format "$format" --junit "$out/verdicts.xml")
    [[ "$as_it_is" != true ]] || options+=(--as-it-is)
    judge tailscope verify "$out/runs" "${options[@]}"
fi
if [[ -n "$baseline" && -f "$baseline" ]]; then
    judge tailscope baseline compare "$baseline" "$out/runs" "${limits[@]/#/--fail-on=}" \
        --junit "$out/comparison.xml"
elif [[ -n "$baseline" ]]; then
    echo "gate: no $baseline yet: keep $out/baseline.json as that of the state to compare with" >&2
fi
exit "$worst"
