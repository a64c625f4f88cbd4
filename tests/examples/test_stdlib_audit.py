"""The example workflow over real files: its report is what sha256sum says, and every source is byte-compiled."""

import graphlib
import importlib.util
import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.local_stack import ROOT, environment, running

GENERATOR = ROOT / "examples" / "stdlib-audit" / "make_workflow.py"
STDLIB = Path(sysconfig.get_path("stdlib"))


def make_workflow(*arguments: str) -> dict[str, Any]:
    command = (sys.executable, str(GENERATOR), *arguments)
    workflow: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return workflow


def run_here(workflow: dict[str, Any]) -> None:
    """Run the commands of a workflow one after the other, in an order that its dependencies allow."""
    jobs = {job["name"]: job for job in workflow["jobs"]}
    order = graphlib.TopologicalSorter({name: job.get("depends_on", []) for name, job in jobs.items()})
    for name in order.static_order():
        job = jobs[name]
        env = {"PATH": "/usr/bin:/bin", **job["env"]}
        subprocess.run(["sh", "-c", job["command"]], cwd=job["cwd"], env=env, check=True)


def sums_taken_directly(*packages: str) -> str:
    """Return what `sha256sum` gives for the sources of these packages, or of all the library."""
    folders = [STDLIB / package for package in packages] or [STDLIB]
    found = (path for folder in folders for path in folder.rglob("*.py") if path.is_file() and not path.is_symlink())
    sources = sorted((str(path.relative_to(STDLIB)) for path in found if is_of_library(path)), key=str.encode)
    done = subprocess.run(["sha256sum", *sources], cwd=STDLIB, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def is_of_library(path: Path) -> bool:
    """Tell sources of the library from test suites, and from packages that were installed beside it."""
    folders = path.relative_to(STDLIB).parent.parts
    aside = {"test", "tests", "idle_test", "site-packages", "dist-packages"}
    return not aside & set(folders) and all(folder.isidentifier() for folder in folders)


def assert_audited(scratch: Path, expected: str) -> None:
    assert (scratch / "report.txt").read_text() == expected
    tag = sys.implementation.cache_tag
    for line in expected.splitlines():
        source = STDLIB / line[66:]
        assert (scratch / "pyc" / source.relative_to("/").with_suffix(f".{tag}.pyc")).is_file(), source


def test_the_commands_alone_give_the_right_report(tmp_path: Path) -> None:
    run_here(make_workflow("--scratch", str(tmp_path / "scratch"), "json", "email", "ctypes"))
    assert_audited(tmp_path / "scratch", sums_taken_directly("ctypes", "email", "json"))


def test_a_source_that_does_not_compile_fails_its_job(tmp_path: Path) -> None:
    (job,) = [job for job in make_workflow("json")["jobs"] if job["name"] == "compile-json"]
    (tmp_path / "bad.py").write_text("def :\n")
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums" / "json").write_text(f"{'0' * 64}  bad.py\n")
    env = job["env"] | {"SCRATCH": str(tmp_path), "PYTHONPYCACHEPREFIX": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", job["command"]], cwd=tmp_path, env=env, capture_output=True, check=False)
    assert done.returncode == 1
    assert b"SyntaxError" in done.stdout


def test_the_workflow_is_the_same_every_time() -> None:
    audited = [job["name"].removeprefix("checksum-") for job in make_workflow()["jobs"][:-1:2]]
    assert audited == [*sorted(audited[:-1]), "modules"]
    assert make_workflow() == make_workflow()


def test_a_package_that_does_not_exist_is_refused() -> None:
    done = subprocess.run([sys.executable, str(GENERATOR), "jsn"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "not in this standard library: jsn" in done.stderr


def test_every_importable_package_of_the_library_is_audited() -> None:
    named = {job["name"].removeprefix("checksum-") for job in make_workflow()["jobs"]}
    packages = {
        name
        for name in sys.stdlib_module_names - {"test"}
        if (STDLIB / name).is_dir() and importlib.util.find_spec(name) is not None
    }
    assert packages <= named


@pytest.mark.timeout(300)
def test_the_audit_of_the_whole_library_on_a_real_stack(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    env = environment(tmp_path / "home")
    with running([sys.executable, "-m", "workron", "up", "--slots", "4"], env) as stack:
        submit = [sys.executable, "-m", "workron", "workflow", "submit", "-", "--wait"]
        workflow = json.dumps(make_workflow("--scratch", str(scratch))).encode()
        done = subprocess.run(submit, input=workflow, env=stack.environment, capture_output=True, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr).decode()
    assert_audited(scratch, sums_taken_directly())
