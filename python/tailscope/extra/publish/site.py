"""A campaign as a static site: pages, data, plan, environment, figures, and how to repeat it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, convert, structs

from tailscope.exceptions import RunCorruptError, RunError, RunExistsError
from tailscope.extra.publish.neutral import Review, neutral, neutral_text
from tailscope.extra.publish.records import (
    PUBLICATION_FORMAT,
    EnvironmentRecord,
    EnvironmentsRecord,
    PublicationRecord,
    PublishedCampaign,
)
from tailscope.report.campaign.material import CampaignMaterial, read_material
from tailscope.store import layout
from tailscope.store.atomic import replacing, replacing_folder, write_bytes, write_text
from tailscope.store.files import is_there
from tailscope.store.info import shown_as
from tailscope.store.kept import Conclusions, kept_files, with_origin
from tailscope.store.notes import Remarks
from tailscope.store.reader import read_explanation, read_run, verified
from tailscope.store.records.base import as_content, encode, read_record
from tailscope.store.records.run import FileEntry
from tailscope.store.records.summary import Summary
from tailscope.units import count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tailscope.store.campaign import CampaignContent
    from tailscope.store.records.campaign import CampaignRecord
    from tailscope.store.run import Run

    Progress = Callable[[int, int], None]

Kind = TypeVar("Kind", bound=Struct)

INDEX = "index.html"
MARK = "publication.json"
CHECKSUMS = "SHA256SUMS"
EXPERIMENT = "experiment.yaml"
ENVIRONMENT = "environment.json"
FIGURES = "figures"
RUNS = "runs"

PACKETS_UP_TO_BYTES = 100 * 1024 * 1024
"""Single packets are published up to this size of all of them, unless it is said otherwise."""

_FORMATS = ("svg", "pdf")
_STYLE = "screen"
_MADE = (INDEX, MARK, CHECKSUMS, EXPERIMENT, ENVIRONMENT, layout.CAMPAIGN)
_COPIED = (
    *(layout.PERCENTILES, layout.HISTOGRAM, layout.HLOG, layout.GAPS, layout.RATE, layout.WORST),
    *(layout.LATENCY, layout.NOISE, layout.NEIGHBOURS, layout.STAGES),
    *(layout.INTERRUPTS, layout.POWER),
)
_REWRITTEN = (layout.SUMMARY, layout.EXPLANATION)
_ODD_IN_NAMES = r"[^A-Za-z0-9=,.+-]"
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Publication:
    """A plan of what to publish."""

    material: CampaignMaterial
    folders: Mapping[str, str]
    """Folder of each readable run in the site."""
    copied: Mapping[str, tuple[str, ...]]
    """Files of each run that are copied unchanged."""
    left_out: Mapping[str, int]
    """Files that are not published, with their sizes."""

    def files(self) -> Iterator[tuple[str, int | None]]:
        """Each file, and its size; None for what is yet to be made."""
        for name in _MADE:
            yield name, None
        yield f"{FIGURES}/", None
        for name, run in _runs(self.material):
            folder = self.folders[name]
            for made in (layout.REPORT, layout.RUN):
                yield f"{folder}/{made}", None
            for made in dict.fromkeys((*_REWRITTEN, *kept_files())):
                if made in run.info.files or made in run.kept:
                    yield f"{folder}/{made}", (_folder(run) / made).stat().st_size
            for copied in self.copied[name]:
                yield f"{folder}/{copied}", run.info.files[copied].size_bytes


def plan_site(campaign: Path, *, packets: bool | None = None) -> Publication:
    """Say what will be published."""
    if not (campaign / layout.CAMPAIGN).exists():
        found = f"a folder without {layout.CAMPAIGN}" if campaign.is_dir() else "no such folder"
        raise RunError(
            f"{campaign}: expected a campaign, got {found}",
            code="not-a-campaign",
            hint="`tailscope report RUN` makes a page of a single run",
        )
    material = read_material(campaign)
    sizes = {name: _sizes(run) for name, run in _runs(material)}
    single = {
        f"{name}/{file}": size
        for name, files in sizes.items()
        for file, size in files.items()
        if _is_packets(file)
    }
    if packets is None:
        packets = sum(single.values()) <= PACKETS_UP_TO_BYTES
    copied = {
        name: tuple(file for file in files if packets or not _is_packets(file))
        for name, files in sizes.items()
    }
    return Publication(
        material, _folders(material.content, sizes), copied, {} if packets else single
    )


def unread(plan: Publication) -> Iterator[str]:
    """Name what is in the campaign and is not published, because it cannot be used."""
    yield from (name for name, _ in _problems(plan.material))
    for name, run in _runs(plan.material):
        for file in kept_files():
            is_read = file in run.info.files or file in run.kept
            if not is_read and is_there(_folder(run), file):
                yield f"{name}/{file}"


def review_site(plan: Publication) -> Review:
    """Say what is taken out of the records that are published, and what looks odd in the rest."""
    found = Review()
    for file, record in _records(plan.material):
        neutral(as_content(record), review=found, where=file)
    for _, problem in _problems(plan.material):
        neutral(problem, review=found, where=layout.CAMPAIGN)
    return found


def _records(material: CampaignMaterial) -> Iterator[tuple[str, Struct]]:
    """All records that are published."""
    yield layout.CAMPAIGN, material.content.record
    for _, run in _runs(material):
        source = _folder(run)
        explained = read_explanation(source, run.info)
        yield layout.RUN, run.info
        yield from _rewritten(source, replace(run, explanation=explained))
        yield from run.kept.items()


def write_site(plan: Publication, out: Path, progress: Progress | None = None) -> None:
    """Write a site as a whole, or nothing."""
    out = out.resolve()
    check_place(plan, out)
    with replacing_folder(out) as site:
        _fill(plan, site, progress)
        # Filling takes a while, in which others may have written there.
        check_place(plan, out)


def check_place(plan: Publication, out: Path) -> None:
    """See that nothing but an earlier publication of this campaign is replaced."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    try:
        content = (out / MARK).read_bytes()
        mark = read_record(content, PublicationRecord, out / MARK, newest=PUBLICATION_FORMAT)
    except (OSError, RunError):
        raise RunExistsError(
            f"{out}: expected an empty directory or an earlier publication, got neither",
            code="not-empty",
            hint="choose another directory",
        ) from None
    ours = _identity(plan.material.content)
    if mark.campaign != ours:
        raise RunExistsError(
            f"{out / MARK}: campaign: expected {as_content(ours)}, got {as_content(mark.campaign)}",
            code="other-campaign",
            hint="choose another directory",
        )
    there = {
        str(path.relative_to(out))
        for path in out.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }
    foreign = sorted(there - {*mark.files, CHECKSUMS, MARK})
    if foreign:
        raise RunExistsError(
            f"{out / foreign[0]}: it would be lost: an earlier publication did not write it",
            code="foreign-file",
            hint="move it away, or choose another directory",
        )


