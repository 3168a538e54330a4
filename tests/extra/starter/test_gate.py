"""The gate of CI: what `tailscope init` writes, the Action, and the template for GitLab."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from errors import code_of
from wording import assert_wording

from tailscope.extra.starter.files import FOLDER

if TYPE_CHECKING:
    from measurements import Place

ROOT = Path(__file__).parents[3]
GATE = ROOT / "python/tailscope/verdict/gate.sh"
EASY, HARD = "p10<10s, loss<0.9", "p50<1ns"
MANY = "duration: 30s", "warm_up: 2s", "repeats: 3"
FEW = "duration: 200ms", "warm_up: 50ms", "repeats: 1"


def bash(script: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run it as GitHub does."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def project(tailscope: Any, place: Place, dataplane: Path) -> Path:
    """A project with a gate, whose measurements are short."""
    run = f"'{dataplane}' l2fwd -l {{cpus}} --no-telemetry {{eal}} -- --die-with-parent"
    folder = place.path / "project"
    options = ("--run", run, "--ready", '"event":"ready"', "--slo", EASY)
    done = tailscope("init", folder, *options, env=place.environment)
    assert done.returncode == 0, done.stderr
    experiment = folder / FOLDER / "experiment.yaml"
    text = experiment.read_text()
    for many, few in zip(MANY, FEW, strict=True):
        assert many in text
        text = text.replace(many, few)
    experiment.write_text(text)
    return folder


def job_steps(project: Path) -> dict[str, str]:
    """What the job for GitHub runs, by the tool."""
    job = yaml.safe_load((project / f".github/workflows/{FOLDER}.yml").read_text())
    commands = [each["run"] for each in job["jobs"]["measure"]["steps"] if "run" in each]
    return {tool: each for tool in ("pip", "gate.sh") for each in commands if tool in each}


def judged_by(project: Path, levels: list[str]) -> None:
    """Change the service levels of the experiment."""
    path = project / FOLDER / "experiment.yaml"
    experiment = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**experiment, "service_levels": levels}))


def test_a_gate_measures_judges_and_compares(project: Path, place: Place) -> None:
    """As the job does that was written for GitHub."""
    step = job_steps(project)["gate.sh"]
    env = {**place.environment, "RUNNER_TEMP": str(place.path)}
    first = bash(step, project, **env)
    assert first.returncode == 0, first.stdout + first.stderr
    assert f"gate: no {FOLDER}/baseline.json yet" in first.stderr
    results = project / "tail-latency-results"
    assert {"runs", "report.html", "baseline.json", "verdicts.xml"} == {
        each.name for each in results.iterdir()
    }

    (results / "baseline.json").rename(project / FOLDER / "baseline.json")
    results.rename(project / "before")
    judged_by(project, [])
    second = bash(step, project, **env, FAIL_ON="lost>+99%")
    assert second.returncode in (0, 3), second.stderr
    assert (results / "comparison.xml").exists() and not (results / "verdicts.xml").exists()


@pytest.mark.long
def test_the_command_of_its_readme_judges(project: Path, place: Place) -> None:
    readme = (project / FOLDER / "README.md").read_text()
    commands = readme.partition("```sh\n")[2].partition("```")[0]
    assert "gate.sh" in commands
    judged_by(project, [HARD])
    env = {**place.environment, "AS_IT_IS": "true", "GITHUB_ACTIONS": "true"}
    done = bash(commands, project, **env)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "::error title=" in done.stdout and f"service level   {HARD}\n" in done.stdout


def test_a_gate_keeps_earlier_results_and_gives_them_to_who_called_sudo(
    project: Path, tmp_path: Path
) -> None:
    """The measurement is a stand-in, which leaves what root leaves."""
    stand_in = tmp_path / "bin/tailscope"
    stand_in.parent.mkdir()
    stand_in.write_text(
        """#!/bin/bash
