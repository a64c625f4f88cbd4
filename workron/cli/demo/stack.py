"""The temporary stack of `workron demo`: a `workron up` with two workers in a directory of its own.

    HOME/env      to be sourced by a shell, so that all commands of the tour work there
    HOME/log      the log of all processes
    HOME/data     the data directory; this `up` announces itself in HOME/run, so that other commands don't find it

The tour starts it as a separate process, `python -m workron.cli.demo.stack HOME`, which stops and cleans up by itself
when the tour has ended, even by SIGKILL.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Final, TypeVar

from workron.cli.command import guarded
from workron.client import Client
from workron.errors import StartupError
from workron.lines import lines_of
from workron.local import child_specs, secure_files, supervisor
from workron.local.child_specs import ChildSpec
from workron.local.embedded import EmbeddedServer
from workron.local.instances import Instance, read_key
from workron.local.processes import ended_within, how_it_ended
from workron.runtime import lifeline
from workron.runtime.lifeline import Lifeline
from workron.settings import Settings

WORKERS: Final = ("ada", "bob")
NAMESPACE: Final = "demo"
LEASE_S: Final = 3.0
HEARTBEAT_S: Final = 1.0
_PREFIX: Final = "workron-demo-"
_SETTINGS: Final = {
    "namespace": NAMESPACE,
    "port": 0,
    "slots": 1,
    "lease": LEASE_S,
    "heartbeat": HEARTBEAT_S,
    "reap_every": 0.5,
    "drain_timeout": 1.0,
    "kill_grace": 1.0,
}
_READY_WITHIN_S: Final = 60.0
_STOP_S: Final = 20.0
_POLL_S: Final = 0.1
_PATIENCE_S: Final = 5.0
_SAID: Final = "workron: "

T = TypeVar("T")
Pause = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack whose two workers are ready."""

    home: Path
    url: str
    client: Client
    check: Callable[[], None]
    """Raise StartupError with the end of its log if the stack has ended."""


@asynccontextmanager
async def running(pause: Pause) -> AsyncIterator[Stack]:
    """Run a stack and remove it at the end. `pause` waits a number of seconds, and may raise to abort."""
    try:
        home = Path(tempfile.mkdtemp(prefix=_PREFIX))
    except OSError as error:
        raise StartupError(f"can't make a temporary directory: {error.strerror}") from error
    try:
        with Lifeline(secure_files.open_lock(home / "children")) as family, open(home / "log", "w+b") as log:  # noqa: ASYNC230 - small
            process = _start(home, family, log)
            check = partial(_check, process, log)
            try:
                instance = await _awaited(lambda: _announced(home), check, pause)
                with Client(instance.url, _key(instance), patience_s=_PATIENCE_S) as client:
                    await _awaited(lambda: len(client.workers()) == len(WORKERS), check, pause)
                    _write_env(home, instance)
                    yield Stack(home, instance.url, client, check)
            finally:
                await _stop(process)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _start(home: Path, family: Lifeline, log: IO[bytes]) -> subprocess.Popen[bytes]:
    (home / "run").mkdir(mode=0o700)
    mine = {name: value for name, value in os.environ.items() if not name.upper().startswith("WORKRON_")}
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-m", "workron.cli.demo.stack", str(home)],
        env={**mine, "XDG_RUNTIME_DIR": str(home / "run"), **lifeline.environment(family.fds)},
        cwd=home,  # there is no workron.toml
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=family.fds,
        start_new_session=True,
    )


async def _awaited(find: Callable[[], T | None], check: Callable[[], None], pause: Pause) -> T:
    """Return the first result of `find` that is not None."""
    give_up_at_s = time.monotonic() + _READY_WITHIN_S
    while not (found := find()):
        check()
        if time.monotonic() > give_up_at_s:
            raise StartupError(f"the demo's processes are not ready after {_READY_WITHIN_S:g} s")
        await pause(_POLL_S)
    return found


def _announced(home: Path) -> Instance | None:
    """Return the `up` announced there, once it is ready."""
    paths = list((home / "run" / "workron").glob("*.json"))
    return Instance(**json.loads(paths[0].read_bytes())) if paths else None


def _key(instance: Instance) -> str | None:
    return read_key(Path(instance.key_file)) if instance.key_file else None


def _write_env(home: Path, instance: Instance) -> None:
    data_dir = Path(instance.data_dir)
    lines = [
        f"export WORKRON_URL={instance.url}",
        f"export WORKRON_API_KEY=$(cat {shlex.quote(str(instance.key_file))})",
        f"export SOCKET={shlex.quote(str(EmbeddedServer(data_dir).socket))}",
    ]
    commands = Path(sys.executable).parent
    if shutil.which("workron") is None and (commands / "workron").exists():
        lines.append(f'export PATH={shlex.quote(str(commands))}:"$PATH"')
    (home / "env").write_text("\n".join([*lines, ""]))


def _check(process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    if process.poll() is None:
        return
    log.seek(0)
    said = [line for line in lines_of(log.read().decode(errors="replace")) if line.startswith(_SAID)]
    raise StartupError(
        said[-1].removeprefix(_SAID) if said else f"the demo's processes ended ({how_it_ended(process.returncode)})"
    )


async def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    if not await ended_within(process, _STOP_S):
        process.kill()
    process.wait()


def main(home: Path) -> int:
    """Run the stack in the tour's directory, which is removed at the end."""
    if not (home.name.startswith(_PREFIX) and secure_files.is_secret_dir(home)):
        raise SystemExit(f"{home} was not made by workron demo")
    try:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # the supervisor will see to it
        lifeline.watch()
        settings = Settings.model_validate({**_SETTINGS, "data_dir": home / "data"})
        return guarded(supervisor.run, settings, _specs)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _specs(settings: Settings, api_key: str | None, *, embedded: bool) -> Sequence[ChildSpec]:
    """Return the child processes of `up`, with two workers instead of one."""
    *services, worker = child_specs.specs(settings, api_key, embedded=embedded)
    named = (replace(worker, name=name, env={**worker.env, "WORKRON_WORKER_NAME": name}) for name in WORKERS)
    return [*services, *named]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
