"""A job's retry policy, and its text form in Redis (see `lua/lib/retries.lua`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

Code = int | str
"""An exit code, or a range like `64-78`."""
_SETTING: Final = "-"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Delays between attempts: `delay_ms`, multiplied by `factor` each time, at most `max_delay_ms`.

    The share `jitter` of each delay is random. None: the default of the settings.
    """

    delay_ms: int | None = None
    factor: float | None = None
    max_delay_ms: int | None = None
    jitter: float | None = None


def pack(policy: RetryPolicy | None, only: Sequence[Code], never: Sequence[Code]) -> str:
    """Return the text of a policy with its retried and its never retried exit codes."""
    policy = policy or RetryPolicy()
    numbers = (policy.delay_ms, policy.factor, policy.max_delay_ms, policy.jitter)
    words = " ".join(_SETTING if number is None else f"{number:.12g}" for number in numbers)
    return f"{words}|{','.join(map(str, only))}|{','.join(map(str, never))}"


def unpack(line: str) -> tuple[RetryPolicy | None, tuple[Code, ...], tuple[Code, ...]]:
    """Return the arguments of `pack`; raise ValueError for an invalid text."""
    words, only, never = line.split("|")
    delay, factor, max_delay, jitter = (None if word == _SETTING else float(word) for word in words.split())
    policy = RetryPolicy(_whole(delay), factor, _whole(max_delay), jitter)
    return None if policy == RetryPolicy() else policy, _codes(only), _codes(never)


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _codes(text: str) -> tuple[Code, ...]:
    return tuple(int(code) if code.isdecimal() else code for code in text.split(",") if code)
