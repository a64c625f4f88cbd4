"""Health checks of containers: what asks, what answers, and what a container engine gets to see."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from api import server
from reaper.reaper import Reaper
from tests import local_stack
from tests.conftest import WaitUntil
from tests.local.probe import processes_of, wait_for
from tests.local_stack import ROOT
from workers import heartbeat
from workers.executor import Executor
from workers.worker import Worker
from workron import healthcheck
from workron.runtime import health
from workron.runtime.health import answering
from workron.settings import Settings
from workron.store import Store
from workron.store.source import RedisSource

COMMAND = ("-I", "-m", "workron.healthcheck")
LOADED = """
import sys
before = set(sys.modules)
import runpy
sys.argv = ["healthcheck"]
try:
    runpy.run_module("workron.healthcheck", run_name="__main__")
except SystemExit:
    print(*set(sys.modules) - before)
"""
ANSWERING = """
import asyncio, subprocess, sys
from workron.runtime.health import answering

async def fine():
    return None

async def main():
    process, *inner = sys.argv[1:]
    async with answering(process) as health:
        if process == "worker":
            health.check = fine
        check = await asyncio.create_subprocess_exec(sys.executable, *inner)
        await check.wait()

asyncio.run(main())
"""


async def asked(process: str) -> str | None:
    return await asyncio.to_thread(healthcheck.ask, process, os.getpid())


async def test_a_process_is_unhealthy_until_it_has_started() -> None:
    async with answering("any"):
        assert await asked("any") == "any: still starting: see its log"


async def test_a_process_answers_what_it_finds_wrong_with_itself_in_one_line() -> None:
    async def broken() -> str | None:
        raise ValueError("two\nlines")

    async def wrong() -> str | None:
        return "no heartbeat"

    async def fine() -> str | None:
        return None

    async with answering("any") as answers:
        found = []
        for answers.check in (wrong, broken, fine):
            found.append(await asked("any"))
    assert found == ["any: no heartbeat", "any: ValueError: two lines", None]


async def test_a_check_without_an_end_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_ANSWER_S", 0.01)

    async def endless() -> str | None:
        await asyncio.Event().wait()
        return None

    async with answering("any") as answers:
        answers.check = endless
        assert await asked("any") == "any: no answer in time"


async def test_a_process_that_has_ended_is_unhealthy() -> None:
    async with answering("any"):
        pass
    assert "does not answer" in str(await asked("any"))


def test_a_process_is_not_healthy_because_another_one_took_its_name() -> None:
    parent = os.getppid()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(healthcheck.address("any", parent))
        other.listen()
        said = healthcheck.ask("any", parent)
    assert said == f"another process answers in place of any (pid {parent})"


async def test_a_process_of_up_is_not_healthy_because_another_one_took_its_name() -> None:
    parent, ended = os.getppid(), asyncio.Event()

    async def lie(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(healthcheck.OK)
        writer.close()
        ended.set()

    name = healthcheck.address("any", parent)
    async with await asyncio.start_unix_server(lie, name):  # type: ignore[arg-type]  # bytes do
        said = await health.ask("any", parent)
        await ended.wait()
    assert said == f"another process answers in place of any (pid {parent})"


async def test_a_worker_is_healthy_while_its_heartbeats_are_answered(
    store: Store, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = RedisSource(store)
    async with Executor(kill_grace_s=1) as executor:
        worker = Worker(Settings(slots=1), source, executor)
        assert await worker.problem() == "no heartbeat has been answered yet"

        async def healthy() -> bool:
            return await worker.problem() is None

        running = asyncio.create_task(worker.run())
        await wait_until(healthy)
        worker.stop()
        await running
    await source.aclose()

    clock, lease_s = heartbeat.boottime_s, source.lease_ms / 1000
    monkeypatch.setattr(heartbeat, "boottime_s", lambda: clock() + lease_s / 2)
    assert await worker.problem() is None
    monkeypatch.setattr(heartbeat, "boottime_s", lambda: clock() + lease_s)
    assert "no heartbeat has been answered for" in str(await worker.problem())


async def test_a_reaper_is_healthy_while_its_passes_succeed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    reaper = Reaper(store, every_s=1)
    assert await reaper.problem() == "no pass has succeeded yet"
    await reaper.reap()
    assert await reaper.problem() is None
    monkeypatch.setattr("reaper.reaper.PASS_MARGIN_S", -10.0)
    assert "the last pass was" in str(await reaper.problem())


class Up(NamedTuple):
    pid: int
    home: Path


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    home = tmp_path_factory.mktemp("home")
    env = local_stack.environment(home)
    with local_stack.running(["workron", "up"], env):
        [announced] = Path(env["XDG_RUNTIME_DIR"], "workron").glob("*.json")
        yield Up(int(announced.name.partition("-")[0]), home)


def test_up_is_as_healthy_as_its_processes(up: Up) -> None:
    wait_for(lambda: healthcheck.ask("up", up.pid) is None, "all are healthy")
    [worker] = [pid for pid in processes_of(f"HOME={up.home}\0") if healthcheck.ask("worker", pid) is None]

    os.kill(worker, signal.SIGSTOP)
    try:
        hung = healthcheck.ask("up", up.pid)
    finally:
        os.kill(worker, signal.SIGCONT)

    assert hung == "up: worker does not answer"
    wait_for(lambda: healthcheck.ask("up", up.pid) is None, "all are healthy again")


def test_a_process_that_hangs_does_not_answer(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(healthcheck, "_TIMEOUT_S", 0.1)
    os.kill(up.pid, signal.SIGSTOP)
    try:
        assert healthcheck.ask("up", up.pid) == f"up (pid {up.pid}) does not answer: timed out"
    finally:
        os.kill(up.pid, signal.SIGCONT)


async def test_the_api_is_unhealthy_when_its_socket_does_not_answer(store: Store) -> None:
    listener = server.bind("127.0.0.1", 0)
    host, port = listener.getsockname()[:2]
    listener.close()
    assert await server.not_ready(host, port) == "/readyz: no answer"


def in_a_container(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a mount namespace of its own, as in a container: processes outside of it are not found."""
    command = ["unshare", "--map-root-user", "--mount", sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_check_finds_out_what_runs_in_its_container_and_asks_the_oldest() -> None:
    inner = ["-c", ANSWERING, "worker", *COMMAND]

    assert in_a_container(*inner).stderr == ""
    assert in_a_container("-c", ANSWERING, "up", *inner).stderr == "up: still starting: see its log\n"
    assert in_a_container("-c", ANSWERING, "up", *inner, "worker").stderr == ""
    assert in_a_container(*inner, "reaper").stderr == "no workron reaper runs here\n"


def test_a_container_in_which_nothing_runs_is_unhealthy() -> None:
    done = in_a_container(*COMMAND)
    assert (done.returncode, done.stderr) == (1, "no workron process runs here\n")


def test_the_check_imports_next_to_nothing() -> None:
    """It runs every few seconds in each container, often without compiled libraries: then imports take seconds."""
    done = in_a_container("-I", "-c", LOADED)
    loaded = set(done.stdout.split())
    assert "workron" in loaded
    assert {name for name in loaded if name.startswith("workron.")} == set()
    assert loaded & {"asyncio", "socket", "enum", "re", "argparse", "pydantic", "redis", "http", "urllib"} == set()
    assert len(loaded) < 40
