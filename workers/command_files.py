"""The files by which a command exchanges data: `$WORKRON_CONTROL`, `$WORKRON_RESULT`, `$WORKRON_PARENTS`.

They are in one private directory of the worker process, named by the attempt's fence. The
command creates the first two, if it needs them: otherwise they cost only two failed lookups at its end. The
guardian removes the directory of a killed worker, or the next worker if the guardian died too.
"""

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from workers.shortage import Shortage, is_shortage
from workron.durations import parse_duration, to_ms
from workron.models import Outcome, Reason, user_json
from workron.models.text import first_line, last_bytes
from workron.runtime.logger import log

PREFIX: Final = "workron-notes-"
MEMORY: Final = "/dev/shm"  # noqa: S108 - a directory of our own in it
CONTROL, RESULT, PARENTS = b"control", b"result", b"parents"
EX_TEMPFAIL: Final = 75
"""The exit code, from sysexits.h, by which a command requests a later retry."""
_TAIL: Final = 4096
"""Bytes read from the end of the control file."""
_ERROR_BYTES: Final = 4096
_RETRY_AFTER: Final = re.compile(r"^WORKRON_RETRY_AFTER=(.*)$")
_LONGEST_WAIT_S: Final = 366 * 86_400.0
_OLD_S: Final = 60.0
"""A younger directory may not be locked by its worker yet."""


class Said(NamedTuple):
    """The content of a command's files."""

    result: str | None = None
    complaint: str | None = None
    """Why the written result was rejected."""
    progress: str | None = None
    retry_after_ms: int | None = None


