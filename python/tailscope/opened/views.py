"""Runs and campaigns as Python and notebooks use them: views of what is on disk.

Tables are Arrow's: ``to_pandas()`` makes a data frame of one, and whatever knows Arrow's C
interface, such as polars and DuckDB, takes it as it is. They need the extra ``arrow``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.exceptions import RunError, UsageError
from tailscope.store import layout, tables
from tailscope.store.campaign import campaign_content, is_campaign
from tailscope.store.files import is_there, refuse_closed
from tailscope.store.reader import arrow_table, open_packets, read_run
from tailscope.store.record import plain
from tailscope.units import counted, printable

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from tailscope.engine.analysis import Figure
    from tailscope.report.campaign.material import CampaignMaterial
    from tailscope.report.formats import Style
    from tailscope.report.material import Material
    from tailscope.report.picture import Picture
    from tailscope.store.records.explanation import Explanation
    from tailscope.store.records.run import RunInfo
    from tailscope.store.run import Run


def open(path: str | os.PathLike[str]) -> OpenedRun | OpenedCampaign:  # noqa: A001
    """Open a run directory or a campaign.

    Every file is compared with its checksum when it is read. Single packets are read when they are
    asked for, and so are the runs of a campaign.

    Parameters
    ----------
    path : path
        A directory that ``tailscope run``, ``tailscope analyze --out`` or ``tailscope runs import``
        has written.

    Returns
    -------
    OpenedRun or OpenedCampaign

    Raises
    ------
    RunError
        If it is neither, or a newer tailscope has written it.
    RunIncompleteError
        If the run was never finished.
    RunCorruptError
        If a file is damaged.
    """
    folder = Path(path)
    refuse_closed(folder)
    if is_campaign(folder):
        return OpenedCampaign(folder)
    if not is_there(folder, layout.RUN):
        raise RunError(
            f"{folder}: neither a run directory nor a campaign: no {layout.RUN} or"
            f" {layout.CAMPAIGN} in it",
            code="not-a-run",
            hint="`tailscope runs list DIR` lists the runs below a folder; `tailscope run` and"
            " `tailscope analyze PRE POST --out RUN` write one",
        )
    return OpenedRun(read_run(folder))


class OpenedRun:
    """A run: in a notebook it shows its tables and the figure of its percentiles.

    Attributes
    ----------
    path : Path
        Its directory.
    info : RunInfo
        The content of ``run.json``.
    summary : Mapping of str to int, float, str, bool or None
        Every figure by its flat name, units in the names (``latency_ns_p999``).
    warnings : tuple of str
        Facts that a reader of the figures must know.
    plot : RunPlots
        The figures of its report: ``run.plot.percentiles()``.
    """

    def __init__(self, run: Run) -> None:
        assert run.path is not None, "it was read"
        self._run = run
        self.path: Path = run.path
        self.info: RunInfo = run.info
        self.summary: Mapping[str, Figure] = run.summary
        self.warnings: tuple[str, ...] = (*run.info.warnings, *run.warnings)
        self.plot = RunPlots(run)

    def latencies(self, *columns: str) -> pa.Table:
        """Read every packet that was matched, in the order in which packets were sent.

        There are as many rows as ``summary["count"]`` says: packets that were lost, late or corrupt
        have no latency. All columns take 41 bytes a packet, and ``latency_ns`` alone 8.

        Parameters
        ----------
        *columns : str
            Those to read; by default all of them: ``seq``, ``pre_ns``, ``latency_ns``,
            ``intended_ns``, ``tainted``, ``instrument_stall_ns``. The last three are null for
            captures.

        Returns
        -------
        pyarrow.Table

        Raises
        ------
        UsageError
            If there is no such column.
        RunError
            If the run was imported, without its single packets.
        RunCorruptError
            If the file is not the one that was written.
        """
        from tailscope.engine.arrow import arrow

        pa, wanted = arrow(), _packet_columns(columns)
        kinds = {each.name: pa.type_for_alias(each.kind) for each in tables.LATENCY.columns}
        schema = pa.schema([(name, kinds[name]) for name in wanted])
        return pa.Table.from_batches(self.latency_batches(*wanted), schema)

    def latency_batches(self, *columns: str) -> Iterator[pa.RecordBatch]:
        """Read the same a piece at a time, in memory that does not grow with the run.

        Parameters
        ----------
        *columns : str
            As of `latencies`, which raises the same errors.

        Yields
        ------
        pyarrow.RecordBatch
            Of at most 32768 rows.
        """
        wanted = _packet_columns(columns)
        with open_packets(self.path, self.info) as packets:
            yield from packets.record_batches(*wanted)

    @property
    def worst(self) -> pa.Table | None:
        """The worst packets, by latency, then by time; None where an import has none.

        A measurement also says what they waited for: ``service_ns``, ``dut_ns``, ``queue_ns``,
        ``instrument_ns`` and ``unexplained_ns`` sum to ``latency_ns``. The table is read each time
        that it is asked for.
        """
        return arrow_table(self._run, tables.WORST, tables.WORST_EXPLAINED)

    @property
    def noise(self) -> pa.Table | None:
        """Interruptions of CPUs, one a row; None if they were not recorded.

        The table is read each time that it is asked for.
        """
        return arrow_table(self._run, tables.NOISE)

    @property
    def stages(self) -> pa.Table | None:
        """Times at which packets passed points of the kernel; None if they were not recorded.

        The table is read each time that it is asked for.
        """
        return arrow_table(self._run, tables.STAGES)

    def explain(self, quantile: float | None = None) -> OpenedTail:
        """Tell what the slowest packets waited for, largest first.

        Parameters
        ----------
        quantile : float, optional
            Packets beyond it are the tail, in [0, 1). By default what was written with the run or
            kept beside it (``tailscope explain --keep``), or else 0.999.

        Raises
        ------
        UsageError
            If `quantile` is no such one.
        RunError
            If nobody has recorded what happened on the machine, as for captures.
        """
        if quantile is not None and not 0 <= quantile < 1:
            raise UsageError(
                f"quantile: got {quantile:g}, expected at least 0 and less than 1", code="quantile"
            )
        written = self._run.explanation
        if written is not None and quantile in (None, written.quantile):
            return OpenedTail(written)
        from tailscope.noise.explanation import TAIL_QUANTILE, explain_tail
        from tailscope.noise.stages import read_stages
        from tailscope.noise.table import read_blocked

        start = TAIL_QUANTILE if quantile is None else quantile
        blocked, stages = read_blocked(self.path, self.info), read_stages(self.path, self.info)
        with open_packets(self.path, self.info) as packets:
            return OpenedTail(explain_tail(packets, packets.latencies(), blocked, start, stages))

    def __repr__(self) -> str:
        from tailscope.words.figures import sentence

        return f"<tailscope.OpenedRun {printable(self._run.label)}: {sentence(self.summary)}>"

    def _repr_html_(self) -> str:
        from tailscope.report.page import run_piece

        drawn = self.plot.percentiles()._repr_html_() if self._run.percentiles else ""
        return run_piece(self._run) + drawn


class OpenedTail:
    """The causes of a run's slowest packets; shown as text, and as a table in a notebook.

    Attributes
    ----------
    record : Explanation
        All that is known: the content of ``explanation.json``.
    """

    def __init__(self, record: Explanation) -> None:
        self.record = record

    @property
    def causes(self) -> pa.Table:
        """Causes, largest first.

        Columns are ``part``, ``cause``, ``packets``, ``total_ns``, ``share`` of the time beyond
        that of a packet that finds the device idle, and ``largest_ns``.
        """
        from tailscope.engine.arrow import arrow

        pa = arrow()
        kinds = {"part": "string", "cause": "string", "share": "double"}
        rows = self.record.causes
        names = ("part", "cause", "packets", "total_ns", "share", "largest_ns")
        return pa.table(
            {
                name: pa.array([getattr(row, name) for row in rows], kinds.get(name, "uint64"))
                for name in names
            }
        )

    def __repr__(self) -> str:
        from tailscope.noise.words import association_lines, trace_lines
        from tailscope.words.figures import cause_rows, explained_text

        lines: list[str] = []
        if self.record.evidence is not None:
            lines.append(explained_text(self.record))
            lines += [
                f"{share:>6}  {what} (packets: {packets}, total: {total}, largest: {largest})"
                for what, share, packets, total, largest in cause_rows(self.record)
            ]
            lines += trace_lines(self.record)
        if self.record.associated is not None:
            lines += association_lines(self.record.associated)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from tailscope.report.page import tail_piece

        return tail_piece(self.record)


class OpenedCampaign(Mapping[str, OpenedRun]):
    """A campaign: its runs by their names, opened when they are asked for.

    In a notebook it shows the matrix of its page. Tables of all runs have the name of the run in
    their first column, ``run``. Runs that cannot be read are left out of them, and `warnings` says
    so.

    Attributes
    ----------
    path : Path
        Its directory.
    name : str
    plot : CampaignPlots
        ``campaign.plot.percentiles()``.
    """

    def __init__(self, path: Path) -> None:
        content = campaign_content(path)
        self.path = path
        self.name = content.name
        self._names = tuple(dict.fromkeys(run for cell in content.cells for run in cell.runs))
        self.plot = CampaignPlots(self)

    def __getitem__(self, name: str) -> OpenedRun:
        if name not in self:
            raise KeyError(name)
        return OpenedRun(read_run(self.path / name, label=name))

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @cached_property
    def _material(self) -> CampaignMaterial:
        """Material of the campaign's page: the figures of all runs, read once."""
        from tailscope.report.campaign.material import read_material

        return read_material(self.path)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Runs that cannot be read, and cells that have none, with the reasons."""
        return tuple(self._material.problems())

    @cached_property
    def summary(self) -> pa.Table:
        """A row for each run, and for each cell without any.

        Columns are ``run``, ``cell``, ``repeat``, ``state``, what varies, and every figure of the
        summary by its flat name. A variable that is called like one of the others is ``vary.NAME``.
        """
        from tailscope.engine.arrow import arrow
        from tailscope.report.campaign.matrix import cells_and_runs

        pa = arrow()
        rows = [*cells_and_runs(self._material)]
        summaries = [
            {} if each is None or each.run is None else each.run.summary for _, each in rows
        ]
        columns: dict[str, list[object]] = {
            "run": [None if each is None else plain(each.name) for _, each in rows],
            "cell": [plain(cell.name) for cell, _ in rows],
            "repeat": [cell.repeat for cell, _ in rows],
            "state": [cell.state for cell, _ in rows],
        }
        figures = dict.fromkeys(name for each in summaries for name in each)
        for name in self._material.content.variables:
            own = f"vary.{name}" if name in columns or name in figures else name
            values = [cell.values.get(name) for cell, _ in rows]
            columns[plain(own)] = [None if value is None else plain(value) for value in values]
        for name in figures:
            columns[name] = [each.get(name) for each in summaries]
        return pa.table(columns)

    def latencies(self, *columns: str) -> pa.Table:
        """Read every packet of all runs, as `OpenedRun.latencies`, which says how large that is.

        To have one run in memory at a time, ask each for its own:
        ``for name, run in campaign.items(): run.latencies()``.

        Parameters
        ----------
        *columns : str
            Those to read; by default all of them.

        Raises
        ------
        UsageError
            If there is no such column.
        RunCorruptError
            If a file is not the one that was written.
        """
        wanted = _packet_columns(columns)
        return self._of_all(lambda run: run.latencies(*wanted))

    @property
    def worst(self) -> pa.Table:
        """The worst packets of each run."""
        return self._of_all(lambda run: run.worst)

    @property
    def noise(self) -> pa.Table:
        """Interruptions of CPUs, of the runs that have recorded them."""
        return self._of_all(lambda run: run.noise)

    def explain(self) -> pa.Table:
        """Tell what the slowest packets of each run waited for, of the runs that have recorded it.

        Returns
        -------
        pyarrow.Table
            `OpenedTail.causes` of each.
        """
        return self._of_all(
            lambda run: None if run._run.explanation is None else run.explain().causes
        )

    def _of_all(self, read: Callable[[OpenedRun], pa.Table | None]) -> pa.Table:
        """Return a table of each run, one below the other."""
        import numpy as np

        from tailscope.engine.arrow import arrow, column

        pa = arrow()
        readings = [reading for group in self._material.combinations for reading in group.readings]
        run_names = dict.fromkeys(each.name for each in readings if each.run is not None)
        names, run_tables = column([*map(plain, run_names)]), []
        for at, name in enumerate(run_names):
            table = read(self[name])
            if table is not None:
                which = column(np.full(len(table), at, np.int32))
                runs = pa.DictionaryArray.from_arrays(which, names)
                run_tables.append(table.add_column(0, "run", runs))
        # Not all of them have the same columns: only measurements say what their worst waited for.
        none = pa.table({"run": pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), names)})
        return pa.concat_tables([none, *run_tables], promote_options="default")

    def _ipython_key_completions_(self) -> list[str]:
        return [*self]

    def __repr__(self) -> str:
        return f"<tailscope.OpenedCampaign {printable(self.name)}: {counted(len(self), 'run')}>"

    def _repr_html_(self) -> str:
        from tailscope.report.campaign.page import campaign_piece

        return campaign_piece(self._material)


class RunPlots:
    """The figures of a run's report, each by its name: ``run.plot.percentiles()``.

    ``dir(run.plot)`` lists them. Each returns a `Drawing`, or raises `UsageError` where the run
    has no data for it.
    """

    if TYPE_CHECKING:
        percentiles: Callable[[], Drawing]

    def __init__(self, run: Run) -> None:
        self._run = run

    def __dir__(self) -> list[str]:
        from tailscope.report.figures import figures

        return sorted(figure.__name__ for figure in figures())

    def __getattr__(self, name: str) -> Callable[[], Drawing]:
        from tailscope.report.figures import figures

        for figure in figures():
            if figure.__name__ == name:
                return partial(self._drawn, figure)
        raise AttributeError(f"no figure {name!r}: expected one of {', '.join(dir(self))}")

    def _drawn(self, figure: Callable[[Sequence[Material]], Picture | None]) -> Drawing:
        from tailscope.report.material import Material

        picture = figure([Material(self._run)])
        if picture is None:
            raise UsageError(
                f"{self._run.label}: {figure.__name__}: the run has no data for it", code="no-data"
            )
        return Drawing(picture.title, picture.note, (picture,))


class CampaignPlots:
    """The figures of a campaign."""

    def __init__(self, campaign: OpenedCampaign) -> None:
        self._campaign = campaign

    def percentiles(self) -> Drawing:
        """Draw latency by percentile, the values of a variable in one figure.

        That is the first variable by which the page of the campaign compares runs; for each value
        of the others there is a figure.

        Raises
        ------
        UsageError
            If no run has data for it.
        """
        from tailscope.report.campaign.figures import families
        from tailscope.report.campaign.files import laid_out, title_of

        for family in families(self._campaign._material):
            if family.pictures[0].x.is_odds:
                columns, style = laid_out(family)
                title = title_of(family)
                return Drawing(title, family.note, family.pictures, columns, style)
        raise UsageError(
            f"{self._campaign.name}: percentiles: no run has data for it", code="no-data"
        )


@dataclass(frozen=True)
class Drawing:
    """Figures as one drawing, which a notebook shows; Matplotlib draws it.

    Attributes
    ----------
    title, note : str
        Title of the drawing, and facts that a reader must know.
    pictures : tuple of Picture
        The data.
    columns : int
        Number of figures side by side.
    style : Style or None
        Style of the figures; None is for a screen.
    """

    title: str
    note: str
    pictures: tuple[Picture, ...]
    columns: int = 1
    style: Style | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as a file; one of that name is replaced.

        Parameters
        ----------
        path : path
            Its end, ``.png``, ``.svg`` or ``.pdf``, says how.

        Raises
        ------
        UsageError
            If it has another end, or Matplotlib is not installed.
        """
        from tailscope.registry import require
        from tailscope.report.formats import FORMATS, SCREEN

        file = Path(path)
        if file.suffix.lower().removeprefix(".") not in FORMATS:
            expected = " or ".join(f".{kind}" for kind in FORMATS)
            raise UsageError(
                f"{file}: expected a name that ends with {expected}", code="figure-format"
            )
        require("plot")
        from tailscope.report.drawing import write_grid

        write_grid(
            [file],
            self.pictures,
            columns=self.columns,
            title=self._heading,
            style=self.style or SCREEN,
        )

    @property
    def _heading(self) -> str:
        """Title above several figures; a single figure has its own."""
        return self.title if len(self.pictures) > 1 else ""

    def __repr__(self) -> str:
        return f"<tailscope.Drawing {printable(self.title)}>"

    def _repr_html_(self) -> str:
        from tailscope.registry import require
        from tailscope.report.formats import SCREEN
        from tailscope.report.page import drawing_piece

        try:
            require("plot")
        except UsageError as lacking:
            return f"<p>{escape(f'{lacking}: {lacking.hint}')}</p>"
        from tailscope.report.drawing import grid_svg

        style = self.style or SCREEN
        svg = grid_svg(self.pictures, columns=self.columns, title=self._heading, style=style)
        return drawing_piece(svg, self.title, self.note)


def _packet_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Check the names of columns of packets; without any, return all."""
    for name in columns:
        if name not in tables.LATENCY.names:
            expected = ", ".join(tables.LATENCY.names)
            raise UsageError(
                f"no column {name!r}: expected some of {expected}", code="no-such-column"
            )
    return tuple(dict.fromkeys(columns)) or tables.LATENCY.names
