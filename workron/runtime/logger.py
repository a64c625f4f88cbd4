"""The logger of all modules: `log.info("worker ready", slots=4)` passes an event and its fields to one sink.

It has no part that could be slow to import: `logs` renders what it is given. The levels are those of `logging`.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final

Event = MutableMapping[str, Any]
"""The fields, with `level` and `event`; an error's traceback is in `exception`."""
Sink = Callable[[Event], None]
_NAMES: Final = {
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warning",
    logging.ERROR: "error",
    logging.CRITICAL: "critical",
}
ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def _to_logging(event: Event) -> None:
    """Pass events to the standard library, in programs that have not configured our logs."""
    level, message = logging.getLevelNamesMapping()[event.pop("level").upper()], event.pop("event")
    logging.getLogger("workron").log(level, " ".join([message, *(f"{name}={event[name]!r}" for name in event)]))


class _Output:
    """Where all loggers write to, and from which level on."""

    def __init__(self, level: int, sink: Sink) -> None:
        self.level = level
        self.sink = sink


class Logger:
    """Passes events with its own fields and those of each call to the output."""

    def __init__(self, output: _Output, fields: Mapping[str, Any]) -> None:
        self._output = output
        self._fields = fields

    def bind(self, **fields: Any) -> "Logger":
        """Return a logger that adds these fields to every event."""
        return Logger(self._output, {**self._fields, **fields})

    def debug(self, event: str, /, **fields: Any) -> None:
        self.log(logging.DEBUG, event, **fields)

    def info(self, event: str, /, **fields: Any) -> None:
        self.log(logging.INFO, event, **fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        self.log(logging.WARNING, event, **fields)

    def error(self, event: str, /, **fields: Any) -> None:
        self.log(logging.ERROR, event, **fields)

    def exception(self, event: str, /, **fields: Any) -> None:
        """Log an error with the traceback of the exception that is being handled."""
        self.log(logging.ERROR, event, exc_info=sys.exc_info(), **fields)

    def log(self, level: int, event: str, /, *, exc_info: Any = None, **fields: Any) -> None:
        """Log an event; `exc_info` is the exception it is about, as `sys.exc_info` returns it."""
        if level < self._output.level:
            return
        if exc_info and exc_info[0] is not None:
            fields["exception"] = _formatted(exc_info)
        self._output.sink({**self._fields, **fields, "level": _name(level), "event": event})


def _name(level: int) -> str:
    return next((name for least, name in reversed(_NAMES.items()) if level >= least), "debug")


def _formatted(exc_info: ExcInfo) -> str:
    import traceback

    return "".join(traceback.format_exception(*exc_info)).rstrip("\n")


_output: Final = _Output(logging.INFO, _to_logging)
log: Final = Logger(_output, {})


def send(level: int, sink: Sink | None = None) -> None:
    """Send events of this level and above to the sink from now on, by default to the present one."""
    _output.level, _output.sink = level, sink or _output.sink


@contextmanager
def sent(level: int, sink: Sink | None = None) -> Iterator[None]:
    """As `send`, meanwhile."""
    before = _output.level, _output.sink
    send(level, sink)
    try:
        yield
    finally:
        send(*before)
