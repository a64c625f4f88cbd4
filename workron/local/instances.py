"""State shared by the processes of one user on one machine: the API key, and the running `workron up`.

Every ready `up` keeps a small file in a private directory of its user. The commands of the CLI
find it there, independent of its port and data directory.
"""

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workron.errors import StartupError
from workron.local import secure_files

if TYPE_CHECKING:
    from workron.settings import Settings

KEY_FILE: Final = "api-key"
_KEY: Final = re.compile(r"[\x21-\x7e]{16,512}")
_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class ApiKey:
    """The key of the API, and its file (None: it was given by the settings)."""

    value: str
    file: Path | None


def api_key(settings: "Settings") -> ApiKey | None:
    """Return the key from the settings, otherwise that of the data directory, created at the first call.

    None with `no_auth`. Raises StartupError for an unusable key.
    """
    if settings.no_auth:
        return None
    if settings.api_key is not None:
        value = settings.api_key.get_secret_value()
        if not _KEY.fullmatch(value):
            raise StartupError("the API key must have 16 to 512 printable ASCII characters and no spaces")
        return ApiKey(value, None)
    if settings.api_key_file is not None:
        return ApiKey(read_key(settings.api_key_file), settings.api_key_file)
    import secrets  # with what it needs it takes a client's calls 5 ms

    path = secure_files.make_dir(settings.home) / KEY_FILE
    try:
        secure_files.check_place(path.parent)
        with suppress(FileExistsError):
            if not path.is_symlink() and not path.exists():
                secure_files.write_file(path, secrets.token_urlsafe(_KEY_BYTES).encode() + b"\n", replace=False)
    except OSError as error:
        raise StartupError(f"can't write the API key to {path}: {error.strerror}") from error
    return ApiKey(read_key(path, secure_files.read_own), path)


def read_key(path: Path, read: Callable[[Path], bytes] = Path.read_bytes) -> str:
    """Return the key in a file; raise StartupError if there is none."""
    try:
        value = read(path).decode("ascii").strip()
    except OSError as error:
        raise StartupError(f"can't read the API key in {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        value = ""
    if not _KEY.fullmatch(value):
        raise StartupError(f"{path} holds no usable API key: it must be 16 to 512 printable ASCII characters")
    return value


@dataclass(frozen=True, slots=True)
class Instance:
    """A ready `workron up`. `redis` is the URL of its embedded server, None for an external server."""

    pid: int
    started_at: str
    """RFC 3339, UTC."""
    url: str
    key_file: str | None
    data_dir: str
    redis: str | None
    birth: str
    """Distinguishes the process from a later one with the same pid."""


def register(instance: Instance) -> Path:
    """Register the instance for `find`; return the file to remove at its end."""
    directory = _usable_dir()
    path = directory / f"{instance.pid}-{instance.birth.rpartition('/')[2]}.json"
    secure_files.write_file(path, json.dumps(asdict(instance)).encode())
    return path


def find() -> list[Instance]:
    """Return the running instances of this user, newest first; remove dead ones."""
    found = []
    for directory in filter(secure_files.is_secret_dir, secure_files.shared_dir_candidates()):
        for path in directory.glob("*-*.json"):
            instance = _read(path)
            if instance is not None and birth(instance.pid) == instance.birth:
                found.append(instance)
            else:
                path.unlink(missing_ok=True)
    return sorted(found, key=lambda instance: instance.started_at, reverse=True)


def birth(pid: int) -> str | None:
    """Return boot and start time of a running process, to identify it despite pid reuse; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    state, *fields = stat[stat.rindex(b")") + 2 :].split()
    return None if state in b"ZX" else f"{boot}/{fields[18].decode()}"


def _read(path: Path) -> Instance | None:
    try:
        return Instance(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _usable_dir() -> Path:
    """Return the first usable shared directory."""
    problem = StartupError("no directory to announce this instance in")
    for candidate in secure_files.shared_dir_candidates():
        if not candidate.parent.is_dir():
            continue
        try:
            return secure_files.make_secret_dir(candidate)
        except StartupError as error:
            problem = error
    raise problem


def this_process() -> tuple[int, str]:
    """Return pid and birth of this process."""
    pid = os.getpid()
    return pid, birth(pid) or ""
