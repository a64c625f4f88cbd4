"""The embedded Valkey server of `workron up`: one process with all its files in the data directory.

    DATA_DIR/lock              held by the process that may start a server here
    DATA_DIR/valkey/           mode 0700: journal, configuration, log, socket
    DATA_DIR/valkey/running    locked by the server itself, for as long as it (or a child of it) lives

Two locks, because the starter can be killed while the server lives on: a new starter owns `lock`, sees by `running`
that a server of an earlier one is left, stops it over its socket, and waits until the lock is free. No pid is trusted.
An orphaned server stops by itself: a shell in its process group waits for the end of a pipe, kept open by the starter
and all other holders of `lifeline_fd`.
"""

import asyncio
import fcntl
import hashlib
import os
import shlex
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

from workron.errors import NoRoom, StartupError
from workron.local import secure_files, valkey
from workron.local.processes import ended, ended_within, how_it_ended
from workron.runtime.logger import log

_LONGEST_SOCKET_PATH: Final = 100
_POLL_S: Final = 0.002
_SLOW_POLL_S: Final = 0.05
_LISTENS_WITHIN_S: Final = 60.0
_STOP_S: Final = 15.0
_LEFTOVER_S: Final = 20.0
_SLOW_LOAD_S: Final = 2.0
_LOG_BYTES: Final = 1024 * 1024
_ROOM_BYTES: Final = 4 * 1024 * 1024
_ROOM_POLL_S: Final = 1.0
# stdin is the pipe, stdout the lock. `kill 0` reaches only this process group, whose number can't be reused while
# the shell that runs it is in there; after `exec` the server has the pid that we started.
_SCRIPT: Final = """
exec 3<&0 4>&1 </dev/null >/dev/null
(exec 4>&-; read -r _ <&3; kill 0) &
exec "$@" 3<&-
"""


