"""How a job is tried again: its own policy, and the line that it is in Redis (see `lua/lib/retries.lua`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

Code = int | str
"""An exit code, or a range like `64-78`."""
_SETTING: Final = "-"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The waits between attempts: `delay_ms` × `factor` for each further one, at most `max_delay_ms`.

    The share `jitter` of it is left to chance. None: as it is set for all jobs.
    """

    delay_ms: int | None = None
    factor: float | None = None
    max_delay_ms: int | None = None
    jitter: float | None = None


def pack(policy: RetryPolicy | None, only: Sequence[Code], never: Sequence[Code]) -> str:
    """Return the line of a policy, and the exit codes that are tried again, and those that never are."""
    policy = policy or RetryPolicy()
    numbers = (policy.delay_ms, policy.factor, policy.max_delay_ms, policy.jitter)
    words = " ".join(_SETTING if number is None else f"{number:.12g}" for number in numbers)
    return f"{words}|{','.join(map(str, only))}|{','.join(map(str, never))}"


def unpack(line: str) -> tuple[RetryPolicy | None, tuple[Code, ...], tuple[Code, ...]]:
    """Return what `pack` was given; ValueError if the line is none of its own."""
    words, only, never = line.split("|")
    delay, factor, max_delay, jitter = (None if word == _SETTING else float(word) for word in words.split())
    policy = RetryPolicy(_whole(delay), factor, _whole(max_delay), jitter)
    return None if policy == RetryPolicy() else policy, _codes(only), _codes(never)


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _codes(text: str) -> tuple[Code, ...]:
    return tuple(int(code) if code.isdecimal() else code for code in text.split(",") if code)
