"""Logging of every process: coloured lines on a terminal, JSON lines elsewhere, always to stderr.

The processes of `workron up` share one stderr. Each line is a single `write`, short enough
for a pipe to take it atomically, so lines never mix. Names and commands of users are escaped:
a value can neither start a line nor send control sequences to a terminal.
"""

import json
import logging
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from workron.lines import lines_of
from workron.runtime import logger
from workron.runtime.logger import Event, log
from workron.settings import Settings

STDERR: Final = 2
_PIPE_LINE: Final = 4096
"""Maximum size of an atomic write to a pipe (PIPE_BUF on Linux)."""
_LONGEST_LINE: Final = 64 * 1024
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_BARE: Final = re.compile(r"[^\s\"'=\\]+")
_DIM, _BOLD, _RESET = "\x1b[2m", "\x1b[1m", "\x1b[0m"
_COLOURS: Final = {"debug": _DIM, "info": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m"}
_LEADING: Final = ("timestamp", "level", "process", "pid", "event")

Render = Callable[[Mapping[str, Any]], str]


def configure(settings: Settings, process: str) -> None:
    """Send the logs of this process and its libraries to stderr; every line has `process`."""
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    stamp, fit = _Stamp(process), _Fit(renderer(settings), _line_limit())
    logger.send(level, lambda event: write(fit(stamp(event))))
    _route_stdlib(level)


def uses_console(settings: Settings) -> bool:
    """Return whether the log goes to a terminal rather than to a program."""
    return settings.log_format == "console" or (settings.log_format == "auto" and os.isatty(STDERR))


def renderer(settings: Settings) -> Render:
    """Return the renderer of events, without the line's end."""
    if not uses_console(settings):
        return render_json
    colours = os.isatty(STDERR) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return render_colours if colours else render_console


def printable(text: str) -> str:
    """Return the text with line breaks and control characters escaped."""
    return _UNSAFE.sub(lambda match: repr(match[0])[1:-1], text)


def render_json(event: Mapping[str, Any]) -> str:
    line = json.dumps(event, ensure_ascii=False, default=str)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", line)


def render_console(event: Mapping[str, Any]) -> str:
    return "\n".join([" ".join(_words(event)), *_traceback_lines(event)])


def render_colours(event: Mapping[str, Any]) -> str:
    time, level, process, message, *fields = _words(event)
    head = (
        f"{_DIM}{time}{_RESET}",
        f"{_COLOURS.get(event['level'], _COLOURS['error'])}{level}{_RESET}",
        f"{_DIM}{process}{_RESET}",
        f"{_BOLD}{message}{_RESET}",
    )
    pairs = (field.partition("=") for field in fields)
    coloured = (f"{_DIM}{name}={_RESET}{value}" for name, _, value in pairs)
    return "\n".join([" ".join([*head, *coloured]), *_traceback_lines(event)])


def _words(event: Mapping[str, Any]) -> Iterable[str]:
    yield event["timestamp"]
    yield f"{event['level']:<7}"
    yield f"{event['process']:<6}"
    yield printable(str(event["event"]))
    for name, value in event.items():
        if name not in _LEADING and name != "exception":
            yield f"{name}={_value(value)}"


def _value(value: Any) -> str:
    if not isinstance(value, str):
        return printable(repr(value))
    return printable(value if _BARE.fullmatch(value) else json.dumps(value, ensure_ascii=False))


def _traceback_lines(event: Mapping[str, Any]) -> Iterable[str]:
    # Indented: a line inside an exception's text can't pass for a log line.
    return (f"    {printable(line)}" for line in lines_of(str(event.get("exception", ""))))


class _Stamp:
    """Adds time and process; puts these fields first."""

    def __init__(self, process: str) -> None:
        self._process = process

    def __call__(self, event: Event) -> dict[str, Any]:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
        first = {
            "timestamp": f"{now}Z",
            "level": event.pop("level"),
            "process": self._process,
            "pid": os.getpid(),
            "event": event.pop("event"),
        }
        return first | dict(event) | first


class _Fit:
    """Renders, and halves the longest field until the line fits."""

    def __init__(self, render: Render, limit: int) -> None:
        self._render = render
        self._limit = limit

    def __call__(self, event: Event) -> bytes:
        while True:
            line = self._render(event).encode("utf-8", "backslashreplace") + b"\n"
            longest = max(event, key=lambda name: len(str(event[name])))
            if len(line) <= self._limit or len(str(event[longest])) < 32:
                return line
            event[longest] = _halved(str(event[longest]))


def _halved(text: str) -> str:
    quarter = len(text) // 4
    return f"{text[:quarter]} … {text[-quarter:]}"


def _line_limit() -> int:
    try:
        return _PIPE_LINE if stat.S_ISFIFO(os.fstat(STDERR).st_mode) else _LONGEST_LINE
    except OSError:
        return _PIPE_LINE


def write(text: bytes) -> None:
    """Write to stderr atomically. A closed log must not stop a process."""
    with suppress(OSError):
        while text:
            text = text[os.write(STDERR, text) :]


class _ToOurs(logging.Handler):
    """Forwards records of libraries (uvicorn, asyncio) to our logger."""

    def emit(self, record: logging.LogRecord) -> None:
        log.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)


def _route_stdlib(level: int) -> None:
    """Replace the handlers of the root logger: warnings and errors, at debug level more."""
    root = logging.getLogger()
    root.handlers = [_ToOurs()]
    root.setLevel(logging.INFO if level <= logging.DEBUG else max(level, logging.WARNING))
    for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "uvicorn"]:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
        logger.setLevel(logging.NOTSET)
    logging.captureWarnings(capture=True)
