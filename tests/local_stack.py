"""A `workron up` for tests: started as a user starts it, in a home of its own, on a free port."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.patience import Patience
from tests.ports import free_port

ROOT: Final = Path(__file__).resolve().parents[1]
READY_S: Final = 60
STOP_S: Final = 90


@dataclass(frozen=True)
class Stack:
    """A running `workron up`, and the environment in which the CLI finds it."""

    url: str
    key: str
    data_dir: Path
    environment: Mapping[str, str]


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a user whose files are all in `home`, with the project's commands on PATH."""
    runtime, temporary = home / "run", home / "tmp"
    for folder in (runtime, temporary):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    cache = os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache" / "uv")
    ours = ("WORKRON_", "XDG_", "COLUMNS", "LINES")  # the last two would say that every terminal is as wide as this one
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return inherited | {
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(runtime),
        "TMPDIR": str(temporary),
        "PATH": f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "UV_CACHE_DIR": cache,
        "UV_NO_SYNC": "1",
        "WORKRON_DATA_DIR": str(home / "data"),
        "WORKRON_PORT": str(free_port()),
    }


@contextmanager
def running(command: Sequence[str], env: Mapping[str, str]) -> Iterator[Stack]:
    """Run a `workron up` command, ready on entry; at the end it is interrupted and must stop by itself."""
    log = Path(env["HOME"]) / "up.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield _wait_until_ready(process, env, log)
    finally:
        code = _interrupt(process)
    assert code == 0, f"`{' '.join(command)}` ended with {code}:\n{log.read_text()[-4000:]}"


def _wait_until_ready(process: subprocess.Popen[bytes], env: Mapping[str, str], log: Path) -> Stack:
    """Wait for the file by which an instance makes itself known once it is ready."""
    patience = Patience(READY_S)
    while process.poll() is None and not patience.is_over:
        for path in Path(env["XDG_RUNTIME_DIR"], "workron").glob("*.json"):
            instance = json.loads(path.read_text())
            key = Path(instance["key_file"]).read_text().strip()
            return Stack(instance["url"], key, Path(instance["data_dir"]), env)
        time.sleep(0.05)
    raise AssertionError(f"`workron up` is not ready:\n{log.read_text()[-4000:]}")


def _interrupt(process: subprocess.Popen[bytes]) -> int:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        return process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
