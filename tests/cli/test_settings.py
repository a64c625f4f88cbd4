"""Settings on the command line: where they come from, and what is said when they are wrong."""

import os
import pwd
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import LAUNCH, CommandLine
from tests.local_stack import ROOT
from workron.cli import process
from workron.cli.config import load
from workron.errors import SettingsError
from workron.settings import Settings


def shown(workron: CommandLine, *args: str, **env: str) -> dict[str, tuple[str | None, str]]:
    ran = workron("config", "show", "-o", "json", *args, **env)
    assert ran.code == 0, ran.err
    return {row["name"]: (row["value"], row["origin"]) for row in ran.document}


def test_each_value_is_shown_with_where_it_came_from(alone: CommandLine) -> None:
    (alone.cwd / "workron.toml").write_text('lease = "20s"\nslots = 3\nport = 1\nqueues = ["a", "b"]\n')

    settings = shown(alone, "--port", "9000", WORKRON_PORT="2", WORKRON_SLOTS="5")

    assert settings["port"] == ("9000", "--port")
    assert settings["slots"] == ("5", "WORKRON_SLOTS")
    assert settings["lease"] == ("20s", "workron.toml")
    assert settings["queues"] == ("a,b", "workron.toml")
    assert settings["host"] == ("127.0.0.1", "default")
    assert settings["retention_done"] == ("24h", "default")
    assert settings["heartbeat"] == ("5s", "default")
    assert settings.keys() == Settings.model_fields.keys()


def test_the_table_of_settings_reads_well(alone: CommandLine) -> None:
    lines = [line.split() for line in alone("config", "show", "--lease", "10s").out.splitlines()]

    assert lines[0] == ["SETTING", "VALUE", "FROM"]
    assert ["lease", "10s", "--lease"] in lines
    assert ["redis", "-", "default"] in lines


def test_secrets_are_masked(alone: CommandLine) -> None:
    key, password = "abcd:0123456789abcdef", "hunter2hunter2"
    url = f"rediss://user:{password}@db.example:6380/1?password={password}"

    for args, env in (
        ((), {"WORKRON_REDIS": url, "WORKRON_API_KEY": key}),
        (("--redis", url, "--api-key", key), {}),
    ):
        ran = alone("config", "show", *args, **env)
        assert "rediss://********@db.example:6380/1" in ran.out
        assert password not in ran.out
        assert key not in ran.out


@pytest.mark.parametrize(
    ("args", "env", "expected"),
    [
        (["up", "--port", "99999"], {}, "--port: must be at most 65535, not '99999'"),
        (["api"], {"WORKRON_LEASE": "3 parsecs"}, "WORKRON_LEASE: '3 parsecs' is not a duration"),
        (["worker"], {"WORKRON_LOG_FORMAT": "xml"}, "WORKRON_LOG_FORMAT: must be 'auto', 'console' or 'json'"),
        (["up"], {"WORKRON_DATA_DIR": ""}, "WORKRON_DATA_DIR: is empty: name a path, or leave it out"),
        (["api", "--api-key-file", ""], {}, "--api-key-file: is empty"),
        (["reaper", "--lease", "5s", "--heartbeat", "5s"], {}, "lease (5s) must be more than twice the heartbeat"),
        (["up", "--host", "192.0.2.1", "--no-auth"], {}, "no_auth is refused on 192.0.2.1"),
        (["config", "show", "--slots", "x", "--port", "y"], {}, "; --slots: "),
    ],
)
def test_a_wrong_setting_is_reported_in_one_line(
    alone: CommandLine, args: list[str], env: dict[str, str], expected: str
) -> None:
    ran = alone(*args, **env)

    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), ran.err
    assert expected in ran.err


@pytest.mark.parametrize(
    ("name", "similar"),
    [
        ("WORKRON_SHUTDOWN_GRACE", ""),
        ("WORKRON_DRAIN_TIME", ", did you mean WORKRON_DRAIN_TIMEOUT?"),
        ("workron_slot", ", did you mean WORKRON_SLOTS?"),
    ],
)
def test_a_variable_that_is_no_setting_is_not_passed_over_in_silence(
    alone: CommandLine, name: str, similar: str
) -> None:
    ran = alone("config", "show", **{name: "30s"})

    assert (ran.code, ran.err) == (0, f"workron: {name} is ignored: there is no such setting{similar}\n")


def test_a_process_that_starts_tells_of_a_variable_that_is_no_setting(alone: CommandLine) -> None:
    ran = alone("worker", "--redis", "no-url", WORKRON_SHUTDOWN_GRACE="30s")

    assert "WORKRON_SHUTDOWN_GRACE is ignored" in ran.err.splitlines()[0]


def test_variables_that_a_job_or_a_client_has_are_none_of_a_settings_misspelled(alone: CommandLine) -> None:
    places = (*(ROOT / "workers").glob("*.py"), *(ROOT / "workron" / "schedules").glob("*.py"))
    sources = [path.read_text() for path in places]
    given = {name for source in sources for name in re.findall(r'"(WORKRON_[A-Z_]+)"', source)}
    assert {"WORKRON_JOB_ID", "WORKRON_FENCE", "WORKRON_ARRAY_INDEX", "WORKRON_RESULT"} <= given

    assert alone("config", "show", **dict.fromkeys(given | {"WORKRON_URL", "WORKRON_LIFELINE"}, "1")).err == ""


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"prot = 1\n", "workron.toml: there is no setting 'prot', did you mean port?"),
        (b"port = 'x'\n", "workron.toml: must be a whole number"),
        (b"port = \n", "workron.toml is not valid TOML: Invalid value (at line 1"),
        (b"[server]\nport = 1\n", "there is no setting 'server'"),
        (b"host = '\xff'\n", "workron.toml is not valid UTF-8"),
    ],
)
def test_a_wrong_file_is_reported_in_one_line(alone: CommandLine, content: bytes, expected: str) -> None:
    (alone.cwd / "workron.toml").write_bytes(content)

    ran = alone("config", "show")

    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), ran.err
    assert expected in ran.err


