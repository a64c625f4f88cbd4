"""The systems that are compared: pinned packages, an environment each, and how their programs are started.

Environments are made once, outside of the repository, in `$XDG_CACHE_HOME/workron-bench`. One that can't be made is
reported with the reason and left out.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SYSTEMS: Final = Path(__file__).with_name("systems")
_INSTALL_S: Final = 300


@dataclass(frozen=True, slots=True)
class System:
    """One system: its program, its packages and its settings in words."""

    name: str
    packages: tuple[str, ...]
    settings: str
    drain: int
    """No-op jobs in one drain: about two seconds' worth."""
    python: tuple[int, int] = (3, 11)
    node: bool = False

    @property
    def program(self) -> Path:
        return SYSTEMS / f"run_{self.name}.{'mjs' if self.node else 'py'}"


OURS: Final = System(
    "workron",
    (),
    "200 slots, 400 jobs per bulk call; output, events, leases and heartbeats on",
    drain=20_000,
)
PEERS: Final = (
    System(
        "bullmq",
        ("bullmq@6.7.0", "ioredis@5.11.1"),
        "concurrency 200, addBulk of 1,000, finished jobs removed (faster than keeping them)",
        drain=20_000,
        node=True,
    ),
    System(
        "ardiq",
        ("ardiq==1.2.0",),
        "concurrency 100, prefetch 200, enqueue_many of 1,000, results kept 1 s",
        drain=10_000,
        python=(3, 13),
    ),
    System(
        "taskiq",
        ("taskiq==0.13.0", "taskiq-redis==1.2.4", "redis==8.1.0", "hiredis==3.5.0"),
        "RedisStreamBroker (acknowledges), 50 async tasks, 100 messages per read, no result backend; bulk: 50 at once",
        drain=3_000,
    ),
    System(
        "huey",
        ("huey==3.5.4", "redis==8.1.0", "hiredis==3.5.0"),
        "blocking pop, 1 thread, no results; no bulk call",
        drain=3_000,
    ),
    System(
        "dramatiq",
        ("dramatiq[redis]==2.2.1", "redis==8.1.0", "hiredis==3.5.0"),
        "32 threads, AgeLimit and Retries only; no bulk call",
        drain=3_000,
    ),
    System(
        "saq",
        ("saq[redis]==0.26.4", "redis==7.4.1", "hiredis==3.5.0", "typing-extensions==4.16.0"),
        "concurrency 100, results not kept; bulk: 50 at once",
        drain=1_500,
    ),
    System(
        "celery",
        ("celery[redis]==5.7.0", "redis==8.1.0", "hiredis==3.5.0"),
        "solo pool, prefetch 64, JSON, results ignored, no events/gossip/mingle/heartbeat; no bulk call",
        drain=1_500,
    ),
    System(
        "arq",
        ("arq==0.28.0", "redis==5.3.1", "hiredis==3.5.0"),
        "max_jobs 200, poll 10 ms (default 500), no results; bulk: 50 at once",
        drain=1_500,
    ),
    System(
        "rq",
        ("rq==3.0.0", "redis==8.1.0", "hiredis==3.5.0"),
        "SimpleWorker (no fork per job), no death penalty, JSON, result_ttl 0, enqueue_many of 1,000",
        drain=600,
    ),
)


class InstallError(Exception):
    """The environment of a peer can't be made; `str()` says why."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A system that can be started here."""

    system: System
    command: tuple[str, ...]
    folder: Path

    @property
    def name(self) -> str:
        return self.system.name


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "workron-bench"


def install(system: System) -> Installed:
    """Return how to start a system, after making its environment if there is none; InstallError if that fails."""
    if not system.packages:
        return Installed(system, (sys.executable, str(system.program)), SYSTEMS)
    digest = hashlib.sha256(" ".join(system.packages).encode()).hexdigest()[:8]
    folder = cache_folder() / f"{system.name}-{digest}"
    if system.node:
        node = _tool("node")
        if not (folder / "done").exists():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "package.json").write_text("{}\n")
            _run([_tool("npm"), "install", "--no-audit", "--no-fund", "--ignore-scripts", *system.packages], folder)
            (folder / "done").touch()
        return Installed(system, (node, str(system.program)), folder)
    python = folder / "bin" / "python"
    if not (folder / "done").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        _run([_tool("uv"), "venv", "--clear", "--python", _interpreter(system.python), str(folder)], folder.parent)
        _run([_tool("uv"), "pip", "install", "--python", str(python), *system.packages], folder)
        (folder / "done").touch()
    return Installed(system, (str(python), str(system.program)), folder)


def _interpreter(least: tuple[int, int]) -> str:
    """Return a Python of this version: the running one, or the first on PATH or in pyenv's folder that works."""
    if sys.version_info[:2] >= least:
        return sys.executable
    root = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser()
    for minor in range(least[1], least[1] + 3):
        name = f"python{least[0]}.{minor}"
        for candidate in (shutil.which(name), *map(str, sorted(root.glob(f"versions/*/bin/{name}"), reverse=True))):
            if candidate is not None and _works(candidate):
                return candidate
    raise InstallError(f"needs Python {least[0]}.{least[1]} or later, which is not installed")


def _works(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0  # noqa: S603


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise InstallError(f"{name} is not installed")
    return found


def _run(command: list[str], folder: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    try:
        done = subprocess.run(  # noqa: S603 - fixed commands
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=_INSTALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise InstallError(f"{Path(command[0]).name} {command[1]} took more than {_INSTALL_S} s") from None
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise InstallError(f"{Path(command[0]).name} {command[1]}: {' '.join(lines[-2:])[:300]}")