def _fill(plan: Publication, site: Path, progress: Progress | None) -> None:
    from tailscope.report.campaign.files import write_families
    from tailscope.report.campaign.page import campaign_page
    from tailscope.report.page import address_of

    record = _neutral_campaign(plan)
    write_text(site / layout.CAMPAIGN, encode(record))
    write_text(site / EXPERIMENT, _experiment(record))
    runs = [*_runs(plan.material)]
    for number, (name, run) in enumerate(runs):
        if progress is not None:
            progress(number, len(runs))
        _write_run(plan, name, run, site / plan.folders[name])
    if progress is not None:
        progress(len(runs), len(runs))
    # The site is a campaign itself: what it shows is what it holds.
    material = read_material(site)
    for name, problem in _problems(material):
        raise RunError(
            f"{name}: published, and not to be read again: {problem}",
            code="not-published",
            hint="repeat the command when the cause is gone",
        )
    write_text(site / ENVIRONMENT, encode(_environments(material)))
    write_families(material, site / FIGURES, _FORMATS, _STYLE)
    drawn = [f"{FIGURES}/{path.name}" for path in sorted((site / FIGURES).iterdir())]
    page = campaign_page(
        material,
        lambda name: address_of(f"{name}/{layout.REPORT}"),
        links={
            name: address_of(name)
            for name in (EXPERIMENT, ENVIRONMENT, layout.CAMPAIGN, CHECKSUMS, *drawn)
        },
        repeat=[f"# tailscope {record.tailscope_version}", *_commands(material)],
        left_out=_left_out(plan),
    )
    write_text(site / INDEX, page)
    written = sorted(str(path.relative_to(site)) for path in site.rglob("*") if path.is_file())
    mark = PublicationRecord(
        campaign=_identity(plan.material.content),
        files=tuple(written),
        left_out={
            f"{plan.folders[run]}/{file}": size
            for run in plan.folders
            for file, size in _sizes_left_out(plan, run)
        },
    )
    write_text(site / MARK, encode(mark))
    sums = (f"{_checksum(site / name)}  {name}\n" for name in [*written, MARK])
    write_text(site / CHECKSUMS, "".join(sums))


