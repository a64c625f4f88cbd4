"""Which API a command talks to when nobody says."""

from pathlib import Path

import pytest

from tests import local_stack
from tests.command_line import CommandLine
from workron.cli import connect
from workron.cli.exits import CliError, Exit
from workron.local.instances import Instance


def instance(url: str, data_dir: Path, started_at: str = "2026-03-01T09:30:00.250Z") -> Instance:
    return Instance(
        pid=1, started_at=started_at, url=url, key_file=None, data_dir=str(data_dir), redis=None, birth="boot/1"
    )


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The default data directory of a user without settings."""
    for name in ("WORKRON_DATA_DIR", "WORKRON_URL", "WORKRON_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "workron"


def test_a_local_up_is_found_with_its_key(workron: CommandLine, stack: local_stack.Stack) -> None:
    for name in ("WORKRON_URL", "WORKRON_API_KEY"):
        del workron.env[name]

    ran = workron("run", "echo found")

    assert (ran.code, ran.out, ran.err) == (0, "found\n", "")


def test_a_url_without_a_key_gets_the_key_of_the_local_up_that_has_it(workron: CommandLine) -> None:
    del workron.env["WORKRON_API_KEY"]
    other_name = workron.env["WORKRON_URL"].replace("127.0.0.1", "localhost")

    assert workron("queues").code == 0
    assert workron("queues", "--url", other_name).code == 0


def test_the_key_of_the_environment_goes_before_that_of_the_file(workron: CommandLine) -> None:
    del workron.env["WORKRON_URL"]

    assert workron("ls", WORKRON_API_KEY="wrong-but-long-enough").code == 6


def test_without_any_the_error_says_what_to_do(home: Path) -> None:
    with pytest.raises(CliError, match=r"start one with `workron up`.*WORKRON_URL") as caught:
        connect.choose([])

    assert caught.value.code == Exit.NOTHING_RUNS


def test_the_only_one_is_taken_silently(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    only = instance("http://127.0.0.1:1", home / "elsewhere")

    assert connect.choose([only]) is only
    assert capsys.readouterr().err == ""


def test_of_several_the_one_with_the_default_directory_is_taken_with_a_notice(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = instance("http://127.0.0.1:1", home, "2026-03-01T09:30:00.250Z")
    newer = instance("http://127.0.0.1:2", home / "elsewhere", "2026-03-02T09:30:00.250Z")

    assert connect.choose([newer, usual]) is usual
    assert "2 instances are running on this machine; using http://127.0.0.1:1" in capsys.readouterr().err


def test_of_several_elsewhere_the_newest_is_taken_with_a_notice(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = instance("http://127.0.0.1:1", home / "a", "2026-03-01T09:30:00.250Z")
    new = instance("http://127.0.0.1:2", home / "b", "2026-03-02T09:30:00.250Z")

    assert connect.choose([old, new]) is new
    assert "--url" in capsys.readouterr().err


@pytest.mark.parametrize("others", [1, 2])
def test_another_one_is_not_taken_for_the_one_whose_directory_is_set(
    home: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    found = [instance(f"http://127.0.0.1:{number}", home / str(number)) for number in range(1, 1 + others)]
    monkeypatch.setenv("WORKRON_DATA_DIR", str(home / "mine"))

    with pytest.raises(CliError, match=rf"with its data in {home / 'mine'} \(WORKRON_DATA_DIR\).*--url") as caught:
        connect.choose(found)

    assert caught.value.code == Exit.NOTHING_RUNS


def test_the_directory_of_a_flag_counts_for_a_command_with_settings(home: Path) -> None:
    usual, chosen = instance("http://127.0.0.1:1", home), instance("http://127.0.0.1:2", home / "mine")

    assert connect.choose([usual, chosen], {"data_dir": str(home / "mine")}) is chosen


def test_the_one_whose_directory_is_set_is_taken_silently(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual, chosen = instance("http://127.0.0.1:1", home), instance("http://127.0.0.1:2", home / "mine")
    monkeypatch.setenv("WORKRON_DATA_DIR", str(home / "mine"))

    assert connect.choose([usual, chosen]) is chosen
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://h", "http://", "8080", "http://[::1"])
def test_a_url_that_is_none_is_a_usage_error(alone: CommandLine, url: str) -> None:
    ran = alone("ls", "--url", url)

    assert (ran.code, ran.err.count("\n")) == (2, 1), ran.err
    assert url in ran.err


def test_the_directory_is_sent_only_to_an_api_on_this_machine(home: Path) -> None:
    assert connect.Endpoint("http://127.0.0.1:8080", None).is_local
    assert connect.Endpoint("http://localhost", None).is_local
    assert connect.Endpoint("http://[::1]:8080", None).is_local
    assert not connect.Endpoint("https://jobs.example", None).is_local
    assert not connect.Endpoint("http://127.evil.example", None).is_local
