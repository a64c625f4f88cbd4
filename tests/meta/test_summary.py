"""The plugins that keep CI honest and spread the tests over processes, run on small suites of their own."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITE = """
import pytest

@pytest.mark.parametrize("server", ["fake", "valkey"])
@pytest.mark.parametrize("n", [1, 2])
def test_something(server, n):
    pass

def test_elsewhere():
    pass
"""
SKIP = """
def test_never():
    pytest.skip("not today")
"""
SKIPPED_FILE = """
import pytest
pytest.skip("not today", allow_module_level=True)
"""


ALONE = ("-p", "no:xdist")
SPREAD = ("-p", "xdist", "-n", "2")


@pytest.fixture(params=[ALONE, SPREAD], ids=["in one process", "in two"])
def processes(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Options for a run in one process, and for one whose tests are spread."""
    return tuple(request.param)


def run_suite(
    directory: Path, suite: str, options: Sequence[str] = ALONE, **environment: str
) -> subprocess.CompletedProcess[str]:
    (directory / "pytest.ini").write_text("[pytest]\n")
    (directory / "test_suite.py").write_text(suite)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("WORKRON_", "PYTEST_"))}
    inherited |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    command = (sys.executable, "-m", "pytest", "-p", "tests.summary", "-p", "no:cacheprovider", *options)
    return subprocess.run(
        command, cwd=directory, env=inherited | environment, capture_output=True, text=True, check=False
    )


def test_tests_are_counted_per_server(tmp_path: Path, processes: tuple[str, ...]) -> None:
    done = run_suite(tmp_path, SUITE, processes, WORKRON_ZERO_SKIPS="1", WORKRON_TEST_SERVERS="fake,valkey")
    assert done.returncode == 0
    table = done.stdout.split("tests per server")[1].splitlines()[1:4]
    assert [line.strip() for line in table] == ["fakeredis 2", "valkey 2", "no server 1"]


def test_the_last_line_stays_pytest_s_own(tmp_path: Path, processes: tuple[str, ...]) -> None:
    done = run_suite(tmp_path, SUITE, processes, WORKRON_ZERO_SKIPS="1")
    assert "5 passed" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("suite", [SUITE + SKIP, SKIPPED_FILE])
def test_a_skip_fails_the_run_where_none_is_allowed(tmp_path: Path, suite: str, processes: tuple[str, ...]) -> None:
    done = run_suite(tmp_path, suite, processes, WORKRON_ZERO_SKIPS="1")
    assert done.returncode != 0
    assert done.stdout.count("FAILED: skipped: test_suite.py") == 1


def test_a_skip_is_fine_elsewhere(tmp_path: Path, processes: tuple[str, ...]) -> None:
    assert run_suite(tmp_path, SUITE + SKIP, processes).returncode == 0


def test_a_server_that_no_test_ran_on_fails_the_run(tmp_path: Path, processes: tuple[str, ...]) -> None:
    done = run_suite(tmp_path, SUITE, processes, WORKRON_TEST_SERVERS="fake,valkey,redis")
    assert done.returncode == 1
    assert "FAILED: no test ran on redis" in done.stdout


@pytest.mark.parametrize(
    ("argument", "spread"), [(".", True), ("test_suite.py", False), ("test_suite.py::test_elsewhere", False)]
)
def test_only_folders_of_tests_are_spread_over_processes(tmp_path: Path, argument: str, spread: bool) -> None:
    done = run_suite(tmp_path, SUITE, ("-p", "xdist", "-p", "tests.spread", "-n", "auto", "-v", argument))
    assert done.returncode == 0
    assert ("[gw0]" in done.stdout) is spread
