"""Run by `test_prepared.py`: a parent that prepares processes, and sends them their orders or not.

`python prepared_processes.py FOLDER SCENE`: each process writes what it finds about itself to FOLDER/NAME.
"""

import asyncio
import atexit
import json
import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from workron import ids
from workron.local.prepared import Prepared, prepare
from workron.local.processes import ended
from workron.local.secure_files import open_lock
from workron.runtime.lifeline import Lifeline

NAMES = ("one", "two")
MODULES = dict.fromkeys(NAMES, "colorsys")  # any module that is not imported yet
LARGE = {f"LARGE{number}": "x" * 100_000 for number in range(10)}
"""More than a socket buffers."""


def state_of_signals() -> list[str]:
    """Return the signals that are blocked, ignored and caught."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return [line for line in lines if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]


def about_this_process() -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "session": os.getsid(0),
        "title": Path("/proc/self/cmdline").read_bytes().replace(b"\0", b" ").decode().strip(),
        "files": {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if is_open(fd)},
        "variables": dict(os.environ),
        "shown variables": [
            each.partition(b"=")[0].decode() for each in Path("/proc/self/environ").read_bytes().split(b"\0")
        ],
        "signals": state_of_signals(),
        "random": random.random(),  # noqa: S311 - it is compared only
        "id": ids.new_id(),
        "imported": "colorsys" in sys.modules,
    }


def is_open(fd: str) -> bool:
    return os.path.exists(f"/proc/self/fd/{fd}")  # not that of the listing itself


def main(folder: Path, scene: str) -> int:
    ids.new_id()  # what makes ids has a state from now on
    stray = os.open(folder / "stray", os.O_WRONLY | os.O_CREAT)
    os.set_inheritable(stray, True)
    atexit.register(lambda: (folder / f"left {os.getpid()}").touch())
    print("said once", end="")  # and not written yet

    def live(name: str) -> int:
        about = folder / f"{name}.part"
        about.write_text(json.dumps(about_this_process()))
        about.rename(folder / name)
        match scene:
            case "wait":
                time.sleep(600)
            case "raise":
                raise RuntimeError("a fault of its own")
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        return 7

    with prepare(MODULES, live) as prepared:
        (folder / "pids").write_text(" ".join(str(process.pid) for process in prepared.values()))
        match scene:
            case "killed before":
                os.kill(os.getpid(), signal.SIGKILL)
            case "died before":
                for process in prepared.values():
                    os.kill(process.pid, signal.SIGKILL)
        if scene != "no orders":
            with Lifeline(open_lock(folder / "children")) as lifeline:
                codes = asyncio.run(order(prepared, lifeline))
            (folder / "codes").write_text(json.dumps(codes))
    os.close(stray)
    with suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
        return 9  # one is left
    return 0


async def order(prepared: dict[str, Prepared], lifeline: Lifeline) -> list[int]:
    for process in prepared.values():
        await process.start({"PATH": "/bin", "EMPTY": "", "ÜMLAUT": "a=b\nc", **LARGE}, lifeline.fds)
    for process in prepared.values():
        await ended(process)
    return [process.wait() for process in prepared.values()]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