class Notes:
    """The files of one worker's attempts. Until their directory can be created, no command starts: see `keep`."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self._lock = -1
        self._path = b""
        self._made: tuple[int, int] | None = None
        """Device and inode of the directory."""
        self._seen: dict[int, tuple[int, int]] = {}
        """Fence → modification time and size of its control file when it was last read."""

    def open(self) -> None:
        """Create the directory; a lock on it shows that its worker is alive."""
        with contextlib.suppress(FileNotFoundError):  # no directory for temporary files
            _sweep()
        try:
            self._own(_new_folder())
        except OSError as error:
            log.warning("commands can't start: their files can't be created", error=str(error))

    def _own(self, folder: str) -> None:
        if self._lock != -1:
            os.close(self._lock)
        self.folder, self._path = folder, os.fsencode(folder) + b"/"
        self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        about = os.fstat(self._lock)
        self._made = about.st_dev, about.st_ino

    def keep(self) -> None:
        """Restore the directory if needed: a command may have removed, moved, replaced or closed it.

        Raises Shortage if that is impossible at present.
        """
        if self.folder is not None and self._is_there():
            return
        try:
            if self.folder is None:
                self._own(_new_folder())
            else:
                log.warning("directory of command files recreated: a command removed it")
                self._make_again(self.folder)
        except OSError as error:
            raise Shortage(f"the directory of the commands' files can't be created: {error}") from error

    def _is_there(self) -> bool:
        with contextlib.suppress(OSError):
            about = os.lstat(self._path[:-1])
            if (about.st_dev, about.st_ino) == self._made:
                if stat.S_IMODE(about.st_mode) & stat.S_IRWXU != stat.S_IRWXU:
                    os.fchmod(self._lock, stat.S_IRWXU)
                return True
        return False

    def _make_again(self, folder: str) -> None:
        _remove_any(folder)
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        try:
            os.mkdir(folder, stat.S_IRWXU)
        except FileExistsError:  # it is somebody else's
            folder = _new_folder()
        self._own(folder)

    def close(self) -> None:
        """Remove the directory with its contents."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock != -1:
            os.close(self._lock)
        self.folder, self._lock = None, -1

    def variables(self, fence: int, *, parents: bool) -> dict[bytes, bytes]:
        """Return the variables with the paths of a command's files."""
        if self.folder is None:
            return {}
        path = b"%s%d." % (self._path, fence)
        found = {b"WORKRON_CONTROL": path + CONTROL, b"WORKRON_RESULT": path + RESULT}
        return found | {b"WORKRON_PARENTS": path + PARENTS} if parents else found

    def write_parents(self, fence: int, data: bytes) -> None:
        """Write the file with the results of the job's dependencies."""
        if self.folder is None:
            return
        self.keep()
        file = os.open(self._name(fence, PARENTS), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(file, "wb") as parents:
            parents.write(data)

    def take(self, fence: int, *, parents: bool) -> Said:
        """Read the files of an ended attempt's command, and remove them."""
        self._seen.pop(fence, None)
        if parents and self.folder is not None:
            self._remove(fence, PARENTS)
        path = b"%s%d." % (self._path, fence)
        # Most have written neither: asking first takes a third of the time of failing to open them.
        if self.folder is None or not (_exists(path + RESULT) or _exists(path + CONTROL)):
            return _NOTHING
        result = self._read(fence, RESULT, user_json.MAX_RESULT + 1)
        control = self._read(fence, CONTROL, _TAIL, tail=True)
        for kind, data in ((RESULT, result), (CONTROL, control)):
            if data is not None:
                self._remove(fence, kind)
        progress, retry_after_ms = _instructions(control or b"")
        return Said(*_checked(result), progress, retry_after_ms)

    def progress(self, fences: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Yield fence and progress of attempts with new progress since the last call.

        Each file is opened by its name: the number of files in the directory makes no difference.
        """
        for fence in fences if self.folder is not None else ():
            with contextlib.suppress(OSError, Shortage):
                about = os.stat(self._name(fence, CONTROL), follow_symlinks=False)
                seen = (about.st_mtime_ns, about.st_size)
                if self._seen.get(fence) != seen:
                    self._seen[fence] = seen
                    said, _ = _instructions(self._read(fence, CONTROL, _TAIL, tail=True) or b"")
                    if said is not None:
                        yield fence, said

    def forget(self, fence: int) -> None:
        """Yield the progress of an attempt again: it could not be delivered."""
        self._seen.pop(fence, None)

    def _name(self, fence: int, kind: bytes) -> bytes:
        return b"%s%d.%s" % (self._path, fence, kind)

    def _read(self, fence: int, kind: bytes, limit: int, *, tail: bool = False) -> bytes | None:
        """Return at most `limit` bytes of a file, None if there is none, b"" if it is not a regular file."""
        try:
            file = os.open(self._name(fence, kind), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            return _unreadable(error)
        try:
            about = os.fstat(file)
            if not stat.S_ISREG(about.st_mode):
                return b""
            return os.pread(file, limit, max(0, about.st_size - limit) if tail else 0)
        except OSError as error:
            return _unreadable(error)
        finally:
            os.close(file)

    def _remove(self, fence: int, kind: bytes) -> None:
        name = self._name(fence, kind)
        try:
            os.unlink(name)
        except IsADirectoryError:
            shutil.rmtree(name, ignore_errors=True)
        except OSError:
            pass  # the command has removed it


_NOTHING: Final = Said()
_exists: Final = partial(os.access, mode=os.F_OK, follow_symlinks=False)


def with_notes(outcome: Outcome, said: Said) -> Outcome:
    """Return the outcome with the content of its command's files, which is ignored for lost attempts."""
    if said is _NOTHING or outcome.reason is Reason.WORKER_LOST:
        return outcome
    asks = outcome.reason is Reason.EXIT_CODE and outcome.exit_code == EX_TEMPFAIL
    error = outcome.error
    if said.complaint is not None:
        first, _, rest = (error or "").partition("\n")
        head = f"{first}\n{said.complaint}" if first else said.complaint
        error = f"{head}\n{last_bytes(rest, _ERROR_BYTES - len(head.encode()) - 1)}" if rest else head
    return replace(
        outcome,
        error=error,
        result=said.result,
        progress=said.progress,
        retry_after_ms=said.retry_after_ms if asks else None,
    )


def _unreadable(error: OSError) -> bytes:
    """Return the content of a file that the command made unreadable; raise Shortage if the host is to blame."""
    if is_shortage(error):
        raise Shortage(f"the commands' files can't be read: {error}") from error
    return b""


def _checked(result: bytes | None) -> tuple[str | None, str | None]:
    """Return the result, or why it is rejected."""
    try:
        return (None if result is None else user_json.check(result, user_json.MAX_RESULT)), None
    except ValueError as error:
        return None, f"its result was not kept: what it wrote to $WORKRON_RESULT {error}"


def _instructions(control: bytes) -> tuple[str | None, int | None]:
    """Return the last progress and the last requested retry delay in the end of a control file."""
    progress, retry_after_ms = None, None
    for written in control.splitlines():  # of bytes: a carriage return ends a line, too, as in progress bars
        line = written.decode(errors="replace")
        if asked := _RETRY_AFTER.match(line):
            with contextlib.suppress(ValueError):
                retry_after_ms = to_ms(min(parse_duration(asked[1]), _LONGEST_WAIT_S))
        elif said := first_line(line.removeprefix("progress=")):
            progress = said
    return progress, retry_after_ms


def _remove_any(path: str) -> None:
    """Remove a file or directory, if it is ours; links are not followed."""
    with contextlib.suppress(OSError):
        about = os.lstat(path)
        if about.st_uid != os.geteuid():
            return
        if stat.S_ISDIR(about.st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


def _new_folder() -> str:
    """Create a private directory, in memory if there is no other place: a container may be read-only."""
    try:
        return tempfile.mkdtemp(prefix=PREFIX)
    except OSError:
        if not os.path.isdir(MEMORY):
            raise
        return tempfile.mkdtemp(prefix=PREFIX, dir=MEMORY)


def _sweep() -> None:
    """Remove the directories of dead workers: their lock is free."""
    for path in (*Path(tempfile.gettempdir()).glob(f"{PREFIX}*"), *Path(MEMORY).glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError):
            about = path.lstat()
            ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()
            if ours and time.time() - about.st_mtime > _OLD_S and _is_free(path):
                shutil.rmtree(path, ignore_errors=True)


def _is_free(path: Path) -> bool:
    file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(file)
    return True
