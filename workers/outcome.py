"""The outcome of an attempt, with a readable error message."""

import signal
from enum import Enum, auto
from typing import Final

from workers.output import OutputBuffer
from workron.durations import to_seconds
from workron.models import Claim, Outcome, Reason
from workron.models.text import harmless, last_bytes

_ERROR_BYTES: Final = 4096


class Ending(Enum):
    """Why a worker, or its guardian, stopped a command."""

    TIMEOUT = auto()
    CANCEL = auto()
    STOP = auto()
    LOSE = auto()
    REFUSE = auto()


def not_started(sentence: str) -> Outcome:
    """Return the outcome of a command that the system failed to start."""
    return Outcome(Reason.SPAWN, error=last_bytes(harmless(sentence), _ERROR_BYTES))


def refused(outcome: Outcome, why: str) -> Outcome:
    """Return the failure to report instead of a rejected outcome, without its long fields."""
    reason = Reason.EXIT_CODE if outcome.reason is None else outcome.reason
    return Outcome(reason, outcome.exit_code, outcome.signal, last_bytes(harmless(_refused(why)), _ERROR_BYTES))


def _refused(why: str) -> str:
    return f"what its worker reported was refused: {why}"


def outcome_of(claim: Claim, ending: Ending | None, status: int | None, output: OutputBuffer, why: str = "") -> Outcome:
    """Return the outcome of a command that ended by itself (`ending` None) or was stopped.

    `status` is its exit code, negative for a signal, None if it was not started or the code is unknown; `why` is
    the API's response if it rejected the attempt's reports.
    """
    if ending is None and status == 0:
        return Outcome(None, exit_code=0)
    reason, sentence = _judge(claim, ending, status, why)
    tail = output.tail_text(_ERROR_BYTES - len(sentence) - 1)
    return Outcome(
        reason,
        exit_code=status if status is not None and status >= 0 else None,
        signal=-status if status is not None and status < 0 else None,
        error=f"{sentence}\n{tail}" if tail else sentence,
    )


def _judge(claim: Claim, ending: Ending | None, status: int | None, why: str) -> tuple[Reason, str]:
    match ending:
        case Ending.TIMEOUT:
            return Reason.TIMEOUT, f"timed out after {to_seconds(claim.timeout_ms or 0):g} s"
        case Ending.CANCEL:
            return Reason.CANCELLED, "cancelled"
        case Ending.STOP:
            return Reason.WORKER_LOST, "stopped together with its worker"
        case Ending.LOSE:
            return Reason.WORKER_LOST, "killed because its worker could not keep the lease"
        case Ending.REFUSE:
            return (Reason.EXIT_CODE if status is None or status >= 0 else Reason.SIGNAL), _refused(why)
        case None if status is None:
            return Reason.WORKER_LOST, "ended, but its worker could not learn how"
        case None if status < 0:
            return Reason.SIGNAL, f"killed by {_signal_name(-status)}"
        case None:
            return Reason.EXIT_CODE, f"exit code {status}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"