def _write_run(plan: Publication, name: str, run: Run, folder: Path) -> None:
    """Publish a run: what is private is taken out of its records, and their checksums follow."""
    from tailscope.report.page import address_of, page

    source = _folder(run)
    whole = read_run(source, label=name)
    if lacking := run.kept.keys() - whole.kept.keys():
        raise RunError(
            f"{source / min(lacking)}: it cannot be read any more",
            code="not-published",
            hint="repeat the command when the cause is gone",
        )
    listed, files = whole.info.files, {}
    for copied in plan.copied[name]:
        _copy(source / copied, folder / copied, listed[copied].sha256)
        files[copied] = listed[copied]
    for made, record in _rewritten(source, whole):
        content = encode(_neutral(record)).encode()
        write_bytes(_parent(folder / made), content)
        files[made] = _entry(content)
    for made, conclusion in whole.kept.items():
        assert conclusion.kept is not None, "it was kept"
        figures = files[layout.SUMMARY].sha256
        origin = structs.replace(_neutral(conclusion.kept), summary_sha256=figures)
        plain = structs.replace(_neutral(conclusion), kept=None)
        write_text(folder / made, encode(with_origin(plain, origin)))
    kept = Conclusions({made: _neutral(each) for made, each in whole.kept.items()})
    here = [*files, *whole.kept, layout.RUN]
    up = "../" * (len(PurePath(plan.folders[name]).parts))
    # Its tables are still those of the campaign, packets that are not published among them.
    info = structs.replace(_neutral(whole.info), files=listed)
    shown = replace(
        whole,
        label=shown_as(PurePath(plan.folders[name]).name, info),
        info=info,
        warnings=tuple(map(neutral_text, whole.warnings)),
        explanation=None if whole.explanation is None else _neutral(whole.explanation),
        kept=kept,
        remarks=Remarks(),
    )
    text = page(
        [shown],
        links={"the campaign": f"{up}{INDEX}", **{each: address_of(each) for each in here}},
    )
    write_text(folder / layout.REPORT, text)
    left_out = tuple(file for file, _ in _sizes_left_out(plan, name))
    write_text(folder / layout.RUN, encode(structs.replace(info, files=files, left_out=left_out)))


def _rewritten(source: Path, run: Run) -> Iterator[tuple[str, Struct]]:
    """Files of a run that may hold what is private, as records."""
    file = source / layout.SUMMARY
    yield (
        layout.SUMMARY,
        read_record(
            verified(source, run.info, layout.SUMMARY),
            Summary,
            file,
            newest=layout.SUMMARY_FORMAT,
        ),
    )
    if run.explanation is not None and layout.EXPLANATION in run.info.files:
        yield layout.EXPLANATION, run.explanation


def _neutral(record: Kind) -> Kind:
    """A record without what is private to a machine."""
    return convert(neutral(as_content(record)), type(record))


def _runs(material: CampaignMaterial) -> Iterator[tuple[str, Run]]:
    seen = set()
    for combination in material.combinations:
        for reading in combination.readings:
            if reading.run is not None and reading.name not in seen:
                seen.add(reading.name)
                yield reading.name, reading.run


def _problems(material: CampaignMaterial) -> Iterator[tuple[str, str]]:
    """Runs that cannot be read, and why."""
    for combination in material.combinations:
        for reading in combination.readings:
            if reading.problem is not None:
                yield reading.name, reading.problem


def _folder(run: Run) -> Path:
    assert run.path is not None, "it was read"
    return run.path


def _sizes(run: Run) -> dict[str, int]:
    """Files of a run that are taken as they are."""
    found = {}
    for name, written in run.info.files.items():
        path = PurePath(name)
        is_capture = len(path.parts) == 2 and path.parts[0] == layout.CAPTURES
        if path.is_absolute() or ".." in path.parts or not name.isprintable():
            raise RunCorruptError(
                f"{_folder(run) / layout.RUN}: files: expected names within the run, got {name!r}",
                code="file-outside-run",
            )
        if name in _COPIED or is_capture:
            found[name] = written.size_bytes
    return found


def _is_packets(name: str) -> bool:
    return name == layout.LATENCY or name.startswith(f"{layout.CAPTURES}/")


def _sizes_left_out(plan: Publication, run: str) -> Iterator[tuple[str, int]]:
    for path, size in plan.left_out.items():
        folder, _, file = path.partition(f"{run}/")
        if not folder and file:
            yield file, size


