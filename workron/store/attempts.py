"""A worker's side of the store: claim attempts, send heartbeats, report results."""

import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any, Final

import orjson

from workron.errors import NotFound, StoreUnavailable
from workron.models import (
    TERMINAL,
    Beat,
    Claim,
    Claimed,
    ClaimRequest,
    Finished,
    Outcome,
    OutputPatch,
    Parent,
    Reason,
    Result,
    Status,
    Unfenced,
    Verdict,
    WorkerInfo,
)
from workron.models.exchange import MAX_BEATS, MAX_RESULTS, Exchanged, Kept
from workron.models.workers import Beats, Drain
from workron.redis import formats
from workron.redis.connection import BLOCK_S, Connection
from workron.redis.keys import Keys
from workron.redis.lane import Command
from workron.redis.read_pool import Reads
from workron.redis.scripts import Arg, Scripts
from workron.store import decode
from workron.store.policy import Policy
from workron.store.workflow_tokens import Tokens

_MORE: Final = {b"CLAIMED": False, b"EMPTY": False, b"PARKED": False, b"NONE": False, b"MORE": True, b"STALE": True}
"""Word of a reply → whether an immediate retry of the claim may find a job."""


class Attempts:
    """The transitions of running jobs. One object per worker: it remembers the highest fence."""

    def __init__(self, connection: Connection, keys: Keys, scripts: Scripts, policy: Policy, reads: Reads) -> None:
        self._connection = connection
        self._keys = keys
        self._scripts = scripts
        self._policy = policy
        self._reads = reads
        self.tokens: Final = Tokens(connection, keys)
        self._floor = 0
        self._unreadable: list[Result] = []
        """Results of unreadable claims, reported with the next call."""

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Lease up to `request.limit` jobs to a worker; a repeat of the request returns the same ones with new leases.

        A limit of 0 ends the request: it is unparked and its claims are released, unless it was repeated
        through another inbox.
        """
        reply = await self._scripts.attempt_claim(**self._claim_args(request))
        return await self._claimed(reply[0], reply[1], reply[2:])

    async def finish(
        self, results: Sequence[Result], request: ClaimRequest | None = None, *, worker: str = ""
    ) -> Exchanged:
        """Record the outcome of attempts and release their leases; claim more, in the same round trip.

        At most `MAX_RESULTS` results. One with a stale fence returns LEASE_LOST and changes nothing.
        """
        request = request or ClaimRequest(worker, (), 0, "")
        plain = [result for result in results if _is_plain(result)]
        unreadable, self._unreadable = self._unreadable, []
        others = [result for result in results if not _is_plain(result)] + unreadable
        try:
            reply = await self._scripts.attempt_finish(
                **self._claim_args(request),
                retry_ms=self._policy.retry_ms,
                retry_max_ms=self._policy.retry_max_ms,
                successes=formats.attempts((result.id, result.fence) for result in plain),
                results=[arg for result in others for arg in _result_args(result)],
            )
        except StoreUnavailable:
            self._unreadable += unreadable
            raise
        word, due_ms, propagating, verdicts, *claims = reply
        answered = {
            (result.id, result.fence): _finished(result.id, *verdict)
            for result, verdict in zip([*plain, *others], verdicts, strict=True)
        }
        finished = [answered[result.id, result.fence] for result in results]
        return Exchanged(finished, await self._claimed(word, due_ms, claims), bool(propagating))

    def _claim_args(self, request: ClaimRequest) -> dict[str, Any]:
        return {
            "worker": request.worker,
            "request": request.request_id,
            "queues": " ".join(request.queues),
            "limit": min(request.limit, MAX_RESULTS),
            "lease_ms": self._policy.lease_ms,
            "floor": self._floor,
            "park_ms": request.park_ms,
            "inbox": request.inbox or request.worker,
            "begins": request.begins,
        }

    async def _claimed(self, word: bytes, due_ms: int, rows: Sequence[Any]) -> Claimed:
        claims = await self.tokens.equip(self._readable(rows))
        return Claimed(
            claims,
            more=_MORE[word] or len(claims) < len(rows) or (word == b"CLAIMED" and not rows),
            answered=word == b"CLAIMED",
            next_due_in_ms=due_ms if due_ms >= 0 else None,
            parked=word == b"PARKED",
        )

    def _readable(self, rows: Sequence[Any]) -> tuple[Claim, ...]:
        claims = tuple(self._decoded(rows))
        self._floor = max([self._floor, *(claim.fence for claim in claims)])
        return claims

    def _decoded(self, rows: Sequence[Any]) -> Iterator[Claim]:
        """Yield claims; an unreadable one is reported as failed with the next results."""
        for row in rows:
            try:
                yield decode.claim(row, self._policy.lease_ms)
            except (ValueError, TypeError) as error:
                outcome = Outcome(Reason.SPAWN, error=f"the stored data of this job can't be read: {error}")
                self._unreadable.append(Result(row[0].decode(), int(row[1]), outcome))

    async def heartbeat(self, info: WorkerInfo, held: Sequence[tuple[str, int]]) -> Beats:
        """Renew the leases of all running attempts (id, fence) and the worker's description; return results by fence.

        A worker may hold two attempts of one job: one that it lost without knowing, and the next one.
        """
        about = orjson.dumps(asdict(info))
        beats: dict[int, Beat] = {}
        drain = None
        for start in range(0, max(len(held), 1), MAX_BEATS):
            page = held[start : start + MAX_BEATS]
            flat: list[Arg] = [part for pair in page for part in pair]
            reply = await self._scripts.attempt_heartbeat(
                info.id, self._policy.lease_ms, self._policy.stop_ms, about, flat
            )
            _, wish, *words = reply
            beats |= {fence: Beat(word.decode()) for (_, fence), word in zip(page, words, strict=True)}
            drain = _drain(wish.decode())
        return Beats(beats, drain)

    async def drain(self, worker: str, wish: Drain) -> None:
        """Ask a worker to stop; raise NotFound if there is none with this name. A repeat may change the timeout."""
        word = _OWN_TIME if wish.timeout_ms is None else str(wish.timeout_ms)
        if (await self._scripts.worker_drain(worker, word))[0] == b"UNKNOWN":
            raise NotFound("worker", worker)

    async def leave(self, worker: str) -> bool:
        """Forget a stopped worker; return whether it was known."""
        return bool((await self._scripts.worker_leave(worker))[0] == b"LEFT")

    async def unfinished(self, queues: Sequence[str]) -> int:
        """Return the number of unfinished jobs of these queues."""
        rows = await self._connection.pipeline([("HMGET", self._keys.queue(queue), *_UNFINISHED) for queue in queues])
        return sum(int(count or 0) for row in rows for count in row)

    async def beat(self, job_id: str, fence: int | Unfenced) -> Beat:
        """Renew the lease of one attempt, independent of its worker."""
        _, _, word = await self._scripts.attempt_heartbeat(
            "", self._policy.lease_ms, self._policy.stop_ms, b"", [job_id, fence]
        )
        return Beat(word.decode())

    async def begin(self, job_id: str, fence: int) -> bool:
        """Record the start of a suspect's command; return whether it may start: the attempt is not lost."""
        return bool((await self._scripts.attempt_begin(job_id, fence))[0] == b"BEGUN")

    async def describe(self, info: WorkerInfo, ttl_ms: int) -> None:
        """Store a worker's description; it counts as lost after this silence."""
        await self._scripts.attempt_heartbeat(info.id, ttl_ms, self._policy.stop_ms, orjson.dumps(asdict(info)), [])

    async def release(self, held: Sequence[tuple[str, int | Unfenced]]) -> list[Status | None]:
        """Release unfinished attempts; they don't count. Return the jobs' states; None: lease lost."""
        states: list[Status | None] = []
        for start in range(0, len(held), MAX_RESULTS):
            reply = await self._scripts.attempt_release(
                [part for pair in held[start : start + MAX_RESULTS] for part in pair]
            )
            states += [None if word == b"LOST" else Status(word.decode()) for word in reply[1:]]
        return states

    async def write_output(self, patches: Sequence[tuple[str, int | Unfenced, OutputPatch]]) -> list[Kept]:
        """Store new output of running attempts (id, fence); return the results in this order."""
        flat: list[Arg] = []
        for job_id, fence, patch in patches:
            offset = patch.offset if patch.data or patch.progress is None else ""
            flat += [job_id, fence, offset, patch.total, patch.data, patch.progress or ""]
        reply = await self._scripts.attempt_output(flat)
        return [Kept(word.decode()) for word in reply[1:]]

    async def parents(self, job_id: str) -> list[Parent]:
        """Return the final status and results of a job's dependencies, at most `MAX_PARENTS` bytes of results."""
        found: list[Parent] = []
        at, room = 1, MAX_PARENTS
        async with self._reads.turn() as connection:
            while at:
                reply = await self._scripts.job_parents(job_id, at, _PARENTS_AT_ONCE, room, on=connection)
                if reply[0] == b"UNKNOWN":
                    raise NotFound("job", job_id)
                room -= sum(len(row[3]) for row in reply[2:])
                found += map(decode.parent, reply[2:])
                at = reply[1]
        return found

    async def wait(self, request: ClaimRequest, waiting: Connection, timeout_s: float) -> Claimed:
        """Repeat a parked request as soon as it is woken, or after a timeout, on the server right after the wake-up.

        `waiting` is a separate connection.
        """
        behind = waiting, self._woken_by(request.inbox or request.worker, timeout_s)
        reply = await self._scripts.attempt_claim(**self._claim_args(request), behind=behind)
        return await self._claimed(reply[0], reply[1], reply[2:])

    async def woken(self, inbox: str, waiting: Connection, timeout_s: float = BLOCK_S) -> str | None:
        """Wait for the next worker whose parked request may find a job; return None after a timeout."""
        popped = await waiting.call(*self._woken_by(inbox, timeout_s), repeat=False)
        return popped[1].decode("utf-8", "replace") if popped else None

    def _woken_by(self, inbox: str, timeout_s: float) -> Command:
        return "BLPOP", self._keys.inbox(inbox), max(0.01, timeout_s)

    @asynccontextmanager
    async def own_connection(self, block_s: float = BLOCK_S) -> AsyncIterator[Connection]:
        """Provide a connection for calls that block for at most `block_s` seconds."""
        async with self._connection.own(block_s) as connection:
            yield connection

    async def cancels(self) -> AsyncIterator[tuple[str, str, int]]:
        """Yield (worker, job, fence) of each running attempt to cancel, as requested.

        With an empty job id, the worker should send a heartbeat now: the response has its instructions.
        """
        async for message in self._connection.messages(self._keys.cancels):
            for stop in formats.read_stop(message):
                yield stop


