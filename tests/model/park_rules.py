"""The rules of parked claims: workers wait, are woken, hear of it or not, ask again, and take their request back."""

from dataclasses import replace
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.builders import SUCCESS
from tests.model.bridge import MINUTE
from tests.model.driver import LOST, PICK
from tests.model.specs import FAILURES, QUEUES
from tests.model.worker_rules import WorkerRules
from workron.models import ClaimRequest, Outcome

INBOXES: Final = ("a", "b", "api")
"""Of two workers that ask for themselves, and of a server that asks for others."""


class ParkRules(WorkerRules):
    """All that is said of claims that wait. `asked`: the requests, the last one at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[ClaimRequest] = []

    @rule(
        queues=st.sampled_from(QUEUES),
        limit=st.sampled_from([1, 1, 2, 5]),
        worker=st.sampled_from("ab"),
        minutes=st.sampled_from([1, 3, 30]),
        inbox=st.sampled_from([None, None, "api"]),
        lost=LOST,
    )
    def park(self, queues: list[str], limit: int, worker: str, minutes: int, inbox: str | None, lost: bool) -> None:
        request = f"boot:{next(self.numbers)}"
        self.asked.append(ClaimRequest(worker, queues, limit, request, minutes * MINUTE, inbox))
        self.claim_by(self.asked[-1], lost)

    @rule(ends=st.lists(st.sampled_from([None, None, FAILURES[1]]), min_size=5, max_size=5))
    def run_some(self, ends: list[Outcome | None]) -> None:
        """A worker claims what there is and ends it."""
        before = len(self.held)
        self.claim_by(ClaimRequest("b", ["default", "other"], 5, f"boot:{next(self.numbers)}"), False)
        for (job_id, fence), failure in zip(self.held[before:], ends, strict=False):
            self.end(job_id, fence, failure or SUCCESS, False)

    @precondition(lambda self: self.asked)
    @rule(
        which=st.sampled_from([0, 0, 0, 1, 2]),
        inbox=st.sampled_from(["same", "same", None, "api"]),
        limit=st.sampled_from([None, None, 0, 2]),
        lost=LOST,
    )
    def ask_again(self, which: int, inbox: str | None, limit: int | None, lost: bool) -> None:
        """The same request once more: also through another inbox, or only for what it has got."""
        old = self.pick(self.asked, which)
        through = old.inbox if inbox == "same" else inbox
        most = old.limit if limit is None else limit
        again = ClaimRequest(old.worker, old.queues, most, old.request_id, old.park_ms if most else 0, through)
        self.asked.append(again)
        self.claim_by(again, lost)

    @precondition(lambda self: self.asked)
    @rule(which=st.sampled_from([0, 0, 0, 1, 2]), lost=LOST)
    def withdraw(self, which: int, lost: bool) -> None:
        self.claim_by(replace(self.pick(self.asked, which), limit=0, park_ms=0), lost)

    @precondition(lambda self: any(self.model.inboxes.values()))
    @rule(which=PICK)
    def hear(self, which: int) -> None:
        """The next one of an inbox that was woken hears of it."""
        self._hear(self.pick([inbox for inbox, news in self.model.inboxes.items() if news], which))

    def _hear(self, inbox: str) -> None:
        if self.model.inboxes_until[inbox] <= self.model.now:
            self.model.inboxes[inbox] = []
        expected = self.model.inboxes[inbox].pop(0) if self.model.inboxes[inbox] else None
        data = self.run(self.bridge.bench.client.lpop(self.bridge.bench.keys.inbox(inbox)))
        assert data == (expected and expected.encode())

    def hear_all(self) -> None:
        for inbox in INBOXES:
            while self.model.inboxes.get(inbox):
                self._hear(inbox)

    def after_call(self) -> None:
        """Tell the model what came into the inboxes; nobody may be forgotten."""
        if not self.asked:
            return
        for inbox in INBOXES:
            stored = self.run(self.bridge.bench.client.lrange(self.bridge.bench.keys.inbox(inbox), 0, -1))
            known = self.model.inboxes.get(inbox, []) if self.model.inboxes_until.get(inbox, 0) > self.model.now else []
            woken = [one.decode() for one in stored]
            assert woken[: len(known)] == known, f"inbox {inbox} has {woken}, in the model {known}"
            for worker in woken[len(known) :]:
                self.model.hear_of(inbox, worker)
        forgotten = self.model.forgotten()
        assert not forgotten, f"workers wait at {forgotten}, where jobs do, and nobody was told"