def _folders(content: CampaignContent, names: Iterable[str]) -> dict[str, str]:
    """Return the folders of runs, with names that every server takes."""
    found: dict[str, str] = {}
    for name in names:
        known = _neutral_name(content, name)
        # Some servers hide what begins with a dot.
        parts = [re.sub(rf"^\.|{_ODD_IN_NAMES}", "_", part) for part in PurePath(known).parts]
        folder = "/".join([RUNS, *parts])
        while folder in found.values():
            folder += "_"
        found[name] = folder
    return found


def _neutral_name(content: CampaignContent, name: str) -> str:
    """The name of a cell or of its run, in which paths may stand as values."""
    for value in {value for values in content.variables.values() for value in values}:
        shown = neutral_text(value)
        if shown != value:
            written = re.sub(_ODD_IN_NAMES, "_", value)
            name = name.replace(written, re.sub(_ODD_IN_NAMES, "_", shown).strip("_"))
    return name


def _neutral_campaign(plan: Publication) -> CampaignRecord:
    """``campaign.json`` of the site: it can be read as that of a campaign."""
    content = plan.material.content
    record = _neutral(content.record)
    problems = dict(_problems(plan.material))
    cells = []
    for cell, original in zip(record.cells, content.cells, strict=True):
        bad = [problems[name] for name in original.runs if name in problems]
        cells.append(
            structs.replace(
                cell,
                name=_neutral_name(content, original.name),
                runs=tuple(plan.folders[name] for name in original.runs if name in plan.folders),
                state="unreadable" if bad else cell.state,
                reason=neutral_text("; ".join(bad)) if bad else cell.reason,
            )
        )
    return structs.replace(record, name=neutral_text(content.name), cells=tuple(cells))


def _experiment(record: CampaignRecord) -> str:
    import yaml

    plan = {} if record.experiment is None else as_content(record.experiment)
    known = {name: value for name, value in plan.items() if value is not None}
    about = {"about": record.about} if record.about else {}
    in_order = {"name": known.get("name"), **about, **known}
    text: str = yaml.safe_dump(in_order, sort_keys=False, allow_unicode=True)
    return text


def _commands(material: CampaignMaterial) -> list[str]:
    run = f"tailscope run {EXPERIMENT} --out again"
    waits = any(cell.state == "waiting" for cell in material.content.cells)
    kernels = "kernel" in material.varied or "boot" in material.varied or waits
    more = [f"{run} --resume    # after each kernel that has to be booted"] if kernels else []
    return [f"{run} --dry-run    # what it takes, and what is missing", run, *more]


def _environments(material: CampaignMaterial) -> EnvironmentsRecord:
    """Machines, knobs and versions, each with the runs that have it."""
    found: list[EnvironmentRecord] = []
    for name, run in _runs(material):
        info = run.info
        about = _neutral(
            EnvironmentRecord(
                host=info.host,
                hosts=info.hosts or {},
                knobs=info.knobs or {},
                tailscope_version=info.tailscope_version,
                python_version=info.python_version,
                device_version=None if info.dut is None else info.dut.version,
                runs=(),
            )
        )
        at = next(
            (at for at, each in enumerate(found) if structs.replace(each, runs=()) == about),
            len(found),
        )
        known = found[at].runs if at < len(found) else ()
        found[at : at + 1] = [structs.replace(about, runs=(*known, name))]
    return EnvironmentsRecord(environments=tuple(found))


def _left_out(plan: Publication) -> str:
    if not plan.left_out:
        return ""
    megabytes = sum(plan.left_out.values()) / 1e6
    return (
        f"Single packets are left out ({count_text(len(plan.left_out))} files,"
        f" {megabytes:,.1f} MB): all figures of the pages were made with them."
    )


def _identity(content: CampaignContent) -> PublishedCampaign:
    return PublishedCampaign(
        name=neutral_text(content.name), started_unix_ns=content.record.started_unix_ns
    )


def _copy(source: Path, target: Path, expected: str) -> None:
    """Copy a file that is the one that was written."""
    digest = hashlib.sha256()
    with source.open("rb") as old, replacing(_parent(target)) as new:
        while block := old.read(_BLOCK_BYTES):
            digest.update(block)
            new.write(block)
    if digest.hexdigest() != expected:
        raise RunCorruptError(
            f"{source}: sha256: expected {expected}, got {digest.hexdigest()}", code="checksum"
        )


def _parent(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _entry(content: bytes) -> FileEntry:
    return FileEntry(size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
