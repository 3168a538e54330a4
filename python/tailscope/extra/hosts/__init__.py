"""Two hosts: one reflects, the other measures what is between them, and both are watched."""

from __future__ import annotations

from tailscope.registry import AddedCommand, AddedFile, Addition

RECORD = "hosts.json"
"""What both ends of a path counted, beside the run."""
PASSAGES = "passages.parquet"
"""The times of each answer at the four points of its way."""

ADDITION = Addition(
    commands=(
        AddedCommand(
            "reflect",
            "Answer another host that measures the path to this one.",
            measures=True,
            module="reflect_command",
            section="Measuring",
        ),
        AddedCommand(
            "run",
            "Measure the latency of every packet to another host and back.",
            measures=True,
            module="ask_command",
            option="--to",
        ),
    ),
    services={
        "directions": "directions:directions_of",
        "packets_alone": "explain:explain_packets",
        "repeat": "explain:repeat_command",
        "path": "once:measure_path",
    },
    files=(
        AddedFile(
            RECORD,
            "What `tailscope run --to` found of both ends: loss in each direction, time in the"
            " reflector, one-way latencies where clocks allow them, and what kept each end from"
            " running ([index.md](index.md)).",
            "records:HostsRecord",
        ),
        AddedFile(
            PASSAGES,
            "Each answer, in the order in which they came: `seq` and `flow` of its query,"
            " `answer_seq`, the times at which the query left (`sent_ns`) and came"
            " (`received_ns`), and at which the answer left (`answered_ns`) and came"
            " (`arrived_ns`), each by the clock of its host; `ttl` and `dscp` of the query behind"
            " the path; and `exact`, whether the kernel of its host took each of these times.",
        ),
    ),
)