class EmbeddedServer:
    """Starts and stops the server of one data directory. Not bound to an event loop.

    A TCP port is open to all users of the machine, without a password: for tests only.
    """

    def __init__(self, data_dir: Path, *, port: int = 0, binary: Path | None = None) -> None:
        self.data_dir: Final = data_dir.absolute()
        self.directory: Final = self.data_dir / "valkey"
        self.log_file: Final = self.directory / "valkey.log"
        self._running: Final = self.directory / "running"
        self.socket: Final = _socket_path(self.directory)
        self.url: Final = f"unix://{quote(os.fsencode(self.socket))}"
        self._port = port
        self._binary = binary
        self._lock_fd: int | None = None
        self._pipe: tuple[int, int] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def lifeline_fd(self) -> int:
        """Descriptor that keeps the server running while it is open, even after the starter has ended."""
        assert self._pipe, "the data directory is not locked"  # noqa: S101 - open while this is
        return self._pipe[1]

    @property
    def redis_cli(self) -> str | None:
        """The command that opens a prompt of the server; None if no such program is installed."""
        program = valkey.client_program()
        return program and f"{program} -s {shlex.quote(str(self.socket))}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def lock(self) -> None:
        """Take the lock of the data directory, or raise StartupError; `start` does it too."""
        if self._lock_fd is not None:
            return
        secure_files.make_dir(self.data_dir)
        fd = secure_files.open_lock(self.data_dir / "lock")
        if not _locked(fd):
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise StartupError(f"{self.data_dir} is in use by another workron up (pid {holder})")
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            os.close(fd)
            raise StartupError(f"can't write to {self.data_dir}: {error.strerror}") from error
        self._lock_fd, self._pipe = fd, os.pipe()

    async def start(self) -> None:
        """Start the server and wait until it answers; raise StartupError with one line if it fails."""
        locked_before = self._lock_fd is not None
        self.lock()
        try:
            await self._start()
        except BaseException as error:
            await self._end()
            if not locked_before:
                self._unlock()
            if isinstance(error, OSError):
                kind = NoRoom if error.errno in valkey.NO_ROOM else StartupError
                raise kind(f"can't start a server in {self.data_dir}: {error.strerror}") from error
            raise

    async def _start(self) -> None:
        secure_files.make_secret_dir(self.directory)
        if self.socket.parent != self.directory:
            secure_files.make_secret_dir(self.socket.parent)
        await self._end_leftover()
        self.rotate_log()
        self._process = self._spawn()
        await self._answers()

    def _spawn(self) -> subprocess.Popen[bytes]:
        assert self._pipe  # noqa: S101 - open while this is
        config = self.directory / "valkey.conf"
        text = valkey.configuration(directory=self.directory, socket=self.socket, log=self.log_file, port=self._port)
        secure_files.write_file(config, text.encode())
        self.socket.unlink(missing_ok=True)
        binary = self._binary or valkey.server_binary()
        with open(self._running, "ab") as running, open(self.log_file, "ab") as errors:
            fcntl.flock(running, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._log_start = errors.tell()
            return subprocess.Popen(  # noqa: S603 — our own program and paths, no shell text
                ["/bin/sh", "-c", _SCRIPT, "workron", str(binary), str(config)],
                stdin=self._pipe[0],
                stdout=running,
                stderr=errors,
                cwd=self.directory,
                env={"PATH": os.defpath, "LC_ALL": "C"},
                start_new_session=True,
                umask=0o077,
                restore_signals=False,  # SIGXFSZ stays ignored: a limit on files is a failed write, not a crash
            )

    async def _answers(self) -> None:
        """Wait until the server is ready, without a limit while it reads a long journal."""
        assert self._process  # noqa: S101 - open while this is
        gone = asyncio.ensure_future(ended(self._process))
        since_s, told = time.monotonic(), False
        try:
            while not gone.done():
                reply = await valkey.ask(self.socket, "PING")
                if reply == "+PONG":
                    return
                waited_s = time.monotonic() - since_s
                if not reply and waited_s > _LISTENS_WITHIN_S:
                    raise StartupError(f"the embedded server does not answer, see {self.log_file}")
                if not told and waited_s > _SLOW_LOAD_S:
                    told = True
                    log.info("embedded server is still starting", reply=reply or "none")
                await asyncio.sleep(_POLL_S if waited_s < _SLOW_LOAD_S else _SLOW_POLL_S)
        finally:
            gone.cancel()
        raise self._obituary("at start")

    async def wait(self) -> str:
        """Wait until the server ends by itself and return how; raise NoRoom if the disk is full."""
        assert self._process, "the server is not running"  # noqa: S101 - open while this is
        await ended(self._process)
        obituary = self._obituary("unexpectedly")
        if isinstance(obituary, NoRoom):
            raise obituary
        return str(obituary)

    def _obituary(self, when: str) -> StartupError:
        code, words = self._reap(), self._log_since_start()
        if reason := valkey.write_failure(words, self.directory):
            return NoRoom(f"the embedded server can't write to {self.directory}: {reason}")
        return StartupError(
            f"the embedded server ended {when} ({how_it_ended(code)}): {valkey.last_words(words)}; see {self.log_file}"
        )

    def _log_since_start(self) -> str:
        with open(self.log_file, "rb") as file:
            file.seek(self._log_start)
            return file.read(_LOG_BYTES).decode(errors="replace")

    def _reap(self) -> int:
        """Reap the ended server, and the shell in its group."""
        process, self._process = self._process, None
        if process is None:
            return 0
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return process.wait()

    async def room(self) -> None:
        """Return when the disk is writable again. [The free space does not consider quotas and limits.]"""
        probe = self.directory / "probe"
        while True:
            try:
                probe.write_bytes(bytes(_ROOM_BYTES))
                probe.unlink()
            except OSError:
                with suppress(OSError):
                    probe.unlink(missing_ok=True)
                await asyncio.sleep(_ROOM_POLL_S)
            else:
                return

    async def _end_leftover(self) -> None:
        """Stop the server left by an earlier starter, if it did not stop by itself."""
        until_s, told = time.monotonic() + _LEFTOVER_S, False
        with self._running.open("ab") as running:
            while not _locked(running.fileno()):
                if time.monotonic() > until_s:
                    pid = (self.directory / valkey.PID_FILE).read_text().strip()
                    raise StartupError(
                        f"a server that an earlier run left in {self.data_dir} (pid {pid}) does not end: kill it"
                    )
                if not told:
                    told = True
                    log.info("stopping the server of an earlier run", data_dir=str(self.data_dir))
                await valkey.ask(self.socket, "SHUTDOWN NOSAVE FORCE")
                await asyncio.sleep(_POLL_S)

    async def stop(self) -> None:
        """Stop the server, wait for it, and release the data directory."""
        await self._end()
        self._unlock()

    async def _end(self) -> None:
        if self._process is None:
            return
        os.kill(self._process.pid, signal.SIGTERM)
        if not await ended_within(self._process, _STOP_S):
            log.warning("embedded server did not stop in time, killing it", server_pid=self._process.pid)
            os.kill(self._process.pid, signal.SIGKILL)
            await ended(self._process)
        self._reap()
        self.socket.unlink(missing_ok=True)

    def _unlock(self) -> None:
        for fd in (self._lock_fd, *(self._pipe or ())):
            if fd is not None:
                os.close(fd)
        self._lock_fd = self._pipe = None

    def rotate_log(self) -> None:
        """Rotate the log: a full one becomes `valkey.log.old`. The server reopens it for each line."""
        with suppress(FileNotFoundError):
            if self.log_file.stat().st_size > _LOG_BYTES:
                self.log_file.replace(self.log_file.with_suffix(".log.old"))
                self._log_start = 0


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _socket_path(directory: Path) -> Path:
    path = directory / "valkey.sock"
    if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
        return path
    return secure_files.short_dir() / f"{hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]}.sock"