def test_an_unreadable_file_is_reported_in_one_line(alone: CommandLine) -> None:
    (alone.cwd / "workron.toml").symlink_to("/proc/self/mem")  # can be opened, but not read from its start

    ran = alone("config", "show")

    assert (ran.code, ran.err) == (2, "workron: can't read workron.toml: input/output error\n")


UNSEARCHABLE = """
import os, sys
from workron.cli.config import load
load({})
os.chdir(sys.argv[1])
os.chmod(".", 0o600)
if os.geteuid() == 0:
    os.setuid(54321)  # root may search it
print(load({}).port)
"""


def test_a_directory_that_the_user_may_not_search_has_no_settings_file(tmp_path: Path) -> None:
    (tmp_path / "workron.toml").write_text("port = 1\n")
    command = [sys.executable, "-c", UNSEARCHABLE, str(tmp_path)]

    done = subprocess.run(command, env={"HOME": "/"}, cwd=ROOT, capture_output=True, text=True, check=False)

    tmp_path.chmod(0o700)
    assert (done.stdout, done.stderr) == ("8080\n", "")


def test_no_secret_stands_in_an_error(alone: CommandLine) -> None:
    (alone.cwd / "workron.toml").write_text('api_key = ["0123456789secret"]')

    ran = alone("config", "show", "--port", "x", WORKRON_REDIS="redis://:secret@h")

    assert ran.code == 2
    assert "workron.toml: must be a string" in ran.err
    assert "secret" not in ran.err


def test_every_setting_has_a_flag_in_a_section_of_its_own(alone: CommandLine) -> None:
    sections = {param.name: getattr(param, "section", None) for param in process.up.params}
    assert sorted(map(str, sections)) == sorted(Settings.model_fields)
    assert not set(sections.values()) & {None, "Options", "Other settings"}

    ran = alone("worker", "--help")

    for name in Settings.model_fields:
        assert f"--{name.replace('_', '-')}" in ran.out


def test_flags_that_are_switches_can_be_turned_off(alone: CommandLine) -> None:
    settings = shown(alone, "--auth", "--no-allow-eviction", WORKRON_NO_AUTH="1", WORKRON_ALLOW_EVICTION="1")

    assert settings["no_auth"] == ("false", "--no-auth")
    assert settings["allow_eviction"] == ("false", "--allow-eviction")


def test_a_share_is_not_shown_as_a_duration_but_as_its_flag_takes_it(alone: CommandLine) -> None:
    value, _ = shown(alone)["max_memory_share"]

    assert value == "0.8"
    assert shown(alone, "--max-memory-share", value)["max_memory_share"] == ("0.8", "--max-memory-share")
    assert "--max-memory-share 0-1" in alone("up", "--help").out


def test_a_user_without_a_home_can_do_all_that_needs_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HOME", "XDG_DATA_HOME", "WORKRON_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)

    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)

    assert load({}).data_dir is None
    assert load({"data_dir": str(tmp_path)}).home == tmp_path
    with pytest.raises(SettingsError, match=r"no home directory.*--data-dir or WORKRON_DATA_DIR"):
        load({}).home  # noqa: B018 - it raises


def test_an_empty_home_and_a_relative_data_home_name_no_directory(alone: CommandLine) -> None:
    home = alone.env["HOME"]
    usual = (f"{home}/.local/share/workron", "default")

    assert shown(alone, XDG_DATA_HOME="data")["data_dir"] == usual
    assert shown(alone, XDG_DATA_HOME="/srv")["data_dir"] == ("/srv/workron", "default")
    of_user = pwd.getpwuid(os.getuid()).pw_dir
    assert shown(alone, HOME="")["data_dir"] == (f"{of_user}/.local/share/workron", "default")
    assert shown(alone, HOME="relative")["data_dir"] != ("relative/.local/share/workron", "default")


def test_a_relative_directory_below_one_that_is_gone_is_reported_in_one_line(alone: CommandLine) -> None:
    script = f"cd {alone.cwd} && rmdir {alone.cwd} && exec {shlex.join(LAUNCH)} up --data-dir data"
    done = subprocess.run(["sh", "-c", script], capture_output=True, env=alone.env, timeout=60)

    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert b"the current directory no longer exists, and data_dir data is relative to it" in done.stderr


@pytest.mark.parametrize("command", ["api", "worker", "reaper", "doctor"])
def test_a_url_that_is_misread_is_wrong_usage_and_does_not_show_the_password(alone: CommandLine, command: str) -> None:
    ran = alone(command, WORKRON_REDIS="redis://:s3cretpw#x@host/0")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("workron: the Redis URL has a character that ends its login")
    assert "s3cret" not in ran.err
    assert ran.err.count("\n") == 1


def test_settings_are_shown_as_their_flags_take_them(alone: CommandLine) -> None:
    flags = ("--retention-done", "1234567.5s", "--max-memory-share", "0.75", "--lease", "25d")
    lines = [line.split() for line in alone("config", "show", *flags).out.splitlines()]
    shown = {line[0]: line[1] for line in lines if len(line) > 1}
    assert (shown["retention_done"], shown["max_memory_share"], shown["lease"]) == ("1234567.5s", "0.75", "25d")
    assert "--max-memory-share 0-1" in alone("worker", "--help").out
