"""Workers that come back: so many, each forked anew as soon as one has been killed.

    python forked_workers.py NUMBER SLOTS

What a worker imports is there before the first fork: that is most of what a start costs. Everything else is as in
`workron worker`: a process in a session of its own, with its guardian. Told to end, it kills them and prints how many
had died before.
"""

import ctypes
import json
import os
import resource
import signal
import sys
from typing import Final

import workron.store.source  # noqa: F401 - workers import it when they connect
from workers.limits import NO_LIMITS
from workers.main import run
from workron.cli.config import load
from workron.settings import Settings

PARENT_DIES: Final = 1  # PR_SET_PDEATHSIG
prctl: Final = ctypes.CDLL(None).prctl


class Stop(Exception):
    """This process was told to end."""


def stop(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stop


def fork(settings: Settings) -> int:
    """Start a worker; returns its number."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        prctl(PARENT_DIES, signal.SIGKILL)
        os.setsid()
        code = run(settings, NO_LIMITS)
    finally:
        os._exit(code)


def keep(settings: Settings, number: int) -> dict[str, float]:
    """Keep so many workers until told to end; returns how often one has died, and the processor time of all."""
    deaths, running = 0, set[int]()
    try:
        while True:
            while len(running) < number:
                running.add(fork(settings))
            pid, _ = os.wait()
            deaths += pid in running
            running.discard(pid)
    except Stop:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(resource.RUSAGE_SELF)
    return {"deaths": deaths, "cpu_s": round(sum(one.ru_utime + one.ru_stime for one in usage), 2)}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    prctl(PARENT_DIES, signal.SIGKILL)
    print(json.dumps(keep(load({"slots": int(sys.argv[2])}), int(sys.argv[1]))))
