#!/usr/bin/env bash
# Measures an experiment, and judges it: gate.sh [EXPERIMENT [OUT]]
#
#   EXPERIMENT   runs must meet its service_levels; experiment.yaml beside this script by default
#   OUT          folder for results; tail-latency-results by default
#   SLO          service level in place of those of the experiment, such as 'p99<1ms, loss<1e-4'
#   AS_IT_IS     true judges the device with the other programs on its CPU
#   BASELINE     what `tailscope compare save` wrote of the state to compare with; compared if it is there;
#                baseline.json beside the experiment by default
#   FAIL_ON      how much worse than it runs may be: limits, separated by commas or lines
#
# OUT has the runs, report.html, baseline.json (of these runs), verdicts.xml and comparison.xml (JUnit). What an earlier
# gate left there is kept beside it, as OUT-TIME. By sudo, OUT is given to the user who called it.
# Exit status: 0 pass, 1 could not be measured, 2 fail, 3 not enough evidence.
set -uo pipefail

experiment=${1:-$(dirname "${BASH_SOURCE[0]}")/experiment.yaml}
out=${2:-tail-latency-results}
slo=${SLO:-} as_it_is=${AS_IT_IS:-}
baseline=${BASELINE:-$(dirname "$experiment")/baseline.json}
fail_on=${FAIL_ON:-p99>+10%,lost>+0.1%}
IFS=, read -r -a limits <<<"${fail_on//$'\n'/,}"

format=text
[[ ${GITHUB_ACTIONS:-} != true ]] || format=github
worst=0

# judge COMMAND...: of several verdicts the worst is what counts: 1, then 2, then 3.
judge() {
    "$@"
    local status=$?
    ((status == 0)) || { ((worst != 0 && worst < status)) || worst=$status; }
}

plan=$(tailscope run "$experiment" --dry-run --json -) || exit
has_level=true
[[ -n "$slo" || "$plan" != *'"service_levels": []'* ]] || has_level=false
if ! "$has_level" && [[ ! -f "$baseline" ]]; then
    echo "error: $experiment: got no service_levels, and there is no $baseline: nothing to judge runs by" >&2
    echo 'hint: add a line such as service_levels: ["p99<1ms", "loss<1e-3"] to the experiment' >&2
    exit 1
fi

if [[ "$(realpath -m -- "$baseline")" == "$(realpath -m -- "$out")"/* ]]; then
    echo "error: $baseline: it lies in $out, which each gate writes anew: runs would be compared with themselves" >&2
    echo 'hint: keep it beside the experiment, or name another with BASELINE' >&2
    exit 1
fi
if [[ -e "$out/runs" ]]; then
    earlier=${out%/}-$(date -u -r "$out/runs" +%Y%m%dT%H%M%SZ)
    mv -T -- "$out" "$earlier" || exit
    echo "gate: results of an earlier gate are in $earlier now" >&2
fi
mkdir -p "$out" || exit
# hand_over: gives what a gate under sudo made to who called it, as what uploads it is not root.
# shellcheck disable=SC2317 # The trap calls it.
hand_over() {
    local made
    chown -h -- "$SUDO_UID:$SUDO_GID" "$out"
    for made in runs report.html baseline.json verdicts.xml comparison.xml; do
        [[ ! -e "$out/$made" ]] || chown -hR -- "$SUDO_UID:$SUDO_GID" "$out/$made"
    done
}
if [[ $EUID == 0 && -n ${SUDO_UID:-} && -n ${SUDO_GID:-} ]]; then
    trap hand_over EXIT
fi
tailscope run "$experiment" --out "$out/runs" || exit
judge tailscope report "$out/runs" --out "$out/report.html"
# Of several combinations of values there is no baseline: what was asked for is judged all the same.
keep=(tailscope compare save "$out/runs" --out "$out/baseline.json")
if [[ -f "$baseline" ]] || ! "$has_level"; then
    judge "${keep[@]}"
else
    "${keep[@]}" || echo "gate: there is no baseline.json of these runs" >&2
fi
if "$has_level"; then
    options=(--format "$format" --junit "$out/verdicts.xml")
    [[ -z "$slo" ]] || options+=(--slo "$slo")
    [[ "$as_it_is" != true ]] || options+=(--as-it-is)
    judge tailscope verify "$out/runs" "${options[@]}"
fi
if [[ -f "$baseline" ]]; then
    judge tailscope compare baseline "$baseline" "$out/runs" "${limits[@]/#/--fail-on=}" \
        --junit "$out/comparison.xml"
elif [[ -f "$out/baseline.json" ]]; then
    next="keep the baseline.json of a gate that passes"
    ((worst != 0)) || next="keep $out/baseline.json as that of the state to compare with"
    echo "gate: no $baseline yet: $next" >&2
fi
exit "$worst"
