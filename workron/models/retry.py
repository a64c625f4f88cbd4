"""A job's retry policy."""

from dataclasses import dataclass

Code = int | str
"""An exit code, or a range like `64-78`."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Delays between attempts: `delay_ms`, multiplied by `factor` each time, at most `max_delay_ms`.

    The share `jitter` of each delay is random. None: the default of the settings.
    """

    delay_ms: int | None = None
    factor: float | None = None
    max_delay_ms: int | None = None
    jitter: float | None = None
