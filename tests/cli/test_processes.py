"""The commands that start processes."""

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from tests.command_line import CommandLine
from tests.patience import Patience
from tests.ports import free_port

PATIENCE_S = 60


def wait_until(condition: Callable[[], object]) -> None:
    patience = Patience(PATIENCE_S)
    while not condition():
        assert not patience.is_over
        time.sleep(0.05)


def lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_the_processes_of_an_up_that_is_killed_end_with_it(alone: CommandLine) -> None:
    instances = Path(alone.env["XDG_RUNTIME_DIR"], "workron")
    with alone.start("up", "--port", "0", "--data-dir", "data") as up:
        wait_until(lambda: list(instances.glob("*.json")))
        [path] = instances.glob("*.json")
        url = json.loads(path.read_text())["url"]
        alone.env["WORKRON_URL"] = url
        wait_until(lambda: alone("workers", "-o", "json").document)
        [worker] = alone("workers", "-o", "json").document
        assert lives(worker["pid"])

        os.kill(up.pid, signal.SIGKILL)

        wait_until(lambda: not lives(worker["pid"]))
        wait_until(lambda: alone("health", "--no-wait").code == 5)


def test_a_process_that_cannot_start_says_so_in_one_line(alone: CommandLine) -> None:
    for command in (["worker"], ["reaper"], ["api", "--port", str(free_port())]):
        ran = alone(*command)

        assert ran.code == 5
        assert (ran.err.count("\n"), "--redis" in ran.err) == (1, True)


def test_a_taken_port_is_reported_in_one_line(alone: CommandLine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        ran = alone("up", "--port", str(taken.getsockname()[1]), "--data-dir", "data")

    assert ran.code == 8
    assert "--port" in ran.err
