"""Ended attempts to be reported to the store."""

from collections.abc import Sequence
from typing import Any, Final

from workers.attempt import Attempt
from workers.output_writer import OutputWriter
from workron.models import Finished, Outcome, Result, Verdict
from workron.models.exchange import MAX_RESULTS
from workron.runtime.logger import Logger

MAX_OUTPUT: Final = 1_000_000
"""Maximum size of output and results in one call."""

Ending = tuple[Attempt, Outcome]


class Ended:
    """The ended attempts that are not stored yet, in order."""

    def __init__(self, output: OutputWriter) -> None:
        self._output = output
        self._waiting: list[Ending] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, attempt: Attempt, outcome: Outcome) -> None:
        self._waiting.append((attempt, outcome))

    def take(self) -> list[Ending]:
        """Take the results for the next call, bounded in number and bytes; wait for output in open calls.

        Jobs to release stay for `take_given_back`: as a result they would count as an attempt.
        """
        batch: list[Ending] = []
        left: list[Ending] = []
        room = MAX_OUTPUT
        for attempt, outcome in self._waiting:
            size = attempt.output.untaken + len(outcome.result or "")
            late = attempt.given_back or attempt.claim.fence in self._output.under_way
            if late or len(batch) == MAX_RESULTS or (batch and size > room):
                left.append((attempt, outcome))
            else:
                batch.append((attempt, outcome))
                room -= size
        self._waiting = left
        return batch

    def take_given_back(self) -> list[Ending]:
        """Take the attempts whose jobs are to be released."""
        given_back = [pair for pair in self._waiting if pair[0].given_back]
        if given_back:
            self._waiting = [pair for pair in self._waiting if not pair[0].given_back]
        return given_back


def log_answers(log: Logger, batch: Sequence[Ending], results: Sequence[Result], answers: Sequence[Finished]) -> None:
    """Log the outcome of each attempt, and the verdict on its reported result."""
    for (attempt, _), result, finished in zip(batch, results, answers, strict=True):
        claim, outcome = attempt.claim, result.outcome
        about: dict[str, Any] = {"job": claim.id, "attempt": claim.attempt, "status": finished.status}
        if finished.verdict not in (Verdict.ACCEPTED, Verdict.RECORDED):
            log.warning("result refused", verdict=finished.verdict, **about)
        elif outcome.reason is None:
            log.info("job done", **about)
        else:
            ended = {"reason": outcome.reason, "exit_code": outcome.exit_code, "signal": outcome.signal}
            log.info("attempt failed", **ended, **about)
