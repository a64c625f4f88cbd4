"""Converts a claim to a program to execute, and errors of its start to a sentence."""

import errno
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from workers.guardian import FENCE_VARIABLE, GUARD_VARIABLE, limit_of
from workers.shortage import is_shortage
from workers.spawn import Program
from workron.models import Claim

_ALLOWED: Final = frozenset(
    {b"PATH", b"HOME", b"USER", b"LOGNAME", b"SHELL", b"LANG", b"LANGUAGE", b"TZ", b"TMPDIR", b"WORKRON_URL"}
)
"""Variables that a command inherits from its worker, like LC_*. All others may be secrets or are the worker's own; a
job that needs more sets them in its `env`. No TERM: there is no terminal."""

_FENCE: Final = FENCE_VARIABLE.encode()
_GUARD: Final = GUARD_VARIABLE.encode()
SHELL: Final = b"/bin/sh"
_LONGEST_ARGUMENT: Final = 128 * 1024 - 1
"""Linux's maximum length of a single argument (MAX_ARG_STRLEN)."""
_NOT_OF_THE_SHELL: Final = (errno.E2BIG, errno.ENOTDIR)
"""Errors of the arguments, and of a command whose working directory is the shell itself."""
_OF_THE_SYSTEM: Final = (errno.EAGAIN, errno.ENOMEM)
"""Too many processes or too little memory: not the fault of the program named in the error."""
_SOURCE_STDIN: Final = (b"sh", b"-c", b"--", b". /dev/fd/0")
_EMPTY_STDIN: Final = b"exec </dev/null; "


def allowed_environment(environ: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the variables that commands inherit from the worker."""
    return {name: value for name, value in environ.items() if name in _ALLOWED or name.startswith(b"LC_")}


def program_for(
    claim: Claim, environment: Mapping[bytes, bytes], guard: str, files: Mapping[bytes, bytes] = MappingProxyType({})
) -> Program:
    """Return the program to execute for a claim; raise ValueError if its text can't be passed to a program.

    `files` are the variables that name the attempt's files.
    """
    env = _environment(claim, environment, guard)
    env.update(files)
    cwd = _encode(claim.cwd) if claim.cwd is not None else None
    mark = limit_of(guard, claim.fence)
    if claim.command is None:
        argv = tuple(_encode(argument) for argument in claim.argv or ())
        if not argv:
            raise ValueError("no program named")
        return Program(argv[0], argv, env, cwd, mark=mark)
    command = _encode(claim.command)
    if len(command) <= _LONGEST_ARGUMENT:
        return Program(SHELL, (b"sh", b"-c", b"--", command), env, cwd, mark=mark)
    if b"\0" in command:
        raise ValueError("embedded null byte")
    # The shell reopens the file of its standard input, then makes the input empty as for other commands.
    return Program(SHELL, _SOURCE_STDIN, env, cwd, script=_EMPTY_STDIN + command, mark=mark)


def _environment(claim: Claim, environment: Mapping[bytes, bytes], guard: str) -> dict[bytes, bytes]:
    """Return the worker's, then the job's, then the attempt's variables: later ones win."""
    env = dict(environment)
    for name, value in claim.env.items():
        if "=" in name:
            raise ValueError("illegal environment variable name")
        env[_encode(name)] = _encode(value)
    env[b"WORKRON_JOB_ID"] = claim.id.encode()
    env[b"WORKRON_ATTEMPT"] = b"%d" % claim.attempt
    env[b"WORKRON_QUEUE"] = _encode(claim.queue)
    if array := claim.more.get("array"):
        env[b"WORKRON_ARRAY_ID"] = _encode(array["id"])
        env[b"WORKRON_ARRAY_INDEX"] = b"%d" % array["index"]
        env[b"WORKRON_ARRAY_SIZE"] = b"%d" % array["size"]
        if (value := array.get("value")) is not None:
            env[b"WORKRON_ARRAY_VALUE"] = _encode(value)
    if workflow := claim.more.get("workflow"):
        env[b"WORKRON_WORKFLOW_ID"] = _encode(workflow)
    if token := claim.more.get("token"):
        env[b"WORKRON_TOKEN"] = _encode(token)
    env[_FENCE] = b"%d" % claim.fence
    env[_GUARD] = guard.encode()
    return env


def _encode(text: str) -> bytes:
    """Return the bytes of a text from JSON; bytes that are not UTF-8 travel as lone surrogates U+DC80…U+DCFF."""
    return text.encode("utf-8", "surrogateescape")


def is_of_the_host(error: OSError) -> bool:
    """Return whether a command could not be started for a reason that is no fault of its own."""
    return is_shortage(error) or (error.filename == SHELL and error.errno not in _NOT_OF_THE_SHELL)


def why_not_started(claim: Claim, error: OSError | ValueError) -> str:
    """Return a sentence with the reason why the command could not be started."""
    if isinstance(error, UnicodeError):
        return "the command can't be started: its text is not valid Unicode"
    if isinstance(error, ValueError):
        return f"the command can't be started: {error}"
    reason = error.strerror or str(error)
    if claim.cwd is not None and error.filename == _encode(claim.cwd):
        return f"the working directory {claim.cwd} can't be used: {reason}"
    if error.errno == errno.E2BIG:
        return "the command can't be started: its arguments and environment are too long for this system"
    if error.errno not in _OF_THE_SYSTEM and error.filename in (SHELL, _encode(claim.argv[0] if claim.argv else "")):
        return f"the program {os.fsdecode(error.filename)} can't be executed: {reason}"
    return f"the command can't be started: {reason}"
