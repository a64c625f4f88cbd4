"""Directories and files accessible only to their owner."""

import os
import stat
from pathlib import Path

from workron.errors import StartupError


def make_dir(path: Path) -> Path:
    """Create the directory with mode 0700, and its parents; an existing one is left unchanged."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StartupError(f"can't create the directory {path}: {error.strerror}") from error
    return path


def make_secret_dir(path: Path) -> Path:
    """Like `make_dir`, but an existing one must be this user's, and private."""
    make_dir(path)
    if not is_secret_dir(path):
        raise StartupError(f"{path} is not a directory of this user with mode 0700")
    return path


def is_secret_dir(path: Path) -> bool:
    """Return whether the path is a private directory of this user, not a link."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def open_lock(path: Path) -> int:
    """Open a file of mode 0600 for a lock, created if needed; raise StartupError if that fails."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StartupError(f"can't write to {path}: {error.strerror}; choose a directory with --data-dir") from error


def check_place(path: Path) -> None:
    """Raise StartupError for a directory in which other users could replace our file."""
    found = path.stat()
    if found.st_uid not in (os.geteuid(), 0):
        raise StartupError(f"{path} belongs to another user, and that user could put another API key there")
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise StartupError(f"all users can write to {path}, and could put another API key there: chmod o-w {path}")


def read_own(path: Path) -> bytes:
    """Return the content of a private file of this user; raise StartupError for other files, and for links."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise StartupError(f"{path} is not a file of this user: remove it, and a new key is made")
        if found.st_mode & 0o007:
            raise StartupError(f"everybody may read or write {path}: chmod o-rwx {path}")
        return file.read()


def write_file(path: Path, data: bytes, *, replace: bool = True) -> None:
    """Write a file of mode 0600 atomically, also in case of a crash.

    Without `replace` an existing file is kept, and FileExistsError raised.
    """
    draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            draft.replace(path)
        else:
            path.hardlink_to(draft)
    finally:
        draft.unlink(missing_ok=True)
    _sync_dir(path.parent)


def _sync_dir(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def shared_dir_candidates() -> list[Path]:
    """Return candidates for a directory shared by a user's processes, best first; none need exist.

    The user's own `XDG_RUNTIME_DIR`, if it is not the system's, is the only one: it keeps instances apart.
    """
    usual, named = Path(f"/run/user/{os.geteuid()}"), os.environ.get("XDG_RUNTIME_DIR")
    if named and Path(named).is_absolute() and Path(named) != usual and _is_own(Path(named)):
        return [Path(named) / "workron"]
    return [usual / "workron", short_dir()]


def _is_own(path: Path) -> bool:
    try:
        return path.stat().st_uid == os.geteuid()
    except OSError:
        return False


def short_dir() -> Path:
    """Return a path short enough for Unix sockets, whose paths may have about 100 bytes."""
    return Path(f"/tmp/workron-{os.geteuid()}")  # noqa: S108 — owner and mode are checked before use