MAX_PARENTS: Final = 4 * 1024 * 1024
"""Maximum size of results read for one job, bytes."""
_PARENTS_AT_ONCE: Final = 100
_OWN_TIME: Final = "own"
_UNFINISHED: Final = [status.value for status in Status if status not in TERMINAL]


def _drain(wish: str) -> Drain | None:
    """Return a drain request in the script's format: none, with the worker's own timeout, or with another."""
    if not wish:
        return None
    return Drain(None if wish == _OWN_TIME else int(wish))


def _is_plain(result: Result) -> bool:
    """Return whether id and fence are enough: a plain success without output."""
    outcome = result.outcome
    bare = outcome.error is None and outcome.result is None and outcome.progress is None
    return bare and result.output is None and outcome.reason is None


def _result_args(result: Result) -> list[Arg]:
    def blank(value: int | str | None) -> Arg:
        return "" if value is None else value

    outcome, patch = result.outcome, result.output
    output: list[Arg] = ["", "", ""] if patch is None else [patch.offset, patch.total, patch.data]
    return [
        result.id,
        result.fence,
        blank(outcome.reason),
        blank(outcome.exit_code),
        blank(outcome.signal),
        blank(outcome.error),
        f"{random.random():.3f}",  # noqa: S311 - jitter, not a secret
        *output,
        blank(outcome.retry_after_ms),
        blank(outcome.result),
        blank(outcome.progress),
    ]


_VERDICTS: Final = {
    b"ACCEPTED": Verdict.ACCEPTED,
    b"RECORDED": Verdict.RECORDED,
    b"LOST": Verdict.LEASE_LOST,
    b"UNKNOWN": Verdict.UNKNOWN,
    b"BROKEN": Verdict.BROKEN,
}


def _finished(job_id: str, word: bytes, status: bytes) -> Finished:
    return Finished(job_id, _VERDICTS[word], Status(status.decode()) if status else None)
