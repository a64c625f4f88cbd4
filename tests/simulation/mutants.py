"""Changes to the scripts, made as they are loaded: bounds made small, and bugs built in to see that they are found.

Each is a piece of text that stands exactly once where it is said to stand, and what takes its place; or a function in
place of one of the product's.
"""

import functools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from unittest import mock

from tests.simulation.fault_plan import Course
from tests.simulation.work import Run
from workers import refusals
from workers.http_source import HttpSource
from workron.errors import CallRefused
from workron.redis import script_source
from workron.redis.script_source import _text
from workron.redis.scripts import Script
from workron.store import array_values, encode, maintenance, submit


@dataclass(frozen=True, slots=True)
class Edit:
    """Text of a file below `lua/`, and what takes its place."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Patch:
    """A function of the product, and what takes its place."""

    owner: Any
    name: str
    new: Callable[..., Any]


SMALL: Final = (
    Edit("attempt_finish.lua", "WIDTH, MOST_EDGES = 13, 200", "WIDTH, MOST_EDGES = 13, 3"),
    Edit("job_cancel.lua", "EDGES = 200", "EDGES = 3"),
    Edit("job_retry.lua", "EDGES = 200", "EDGES = 3"),
    Edit("workflow_cancel.lua", "EDGES = 200", "EDGES = 3"),
    Edit("array_advance.lua", "EDGES = 200", "EDGES = 3"),
    Edit("lib/claims.lua", "STALE_BUDGET = 1000", "STALE_BUDGET = 3"),
    Edit("lib/claims.lua", "DUE_BUDGET = 100", "DUE_BUDGET = 2"),
    Edit("lib/workflows.lua", "STEP = 100", "STEP = 2"),
    Edit("lib/edges.lua", "STEP = 100", "STEP = 2"),
    Edit("lib/follows.lua", "STEP, COST = 100, 5", "STEP, COST = 2, 1"),
)
"""What fills thousands of jobs in earnest is reached with a handful here."""
SMALL_NUMBERS: Final = (
    (maintenance, "EDGES", 3),
    (maintenance, "LEASES", 2),
    (encode, "MAX_JOBS", 5),
    (submit, "MAX_JOBS", 5),
    (encode, "MAX_EDGES", 6),
    (submit, "MAX_EDGES", 6),
    (submit, "ABANDONED_MS", 6000),
    (array_values, "_UNTIL_STORED_MS", 500),
)

PLANTS: Final[Mapping[str, Sequence[Edit]]] = {
    # The lease is made by the first heartbeat: who dies before it holds a job for ever.
    "claim-not-atomic": (Edit("lib/claims.lua", "  index(LEASES, id, until_text)\n", ""),),
    # Who lost the lease ends the attempt of who has it now.
    "fence-unchecked": (
        Edit(
            "attempt_finish.lua",
            "if job.status ~= 'running' or job.fence ~= fence then",
            "if job.status ~= 'running' then",
        ),
    ),
    # Leases count from the claim, whatever heartbeats say.
    "heartbeat-ignored": (
        Edit("maintain_reap.lua", "if fence ~= job.fence then", "if true then"),
        Edit(
            "attempt_heartbeat.lua",
            "index(P .. 'leases', id, math.min(NOW + tonumber(lease_ms), last and last + 1 or math.huge))",
            "",
        ),
    ),
    # What is left of a walk over edges is remembered for a moment only, as if nobody but its worker knew of it.
    "propagation-lost": (
        Edit(
            "lib/ends.lua",
            "    redis.pcall('RPUSH', P .. 'propagate', job.id)\n",
            "    redis.pcall('RPUSH', P .. 'propagate', job.id)\n    redis.call('PEXPIRE', P .. 'propagate', '100')\n",
        ),
    ),
    # Only success gives the key back.
    "unique-leaked": (
        Edit("lib/unique.lua", "if TERMINAL[to] or to == 'running'", "if to == 'done' or to == 'running'"),
    ),
    # A submission that is asked for again is stored again.
    "submission-repeated": (
        Edit("lib/submissions.lua", "  return { 'REPEATED', first, size, workflow }", "  return nil"),
    ),
    # Who asks again gets other jobs, and nobody runs the first ones.
    "claim-answered-anew": (
        Edit(
            "lib/claims.lua", "  elseif last.request == asked.request and last.claims ~= '' then", "  elseif false then"
        ),
    ),
    # One more than the key allows.
    "slot-too-many": (
        Edit(
            "lib/slots.lua",
            "return SLOTS.about_key(name).limit - redis",
            "return SLOTS.about_key(name).limit + 1 - redis",
        ),
    ),
    "running-too-many": (
        Edit("lib/gates.lua", "tonumber(most) - tonumber(running", "tonumber(most) + 1 - tonumber(running"),
    ),
    "tasks-too-many": (Edit("lib/arrays.lua", "row.parallel - row.waiting", "row.parallel + 1 - row.waiting"),),
    "attempt-too-many": (Edit("lib/ends.lua", "job.attempts >= job.max_attempts", "job.attempts > job.max_attempts"),),
    "attempt-too-few": (
        Edit("lib/ends.lua", "job.attempts >= job.max_attempts", "job.attempts >= math.max(1, job.max_attempts - 1)"),
    ),
    # It does not wait for the last one of the others.
    "final-too-early": (
        Edit(
            "lib/workflows.lua",
            "final.status == 'blocked' and others <= 0 then",
            "final.status == 'blocked' and others <= 1 then",
        ),
    ),
    # What was staged is not deleted when the submission is given up.
    "submission-by-halves": (
        Edit(
            "submission_abort.lua",
            "redis.call('UNLINK', job_key(id), job_key(id) .. ':parents', job_key(id) .. ':children',",
            "redis.call('UNLINK',",
        ),
    ),
    # Values of an array run out although it was stored.
    "values-run-out": (Edit("lib/submissions.lua", "    redis.call('PERSIST', P", "    redis.call('EXISTS', P"),),
    # However a task has ended, the one that follows it starts.
    "followed-however": (Edit("lib/follows.lua", "when == 'finished' or when == status", "true"),),
    # A lease that was made while the server's clock was ahead ends as late as that.
    "clock-believed": (Edit("maintain_reap.lua", "  if till <= NOW + own_ms then", "  if true then"),),
    # What is to wait for a while waits as long as the server's clock was ahead.
    "wait-believed": (Edit("maintain_repair.lua", "  if wait_ms and at > NOW + wait_ms then", "  if false then"),),
    # A failed attempt's wait does not end.
    "retry-forgotten": (
        Edit(
            "lib/ends.lua",
            "  move(job, status, not delay_ms)\n",
            "  move(job, status, not delay_ms)\n  if delay_ms then index(P .. 'due', job.id, false) end\n",
        ),
    ),
}


async def _nothing(*_: object) -> None: ...


async def _values_first(values: array_values.ArrayValues, call: Callable[[], Awaitable[Any]]) -> Any:
    for job_id in values._of:
        await values._send(job_id)
    return await call()


async def _all_refused(reports: Sequence[Any], _: object) -> list[CallRefused]:
    return [CallRefused("was refused")] * len(reports)


def _broken(*_: object) -> Exception:
    return RuntimeError("was refused")


PLANTS_IN_OUTAGES: Final[Mapping[str, Sequence[Edit | Patch]]] = {
    # After an outage, a reaper takes back all jobs whose workers it could not hear.
    "outage-blamed": (Edit("maintain_reap.lua", "return later > NOW and later or nil", "return nil"),),
    # What an outage has stopped counts as an attempt.
    "refund-forgotten": (Edit("lib/ends.lua", "    redis.call('HSET', key, 'attempts', int(job.attempts - 1))\n", ""),),
    # A worker reports what it had to stop as failed.
    "outage-reported": (Patch(Run, "_lost", lambda _: None),),
    # The API refuses one report of a call, and all attempts in it fail.
    "refusal-spread": (Patch(refusals, "_halved", _all_refused),),
    # A worker ends because the API refuses a report.
    "refusal-deadly": (Patch(HttpSource, "_refusal", _broken),),
    # Values of an array are stored before it is judged, and stay although it was refused.
    "values-of-refused": (
        Patch(array_values.ArrayValues, "call", _values_first),
        Patch(array_values.ArrayValues, "_discard_quietly", _nothing),
    ),
    # What was staged stays although the submission was refused.
    "staged-of-refused": (Patch(submit.Submitter, "abort_quietly", _nothing),),
    # Output is stored under any fence.
    "output-of-others": (
        Edit("attempt_output.lua", "if row[1] ~= 'running' or row[2] ~= fence then", "if row[1] ~= 'running' then"),
    ),
    # A claim request that has ended stays parked.
    "claim-left-parked": (
        Edit("lib/claims.lua", "  if last.parked ~= '' then\n    unpark(asked.worker, asked.queues)\n  end\n", ""),
    ),
    # One call of a script tells all dependents of a job that it has ended.
    "walk-unbounded": (
        Edit("attempt_finish.lua", "MOST_EDGES = 13, 3", "MOST_EDGES = 13, 300"),
        Edit("lib/edges.lua", "STEP = 2", "STEP = 300"),
    ),
}
"""Bugs that are found where Redis is away, clocks jump, and the API refuses things, while all else goes well."""


def course_of(plant: str | None) -> Course:
    return Course.OUTAGE if plant in PLANTS_IN_OUTAGES else Course.STORM


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Run with small bounds, and with the bug of that name."""
    changes = {**PLANTS, **PLANTS_IN_OUTAGES}[name] if name else ()
    edits = (*SMALL, *(change for change in changes if isinstance(change, Edit)))
    for file in {edit.file for edit in edits}:
        _edited_text(edits, *file.split("/"))  # one that fits nowhere fails here, and is not taken for a find
    with ExitStack() as stack:
        for module, number, value in SMALL_NUMBERS:
            stack.enter_context(mock.patch.object(module, number, value))
        for patch in (change for change in changes if isinstance(change, Patch)):
            stack.enter_context(mock.patch.object(patch.owner, patch.name, patch.new))
        stack.enter_context(mock.patch.object(Script, "load", _loader(edits)))
        yield


@functools.cache
def _loader(edits: Sequence[Edit]) -> Callable[..., Script]:
    real, text = Script.load, partial(_edited_text, edits)

    @functools.cache
    def load(name: str, *, shebang: bool) -> Script:
        script_source.forget()
        with mock.patch.object(script_source, "_text", text):
            try:
                return real(name, shebang=shebang)
            finally:
                script_source.forget()

    return load


def _edited_text(edits: Sequence[Edit], *path: str) -> str:
    text = _text(*path)
    for edit in edits:
        if edit.file == "/".join(path):
            text = _edited(text, edit)
    return text


def _edited(text: str, edit: Edit) -> str:
    assert text.count(edit.old) == 1, f"{edit.old!r} stands {text.count(edit.old)} times in {edit.file}"
    return text.replace(edit.old, edit.new)
