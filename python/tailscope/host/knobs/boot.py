"""Kernel boot parameters (limbo2022 Table 1, containers2024 Table 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.host.knobs.knob import Boot, is_intel, is_x86

if TYPE_CHECKING:
    from tailscope.host.knobs.knob import Knob

_CPUS = "/sys/devices/system/cpu"
_LIMBO = "limbo2022 Table 1"
_BOTH = "limbo2022 Table 1, containers2024 Table 2"

KNOBS: tuple[Knob, ...] = (
    Boot(
        name="isolcpus",
        title="CPUs without the scheduler",
        why="the scheduler puts other programs onto the CPUs",
        source=_LIMBO,
        cost="nothing runs on the CPUs unless you place it there by hand",
        risk="threads of one program that share the CPUs are not balanced between them",
        parameter="isolcpus={cpus}",
        taken=f"{_CPUS}/isolated",
    ),
    Boot(
        name="nohz-full",
        title="CPUs without ticks",
        why="the scheduler's tick interrupts a CPU 100 to 1000 times a second",
        source=_LIMBO,
        cost="each system call takes a little longer on the CPUs",
        risk="needs CONFIG_NO_HZ_FULL; ticks stay while more than one thread runs on a CPU",
        parameter="nohz_full={cpus}",
        taken=f"{_CPUS}/nohz_full",
    ),
    Boot(
        name="rcu-nocbs",
        title="CPUs without RCU callbacks",
        why="callbacks of read-copy-update run in interrupts of the CPU that queued them",
        source=_BOTH,
        cost="threads on the other CPUs do the work",
        risk="needs CONFIG_RCU_NOCB_CPU",
        parameter="rcu_nocbs={cpus}",
        implied=f"{_CPUS}/nohz_full",
    ),
    Boot(
        name="rcu-nocb-poll",
        title="RCU threads poll",
        why="a CPU without callbacks has to wake the thread that runs them",
        source=f"{_BOTH} (printed rcu_nocbs_poll)",
        cost="the threads wake up all the time, on the other CPUs",
        parameter="rcu_nocb_poll",
        misspelt="rcu_nocbs_poll",
    ),
    Boot(
        name="irqaffinity",
        title="interrupts on other CPUs, from the start",
        why="devices may interrupt any CPU",
        source=_BOTH,
        cost="the other CPUs serve all devices",
        parameter="irqaffinity={others}",
    ),
    Boot(
        name="idle-poll",
        title="no sleep when idle",
        why="a CPU that sleeps takes microseconds to wake up",
        source=_BOTH,
        cost="full power at all times, on every CPU",
        risk="hot; with SMT the sibling loses half its core",
        parameter="idle=poll",
        needs=is_x86,
    ),
    Boot(
        name="intel-idle-max-cstate",
        title="no Intel idle driver",
        why="its deep states take the longest to wake up from",
        source=_LIMBO,
        cost="power",
        parameter="intel_idle.max_cstate=0",
        needs=is_intel,
    ),
    Boot(
        name="intel-pstate",
        title="no Intel frequency driver",
        why="the CPU stands still while its frequency changes",
        source=_LIMBO,
        cost="power, and perhaps the highest frequencies",
        parameter="intel_pstate=disable",
        needs=is_intel,
    ),
    Boot(
        name="tsc-reliable",
        title="no watchdog of the time-stamp counter",
        why="a timer compares the counter with another clock twice a second",
        source=_BOTH,
        risk="a counter that is wrong is not noticed: for invariant ones only",
        parameter="tsc=reliable",
        needs=is_x86,
    ),
    Boot(
        name="mce-ignore-ce",
        title="no search for corrected errors",
        why="a timer scans every CPU for errors that the hardware has corrected",
        source=_BOTH,
        cost="failing memory is noticed later",
        parameter="mce=ignore_ce",
        needs=is_x86,
    ),
    Boot(
        name="audit",
        title="no audit",
        why="audit records cost time on every CPU that makes system calls",
        source=_BOTH,
        cost="no audit trail",
        parameter="audit=0",
        equal=("audit=off",),
    ),
    Boot(
        name="skew-tick",
        title="ticks of CPUs at different times",
        why="ticks of all CPUs at once wait for the same locks",
        source=_BOTH,
        cost="power",
        parameter="skew_tick=1",
    ),
)