for word; do [[ $word != --dry-run ]] || exit 0; done
[[ $1 != run ]] || mkdir -m 700 -p "$4"
"""
    )
    stand_in.chmod(0o755)
    env = {"PATH": f"{stand_in.parent}{os.pathsep}{os.environ['PATH']}"}
    if os.geteuid() == 0:
        env |= {"SUDO_UID": "65534", "SUDO_GID": "65534"}
    results = project / f"{FOLDER}-results"
    for _ in range(2):
        done = bash(f"bash {FOLDER}/gate.sh", project, **env)
        assert done.returncode == 0, done.stderr
        owner = int(env.get("SUDO_UID", os.geteuid()))
        assert {each.stat().st_uid for each in (results, results / "runs")} == {owner}
        os.utime(results / "runs", (0, 0))
    [earlier] = project.glob(f"{FOLDER}-results-*")
    assert earlier.name == f"{FOLDER}-results-19700101T000000Z" and earlier.name in done.stderr
    again = bash(f"bash {FOLDER}/gate.sh", project, **env)
    assert again.returncode == 1 and "19700101T000000Z" in again.stderr, "nothing is overwritten"


@pytest.mark.parametrize(("verdict", "has_baseline", "status"), [(0, 0, 0), (2, 0, 2), (0, 1, 1)])
def test_runs_that_are_no_baseline_are_judged_by_their_level(
    project: Path, tmp_path: Path, verdict: int, has_baseline: int, status: int
) -> None:
    """A stand-in measures several combinations of values, which `compare save` refuses."""
    stand_in = tmp_path / "bin/tailscope"
    stand_in.parent.mkdir()
    stand_in.write_text(
        f"#!/bin/bash\ncase $1 in verify) exit {verdict};; compare) exit 1;; esac\n"
    )
    stand_in.chmod(0o755)
    if has_baseline:
        (project / FOLDER / "baseline.json").write_text("{}")
    env = {"PATH": f"{stand_in.parent}{os.pathsep}{os.environ['PATH']}"}
    done = bash(f"bash {FOLDER}/gate.sh", project, **env)
    assert done.returncode == status, done.stderr
    assert ("no baseline.json of these runs" in done.stderr) == (not has_baseline)
    assert "keep " not in done.stderr


def test_a_gate_that_has_nothing_to_judge_by_says_so(project: Path, place: Place) -> None:
    """Before it measures."""
    judged_by(project, [])
    done = bash(f"bash {FOLDER}/gate.sh", project, **place.environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert_wording("gate/nothing-to-judge-by", done.stderr.replace(FOLDER, "GATE"))
    assert not (project / f"{FOLDER}-results").exists()


def test_the_job_installs_the_wheel_beside_it(project: Path, tmp_path: Path) -> None:
    """No index has a package of tailscope."""
    wheel = project / FOLDER / "tailscope-0.1.0-cp311-abi3-linux_x86_64.whl"
    wheel.touch()
    python = tmp_path / "python3"
    python.write_text(
        'mkdir -p "$3/bin" && echo \'printf "%s\\n" "$@"\' > "$3/bin/pip" && chmod +x "$3/bin/pip"'
    )
    python.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = bash(job_steps(project)["pip"], project, RUNNER_TEMP=str(tmp_path), PATH=path)
    assert done.stdout.splitlines() == ["install", f"{FOLDER}/{wheel.name}"], done.stderr


def test_what_cannot_be_measured_is_no_verdict(project: Path, place: Place) -> None:
    experiment = project / FOLDER / "experiment.yaml"
    experiment.write_text(experiment.read_text().replace("dut: command", "dut: comand"))
    done = bash(
        shlex.join(["bash", str(GATE), str(experiment), "results"]), project, **place.environment
    )
    assert done.returncode == 1
    assert "comand" in done.stderr


def test_a_gate_for_gitlab_runs_the_same_script(tailscope: Any, tmp_path: Path) -> None:
    options = ("--run", "forward {link0} {link1}", "--ready", "up", "--ci", "gitlab")
    done = tailscope("init", tmp_path, *options)
    assert done.returncode == 0, done.stderr
    job = yaml.safe_load((tmp_path / FOLDER / "gitlab.yml").read_text())[FOLDER]
    assert f"bash {FOLDER}/gate.sh" in job["script"][0]
    assert f"pip install {FOLDER}/tailscope-*.whl" in job["before_script"][-1]
    assert (tmp_path / FOLDER / "gate.sh").read_text() == GATE.read_text()
    template = yaml.safe_load((ROOT / "ci/gitlab.yml").read_text())[".tailscope"]
    assert template["script"][0].split()[1].endswith("tailscope/verdict/gate.sh")
    fixed = yaml.safe_load((tmp_path / FOLDER / "experiment.yaml").read_text())["fixed"]
    assert fixed["wire"] == "veth"
    assert 'sudo env "PATH=$PATH" bash' in (tmp_path / FOLDER / "README.md").read_text()


def test_nothing_is_overwritten(tailscope: Any, tmp_path: Path) -> None:
    kept = tmp_path / FOLDER / "README.md"
    kept.parent.mkdir()
    kept.write_text("mine")
    done = tailscope("init", tmp_path, "--run", "forward {eal}", "--ready", "up")
    assert (done.returncode, code_of(done)) == (1, "file-exists")
    assert f"{FOLDER}/README.md" in done.stderr
    assert [each.name for each in kept.parent.iterdir()] == ["README.md"]
    assert kept.read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--run", "forward {eal}"), "no-probe"),
        (("--run", "forward", "--ready", "x"), "no-ports"),
        (("--run", "forward {link2}", "--ready", "up"), "unknown-link"),
        (("--run", "forward {eal}", "--ready", "up", "--slo", "quick"), "slo-profile"),
    ],
)
def test_what_would_not_work_is_not_written(
    tailscope: Any, tmp_path: Path, options: tuple[str, ...], code: str
) -> None:
    done = tailscope("init", tmp_path, *options)
    assert (done.returncode, code_of(done)) == (1, code), done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_the_action_hands_inputs_over_as_variables(project: Path, place: Place) -> None:
    """Its steps as GitHub runs them, but for what pip installs."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    given = {
        **{name: each.get("default", "") for name, each in action["inputs"].items()},
        "experiment": f"{FOLDER}/experiment.yaml",
        "slo": EASY,
    }
    steps = action["runs"]["steps"]
    assert not [each for each in steps if "${{" in each.get("run", "")]
    [step] = [each for each in steps if "gate.sh" in each.get("run", "")]
    env = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: given[found[1]], value)
        for name, value in step["env"].items()
    }
    judged_by(project, [])
    done = bash(step["run"], project, **place.environment, **env, GITHUB_ACTION_PATH=str(ROOT))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (project / given["results"] / "report.html").exists()
    [install] = [each for each in steps if "pip" in each.get("run", "")]
    refused = bash(install["run"], project, INSTALL=given["install"], RUNNER_TEMP=str(place.path))
    assert refused.returncode != 0 and "expected the input install" in refused.stderr
    [last] = [each for each in steps if each.get("uses", "").startswith("actions/upload-artifact")]
    assert last["if"] == "always()"
