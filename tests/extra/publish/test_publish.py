"""Publications: whole or not at all, the same each time, links that lead somewhere, no secrets."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import campaigns
import pytest
from documentation import undocumented
from errors import raises
from runs import write_mark
from wording import assert_wording

from tailscope.exceptions import RunCorruptError, RunExistsError
from tailscope.extra.publish import site as sites
from tailscope.extra.publish.neutral import REMOVED, neutral, neutral_text
from tailscope.extra.publish.site import plan_site, write_site
from tailscope.store import layout
from tailscope.store.notes import add_note, change_tags
from tailscope.store.reader import packets_of, read_run

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Any]

HOME = "/data/jane"
PRIVATE = {
    "dut": {
        "name": "l2fwd",
        "instance": None,
        "result": None,
        "configuration": [
            f"{HOME}/bin/dp",
            f"--vdev=net_memif0,socket={HOME}/run/memif",
            "--password",
            "hunter2",
            f"--rules={HOME}/my.rules",
        ],
        "version": "dp 1 at jane@lab3.example.org",
    },
    "knobs": {"api_key": "hunter2"},
    "warnings": [
        f"{HOME}/run/x: token=hunter2",
        "curl -u jane:hunter2 failed; MYSQL_PWD=hunter2 was set; it asks for a password",
    ],
}


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rates; one run has private facts, one cell failed."""
    path = tmp_path_factory.mktemp("publish") / "campaign"
    path.mkdir()
    vary = {"rate": ["10k", "20k"], "dut_options.rules": [f"{HOME}/my.rules"]}
    name = "rate=10k,dut_options.rules=_data_jane_my.rules"
    campaigns.write_run(path / name, 1, info=PRIVATE)
    values = {"rate": "10k", "dut_options.rules": f"{HOME}/my.rules"}
    cells = [
        campaigns.cell(name, values, runs=[name]),
        campaigns.cell(
            name.replace("10k", "20k"),
            {**values, "rate": "20k"},
            state="failed",
            reason=f"{HOME}/my.rules: no such file",
        ),
    ]
    campaigns.finish(path, cells, vary)
    return path


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def published(tailscope: Run, campaign: Path, out: Path, *options: object) -> Any:
    done = tailscope("runs", "publish", campaign, out, *options)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def site(tailscope: Run, campaign: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That campaign, published; not to be changed."""
    out = tmp_path_factory.mktemp("published") / "site"
    done = published(tailscope, campaign, out)
    assert f"{out}/index.html" in done.stdout
    assert "no such file" in done.stderr
    return out


def test_a_site_is_whole(site: Path) -> None:
    out = site
    found = tree(out)
    assert {"index.html", "campaign.json", "experiment.yaml", "environment.json"} <= {*found}
    assert {"figures/runs.csv", "publication.json", "SHA256SUMS"} <= {*found}
    run = next(name.rpartition("/")[0] for name in found if name.endswith("/run.json"))
    assert run.startswith("runs/rate=10k,")
    assert {f"{run}/{name}" for name in ("summary.json", "latency.parquet", "worst.parquet")} <= {
        *found
    }
    pages = [out / name for name in found if name.endswith(".html")]
    assert len(pages) == 2
    for page in pages:
        assert campaigns.check_links(page) > 5
        assert page.stat().st_size <= 2 * 1024 * 1024
    sums = dict(reversed(line.split("  ")) for line in found["SHA256SUMS"].decode().splitlines())
    assert {*sums} == {*found} - {"SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256(found[name]).hexdigest() == digest
    assert not stat.S_IMODE(out.stat().st_mode) & 0o700 ^ 0o700
    assert [path.name for path in out.parent.iterdir()] == ["site"]


def test_a_site_is_a_campaign(tailscope: Run, campaign: Path, site: Path, tmp_path: Path) -> None:
    done = tailscope("report", site, "--out", tmp_path / "again.html")
    assert done.returncode == 0, done.stderr
    (folder,) = (site / "runs").iterdir()
    (original,) = (path for path in campaign.iterdir() if (path / "run.json").exists())
    there, here = read_run(folder), read_run(original)
    assert there.summary == here.summary
    assert there.percentiles == here.percentiles
    assert packets_of(there) is not None


def test_the_experiment_can_be_run_again(tailscope: Run, tmp_path: Path) -> None:
    (tmp_path / "campaign").mkdir()
    campaigns.write(tmp_path / "campaign", {"rate": ["10k"], "platform": ["bare"]}, about="Why: x.")
    published(tailscope, tmp_path / "campaign", tmp_path / "site")
    file = tmp_path / "site" / "experiment.yaml"
    done = tailscope("run", file, "--dry-run", "--json", "-")
    assert done.returncode == 0, done.stderr
    (cell,) = json.loads(done.stdout)["cells"]
    assert cell["plan"]["rate_pps"] == 10_000
    page = campaigns.Seen(tmp_path / "site" / "index.html")
    assert "tailscope run experiment.yaml --out again" in page.text


def test_nothing_private_is_published(campaign: Path, site: Path) -> None:
    for name, content in tree(site).items():
        for private in (b"hunter2", b"jane", b"lab3", os.fsencode(campaign.parent)):
            assert private not in content, name
            assert private not in os.fsencode(name)
    (record,) = (site / "runs").glob("*/run.json")
    configuration = json.loads(record.read_text())["dut"]["configuration"]
    assert configuration == [
        "…/dp",
        "--vdev=net_memif0,socket=…/memif",
        "--password",
        REMOVED,
        "--rules=…/my.rules",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data/jane doe/pre.pcap", "…/pre.pcap"),
        ("~/x/y", "…/y"),
        ("/usr/bin/suricata -c /tmp/a/b.yaml", "/usr/bin/suricata -c …/b.yaml"),
        ("/usr/bin/f --password=x", f"/usr/bin/f --password={REMOVED}"),
        ("at 1/2 of 10 packets/s", "at 1/2 of 10 packets/s"),
        ("no RAPL: among /sys/class/powercap/x:*", "no RAPL: among /sys/class/powercap/x:*"),
        ("postgresql://me:secret@db/x", "postgresql://db/x"),
        ("DB_PASSWORD='a b' rest", f"DB_PASSWORD={REMOVED} rest"),
        ("a token bucket", "a token bucket"),
        ("Authorization: Bearer abc123", f"Authorization: {REMOVED}"),
        ("x --proxy-authorization Basic abc123\nnext", f"x --proxy-authorization {REMOVED}\nnext"),
        ("PGPASSWORD=hunter2 psql", f"PGPASSWORD={REMOVED} psql"),
        ("SSHPASS=hunter2", f"SSHPASS={REMOVED}"),
        ("AWS_SECRET_ACCESS_KEY=a/b+c", f"AWS_SECRET_ACCESS_KEY={REMOVED}"),
        ("PRIVATE_KEY=abc", f"PRIVATE_KEY={REMOVED}"),
        ('{"authToken": "a b"}', f'{{"authToken": {REMOVED}}}'),
        ("-----BEGIN RSA PRIVATE KEY-----\nab\n-----END RSA PRIVATE KEY-----", REMOVED),
        ("spec_store_bypass=on iommu.passthrough=1", "spec_store_bypass=on iommu.passthrough=1"),
        ("jane@lab3", REMOVED),
        ("quiet nohz_full=1 isolcpus=managed_irq,1", "quiet nohz_full=1 isolcpus=managed_irq,1"),
    ],
)
def test_texts_lose_what_is_private(text: str, expected: str) -> None:
    assert neutral_text(text) == expected
    assert neutral_text(neutral_text(text)) == neutral_text(text)


def test_records_lose_what_is_private() -> None:
    hosts = {"dut": {"ssh": "lab3", "port": 22, "cards": ["0000:01:00.0"]}}
    assert neutral({"hosts": hosts, "db-token": 1, "secret": None, "n": 1.5}) == {
        "hosts": {"dut": {"ssh": REMOVED, "port": 22, "cards": ["0000:01:00.0"]}},
        "db-token": REMOVED,
        "secret": None,
        "n": 1.5,
    }
    secrets = {"PGPASSWORD": "x", "password": ["x"], "secrets": {"a": "b"}, "authToken": "y"}
    assert {*neutral(secrets).values()} == {REMOVED}
    assert neutral({"passwords": "x", "sshpass": "x", "passwd": "", "keys": ["a"]}) == {
        "passwords": REMOVED,
        "sshpass": REMOVED,
        "passwd": "",
        "keys": ["a"],
    }


def test_tags_and_notes_are_not_published(tailscope: Run, tmp_path: Path) -> None:
    campaigns.write(tmp_path / "campaign", {"rate": ["10k"]})
    run = tmp_path / "campaign" / "rate=10k,r=1"
    change_tags(run, add=["for-jane"])
    add_note(run, "password: hunter2 on lab3")
    published(tailscope, tmp_path / "campaign", tmp_path / "site")
    for name, content in tree(tmp_path / "site").items():
        assert not {word for word in (b"for-jane", b"hunter2", b"lab3") if word in content}, name


def test_packets_may_be_left_out(tailscope: Run, campaign: Path, tmp_path: Path) -> None:
    done = published(tailscope, campaign, tmp_path / "site", "--without-packets")
    assert "1 files" in done.stdout
    assert not [*(tmp_path / "site").rglob("latency.parquet")]
    (folder,) = (tmp_path / "site" / "runs").iterdir()
    run = read_run(folder)
    assert run.info.left_out == ("latency.parquet",)
    assert packets_of(run) is None
    assert "figure-heat" in campaigns.Seen(folder / "report.html").identifiers
    mark = json.loads((tmp_path / "site" / "publication.json").read_text())
    assert [*mark["left_out"]] == [f"runs/{folder.name}/latency.parquet"]
    page = campaigns.Seen(tmp_path / "site" / "index.html")
    assert "(1 files" in page.text


def test_large_packets_are_left_out_unless_wanted(
    campaign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites, "PACKETS_UP_TO_BYTES", 10)
    assert len(plan_site(campaign).left_out) == 1
    assert not plan_site(campaign, packets=True).left_out


def test_it_may_be_repeated(tailscope: Run, campaign: Path, site: Path, tmp_path: Path) -> None:
    first = shutil.copytree(site, tmp_path / "site")
    published(tailscope, campaign, first)
    assert tree(first) == tree(site)
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_what_is_of_others_is_not_replaced(campaign: Path, site: Path, tmp_path: Path) -> None:
    plan = plan_site(campaign)
    with raises(RunExistsError, "not-empty"):
        write_site(plan, campaign)
    mine = shutil.copytree(site, tmp_path / "site")
    (mine / "CNAME").write_text("mine")
    with raises(RunExistsError, "foreign-file") as refused:
        write_site(plan, mine)
    assert str(mine / "CNAME") in str(refused.value)
    (tmp_path / "other").mkdir()
    campaigns.write(tmp_path / "other", {"rate": ["10k"]}, name="other")
    with raises(RunExistsError, "other-campaign"):
        write_site(plan_site(tmp_path / "other"), mine)


def test_what_comes_while_a_site_is_made_is_not_replaced(
    campaign: Path, site: Path, tmp_path: Path
) -> None:
    mine = shutil.copytree(site, tmp_path / "site")

    def meanwhile(done: int, of: int) -> None:
        if done == of:
            (mine / "CNAME").write_text("mine")

    with raises(RunExistsError, "foreign-file") as refused:
        write_site(plan_site(campaign), mine, meanwhile)
    assert str(mine / "CNAME") in str(refused.value)
    assert tree(mine) == {**tree(site), "CNAME": b"mine"}


def test_a_link_to_a_folder_is_not_replaced(campaign: Path, site: Path, tmp_path: Path) -> None:
    mine = shutil.copytree(site, tmp_path / "site")
    (mine / "more").symlink_to(campaign)
    with raises(RunExistsError, "foreign-file") as refused:
        write_site(plan_site(campaign), mine)
    assert str(mine / "more") in str(refused.value)


def test_a_dry_run_lists_and_writes_nothing(tailscope: Run, campaign: Path, tmp_path: Path) -> None:
    done = published(tailscope, campaign, tmp_path / "site", "--dry-run")
    assert not (tmp_path / "site").exists()
    (original,) = (path for path in campaign.iterdir() if (path / "run.json").exists())
    size = (original / "latency.parquet").stat().st_size
    (line,) = (line for line in done.stdout.splitlines() if line.endswith("latency.parquet"))
    assert line.split()[0] == f"{size:,}"
    assert "index.html" in done.stdout


def test_what_was_taken_out_and_what_looks_odd_is_shown(
    tailscope: Run, campaign: Path, tmp_path: Path
) -> None:
    """Before anything is written, and by a dry run."""
    dry = published(tailscope, campaign, tmp_path / "site", "--dry-run")
    done = published(tailscope, campaign, tmp_path / "site")
    for output in (dry.stdout, done.stdout):
        lines = output.replace("\n    ", " ").splitlines()
        removed = [line for line in lines if line.startswith("taken out ")]
        named = "(named like a secret)"
        assert f"taken out run.json knobs.api_key: {REMOVED}  {named}" in removed
        assert f"taken out run.json dut.configuration[]: {REMOVED}  {named}" in removed
        folder = "taken out run.json dut.configuration[]: --rules=…/my.rules  (folder)"
        assert folder in removed
        assert removed.index(folder) > 2, "secrets come first"
        odd = [line for line in lines if line.startswith("odd ")]
        assert [line for line in odd if "it asks for a password  (names a secret: password" in line]
        assert "hunter2" not in output
        assert "jane" not in output.replace(str(tmp_path), "").replace(str(campaign), "")
    (warning,) = (line for line in dry.stderr.splitlines() if "odd" in line)
    assert_wording("publish/odd-lines", warning)
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("written ")


def test_nothing_to_take_out_is_said(tailscope: Run, tmp_path: Path) -> None:
    campaigns.write(tmp_path / "campaign", {"rate": ["10k"]})
    done = published(tailscope, tmp_path / "campaign", tmp_path / "site", "--dry-run")
    nothing = [line for line in done.stdout.splitlines() if line.endswith(" nothing")]
    assert_wording("publish/nothing-odd", "\n".join(nothing))
    assert "marked odd" not in done.stderr


def test_a_long_list_is_cut_when_a_site_is_written(tailscope: Run, tmp_path: Path) -> None:
    rules = [f"/data/jane/{number}.rules" for number in range(25)]
    (tmp_path / "campaign").mkdir()
    info = {"dut": {**PRIVATE["dut"], "configuration": rules, "version": None}}
    campaigns.write_run(tmp_path / "campaign" / "one", 1, info=info)
    cells = [campaigns.cell("one", {"rate": "10k"}, runs=["one"])]
    campaigns.finish(tmp_path / "campaign", cells, {"rate": ["10k"]})
    dry = published(tailscope, tmp_path / "campaign", tmp_path / "site", "--dry-run")
    done = published(tailscope, tmp_path / "campaign", tmp_path / "site")
    assert dry.stdout.count("taken out ") == 25
    assert done.stdout.count("taken out ") == 21
    *_, cut = (line for line in done.stdout.splitlines() if line.startswith("taken out "))
    assert_wording("publish/more-lines", cut)


def test_the_name_of_a_campaign_may_be_private(tailscope: Run, tmp_path: Path) -> None:
    campaigns.write(tmp_path / "campaign", {"rate": ["10k"]}, name="for jane@lab3")
    for _ in range(2):
        published(tailscope, tmp_path / "campaign", tmp_path / "site")
    for name, content in tree(tmp_path / "site").items():
        assert b"jane@lab3" not in content, name
    mark = json.loads((tmp_path / "site" / "publication.json").read_text())
    assert mark["campaign"]["name"] == f"for {REMOVED}"


def test_a_site_has_nothing_left_to_take_out(site: Path) -> None:
    for path in site.rglob("*.json"):
        record = json.loads(path.read_text())
        assert neutral(record) == record, path


def test_a_failure_leaves_the_earlier_site(campaign: Path, site: Path, tmp_path: Path) -> None:
    shutil.copytree(campaign, tmp_path / "campaign")
    out = shutil.copytree(site, tmp_path / "site")
    before = tree(out)
    (damaged,) = (tmp_path / "campaign").glob("*/latency.parquet")
    content = bytearray(damaged.read_bytes())
    content[100] ^= 1
    damaged.write_bytes(content)
    with raises(RunCorruptError, "checksum") as refused:
        write_site(plan_site(tmp_path / "campaign"), out)
    assert str(damaged) in str(refused.value)
    assert tree(out) == before
    assert {path.name for path in tmp_path.iterdir()} == {"campaign", "site"}


@pytest.mark.parametrize("name", [layout.OVERLOAD, layout.SUMMARY])
def test_what_cannot_be_used_is_named_and_changes_the_status(
    tailscope: Run, campaign: Path, tmp_path: Path, name: str
) -> None:
    copied = shutil.copytree(campaign, tmp_path / "campaign")
    (run,) = {path.parent for path in copied.glob("*/latency.parquet")}
    (run / name).write_text("torn")
    done = tailscope("runs", "publish", copied, tmp_path / "site")
    assert done.returncode == 1
    assert run.name in done.stderr
    assert (tmp_path / "site" / "index.html").is_file()


def test_files_outside_of_a_run_are_not_taken(tmp_path: Path) -> None:
    campaigns.write(tmp_path, {"rate": ["10k"]})
    (tmp_path / "key").write_text("private")
    mark = tmp_path / "rate=10k,r=1" / "run.json"
    record = json.loads(mark.read_text())
    record["files"]["captures/../../key"] = {"size_bytes": 7, "sha256": ""}
    (mark.parent / "captures").mkdir()
    write_mark(mark.parent, record)
    plan = plan_site(tmp_path)
    assert not [name for name, _ in plan.files() if "key" in name]
    (problem,) = plan.material.problems()
    assert {"files", "run.json"} <= {
        *re.split(r"[:/ ]+", problem)
    } and "captures/../../key" in problem


def test_ctrl_c_leaves_nothing(campaign: Path, tmp_path: Path) -> None:
    # The first figure that is drawn says so, and waits.
    script = (
        "import sys, time\n"
        "from tailscope.report import drawing\n"
        "def wait(*_, **__):\n"
        "    print('drawing', flush=True)\n"
        "    time.sleep(60)\n"
        "drawing.write_grid = wait\n"
        "from tailscope.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, "runs", "publish", str(campaign), str(tmp_path / "site")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "drawing\n" in iter(process.stdout.readline, "")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in said
    assert not [*tmp_path.iterdir()]


def test_hostile_names_make_harmless_ones(tailscope: Run, tmp_path: Path) -> None:
    hostile = campaigns.HOSTILE
    source, out = tmp_path / "campaign", tmp_path / "site"
    source.mkdir()
    runs = ["<b>\n'x'#?%2F", "a b", "a_b", ".hidden"]
    for number, name in enumerate(runs):
        campaigns.write_run(source / name, number)
    cells = [campaigns.cell(name, {hostile: name}, runs=[name]) for name in runs]
    campaigns.finish(source, cells, {hostile: runs}, name=hostile)
    published(tailscope, source, out)
    folders = {path.name for path in (out / "runs").iterdir()}
    assert len(folders) == 4
    assert all(name.isascii() and name.isprintable() and name[0] != "." for name in folders)
    pages = [out / "index.html", *(out / "runs").glob("*/report.html")]
    assert len(pages) == 5
    for page in pages:
        campaigns.check_links(page)
        seen = campaigns.Seen(page)
        assert not [name for name in seen.attributes if name.startswith("on")]
        assert seen.tags.count("script") == 4


def test_names_that_are_no_text_are_published(tailscope: Run, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"a\xff")
    cells = campaigns.write(path, {"rate": ["10k"]})
    lost = campaigns.cell("b", {"rate": "20k"}, state="\udcff")
    campaigns.finish(path, [*cells, lost], {"rate": ["10k", "20k"]}, name="")
    published(tailscope, path, tmp_path / "site")


def test_every_field_is_documented(site: Path) -> None:
    mark = json.loads((site / "publication.json").read_text())
    known = json.loads((site / "environment.json").read_text())
    (environment,) = known["environments"]
    names = [*mark, *mark["campaign"], *known, *environment]
    assert not undocumented(names, "extra/publish/publish.md", "extra/publish/reference.md")
    with (site / "figures" / "runs.csv").open() as file:
        columns = file.readline().strip().split(",")
    own = [name for name in columns if name not in ("rate", "dut_options.rules")]
    assert not undocumented(own, "campaign-report.md")
