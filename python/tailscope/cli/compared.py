"""Output of the commands that compare runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope.cli.options import STANDARD, write_json
from tailscope.cli.status import OF_VERDICTS
from tailscope.cli.view import View
from tailscope.exceptions import EvidenceError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tailscope.compare.compare import Comparison
    from tailscope.compare.limits import Judgement, Limit
    from tailscope.verdict.verdict import Outcome


_USUAL = View()


@dataclass(frozen=True)
class Compared:
    """Runs that were compared."""

    found: Sequence[tuple[Comparison, Sequence[Judgement]]]
    """Comparison and judgements of each pair."""
    left_out: Sequence[str]
    """Runs or cells that were not compared, with the reason."""
    limits: Sequence[Limit]
    statements: int
    """Number of intervals that hold together."""

    @property
    def outcome(self) -> Outcome | None:
        """Outcome of all limits; None without any."""
        from tailscope.compare.limits import all_together

        judgements = [judgement for _, judged in self.found for judgement in judged]
        return all_together(judgements, not self.left_out) if self.limits else None

    def tell(
        self,
        command: str,
        json_file: str | None,
        junit_file: Path | None,
        view: View = _USUAL,
    ) -> int:
        """Write files, print what was found, and return the exit status."""
        outcome = self.outcome
        write_json(json_file, self.record())
        if junit_file is not None:
            self._write_junit(junit_file, command)
        if not self.limits:
            self._check()
        if json_file != STANDARD:
            self._print(view)
        return 0 if outcome is None else OF_VERDICTS[outcome]

    def record(self) -> dict[str, object]:
        """Return the comparison as JSON has it."""
        from tailscope.models.estimate import LEVEL

        return {
            "level": LEVEL,
            "statements": self.statements,
            "verdict": None if self.outcome is None else str(self.outcome),
            "comparisons": [
                {**comparison.record(), "limits": [judgement.record() for judgement in judged]}
                for comparison, judged in self.found
            ],
            "left_out": list(self.left_out),
        }

    def _check(self) -> None:
        """See that anything can be said at all."""
        from tailscope.verdict.taken import NO_PACKETS

        comparisons = [comparison for comparison, _ in self.found]
        findings = [finding for each in comparisons for finding in each.findings]
        if not any(
            finding.verdict in ("higher", "lower")
            or (finding.figure.quantile is not None and finding.difference is not None)
            for finding in findings
        ):
            first = findings[0]
            hint = "measure for longer: packets that are delayed together count as few"
            if NO_PACKETS in (first.lacks or ""):
                hint = "`tailscope runs show RUN` says what became of its packets"
            if any(sample.is_foreign for each in comparisons for sample in each.sides.samples):
                hint = (
                    "`tailscope analyze` keeps the order of packets; `tailscope runs show` shows"
                    " quantiles"
                )
            raise EvidenceError(
                f"no quantile can be compared: {first.figure.name}: {first.lacks}",
                code="no-comparable-quantile",
                hint=hint,
            )

    def _write_junit(self, file: Path, command: str) -> None:
        from tailscope.compare.words import judgement_text, title
        from tailscope.store.atomic import write_text
        from tailscope.verdict.junit import Case, Suite, junit
        from tailscope.verdict.verdict import Outcome

        suites = [
            Suite(
                title(comparison),
                [
                    Case(judgement.limit.text, judgement.outcome, judgement_text(judgement))
                    for judgement in judged
                ],
            )
            for comparison, judged in self.found
        ]
        suites += [
            Suite(text, [Case("compared", Outcome.INCONCLUSIVE, "no run")])
            for text in self.left_out
        ]
        limits = " ".join(limit.text for limit in self.limits)
        write_text(file, junit(f"tailscope {command} {limits}", suites))

    def _print(self, view: View) -> None:
        for comparison, judged in self.found:
            _print_comparison(comparison, judged, view)
        for text in self.left_out:
            view.say_named("left out", text)
        if view.verbose:
            view.say(
                f"the intervals of all {self.statements} differences hold together with 95 %"
                " (Bonferroni); bursts are taken into account"
            )


def _print_comparison(comparison: Comparison, judged: Sequence[Judgement], view: View) -> None:
    """Print what differs in a sentence, the table, and what is to be known of it."""
    from tailscope.compare.compare import Verdict
    from tailscope.compare.table import HEADER, lacking, never_came_note, rows
    from tailscope.compare.words import headline, judgement_text, title

    view.say(headline(comparison))
    for judgement in judged:
        text = f"{judgement.limit.text}: {judgement_text(judgement)}"
        view.say_named(judgement.outcome, text)
    print()
    view.say(f"A → B: {title(comparison)}")
    print()
    notes = [note] if (note := never_came_note(comparison)) else []
    view.print_table(HEADER, [rows(comparison)], ("95 % interval",), notes)
    unclear = [each for each in comparison.findings if each.verdict == Verdict.UNCLEAR]
    if unclear and not view.verbose:
        view.say_named("unclear", f"{unclear[0].figure.name}: {unclear[0].lacks}")
    if view.verbose:
        for text in lacking(comparison):
            view.say(text)
        for other in comparison.others:
            view.say(f"differs: {other.name}: {other.baseline} → {other.candidate}")
    elif settings := sum(other.is_setting for other in comparison.others):
        differ = "setting differs" if settings == 1 else "settings differ"
        view.say_named("note", f"{settings} {differ}, too (-v lists)")
    for warning in comparison.warnings:
        view.say_named("warning", warning)
    print()
