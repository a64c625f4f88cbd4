"""Schedules: put, list, read, pause, run now and delete them."""

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Final

from fastapi import Path, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api import problems, schemas
from api.auth import queue_rights
from api.auth.callers import READ, SUBMIT, caller_of, note_targets
from api.context import context_of
from api.http import body, idempotency
from api.http.large import LARGE, in_thread
from api.http.queries import StrictQuery
from api.operations import JsonBody, Operations
from workron import ids
from workron.errors import Forbidden, IdempotencyConflict, NotFound, StoreBroken, StoreUnavailable
from workron.models import NewJob, Submitted
from workron.schedules.models import Definition, Run, RunOutcome, Schedule
from workron.schedules.plan import Kind
from workron.specs.schedule import SCHEDULE_PATTERN, NewSchedule, expand
from workron.store import occurrence

router = Operations("schedules")

Name = Annotated[str, Path(pattern=SCHEDULE_PATTERN)]
_UNKNOWN_OR_FULL: Final = (problems.NOT_FOUND, problems.STORE_FULL)
_TRIES: Final = 10


class SchedulesQuery(StrictQuery):
    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    cursor: Annotated[str, Field(pattern=SCHEDULE_PATTERN)] | None = None
    """`next_cursor` of the previous page."""


@router.operation("GET /schedules", READ, schemas.ScheduleList)
async def list_schedules(request: Request, query: Annotated[SchedulesQuery, Query()]) -> Response:
    """List schedules by name, without their jobs and runs."""
    page = await context_of(request).store.schedules.page(query.limit, query.cursor)
    shown: Sequence[Schedule] = page.schedules
    if caller_of(request).queues is not None:  # what they start is not read for a page
        shown = await _visible(request, [schedule.name for schedule in shown])
    return schemas.json_response(schemas.list_document(map(schemas.summary_document, shown), page.next_cursor))


@router.operation(
    "PUT /schedules/{schedule}",
    SUBMIT,
    schemas.ScheduleState,
    problems.DEPENDENCY_CYCLE,
    problems.STORE_FULL,
    responses={201: {"description": "Created", "model": schemas.ScheduleState}, 200: {"description": "Replaced"}},
)
async def put_schedule(
    request: Request, schedule: Name, raw: Annotated[bytes, JsonBody(NewSchedule, most=body.MOST_OF_ONE)]
) -> Response:
    """Create or replace a schedule. Jobs it has started continue; due occurrences fire with the new definition."""
    context = context_of(request)
    new, definition, jobs = await in_thread(_said_in, raw, large=len(raw) > LARGE)
    caller = caller_of(request)
    await queue_rights.submit(context.store, caller, jobs)

    def check(before: Schedule) -> None:
        if not queue_rights.sees_schedule(caller, before):
            raise Forbidden(f"schedule {schedule} exists, with jobs in queues that this key has no access to")

    stored, created = await context.store.schedules.put(
        schedule, replace(definition, key=caller.key), keep_paused=new.paused is None, check=check
    )
    return schemas.json_response(schemas.schedule_document(stored), 201 if created else 200)


@router.operation("GET /schedules/{schedule}", READ, schemas.ScheduleState, problems.NOT_FOUND)
async def get_schedule(request: Request, schedule: Name) -> Response:
    """Return a schedule with its next and its latest occurrences."""
    found = await context_of(request).store.schedules.get(schedule)
    _see(request, found)
    return schemas.json_response(schemas.schedule_document(found))


@router.operation(
    "DELETE /schedules/{schedule}",
    SUBMIT,
    None,
    problems.NOT_FOUND,
    status=204,
    responses={204: {"description": "The schedule is deleted"}},
)
async def delete_schedule(request: Request, schedule: Name) -> Response:
    """Delete a schedule; jobs it has started continue."""
    schedules = context_of(request).store.schedules
    if caller_of(request).queues is not None:
        _see(request, await schedules.get(schedule))
    await schedules.delete(schedule)
    return Response(status_code=204)


@router.operation("POST /schedules/{schedule}/pause", SUBMIT, schemas.ScheduleState, *_UNKNOWN_OR_FULL)
async def pause_schedule(request: Request, schedule: Name) -> Response:
    """Pause a schedule."""
    found = await context_of(request).store.schedules.pause(schedule, paused=True, check=partial(_see, request))
    return schemas.json_response(schemas.schedule_document(found))


@router.operation("POST /schedules/{schedule}/resume", SUBMIT, schemas.ScheduleState, *_UNKNOWN_OR_FULL)
async def resume_schedule(request: Request, schedule: Name) -> Response:
    """Resume a schedule from now on; occurrences during the pause are not made up for."""
    found = await context_of(request).store.schedules.pause(schedule, paused=False, check=partial(_see, request))
    return schemas.json_response(schemas.schedule_document(found))


@router.operation(
    "POST /schedules/{schedule}/run",
    SUBMIT,
    schemas.ScheduleRun,
    *_UNKNOWN_OR_FULL,
    problems.QUEUE_FULL,
    problems.CONFLICT,
    status=201,
    responses={
        201: {"description": "Started", "model": schemas.ScheduleRun},
        200: {
            "description": "Already started with this Idempotency-Key; or `skipped`: `job` holds its unique key",
            "model": schemas.ScheduleRun,
        },
    },
    extra=idempotency.PARAMETER,
)
async def run_schedule(request: Request, schedule: Name) -> Response:
    """Start a run now, in addition to the schedule, regardless of overlap and pause."""
    key = idempotency.key_of(request)
    submitted, at_ms = await _start(request, schedule, key)
    job = submitted.ids[0] if submitted.workflow is None else None
    outcome = RunOutcome.SKIPPED if submitted.returned else RunOutcome.MANUAL
    note_targets(request, submitted.workflow or submitted.ids[0])
    run = Run(at_ms, outcome, 1, at_ms, job, submitted.workflow)
    return schemas.json_response(schemas.run_document(run), 200 if submitted.repeated or submitted.returned else 201)


async def _start(request: Request, name: str, key: str | None) -> tuple[Submitted, int]:
    """Store the jobs of a run of the current schedule; also return the time on Redis' clock, in ms."""
    store, caller = context_of(request).store, caller_of(request)
    salt = ids.new_id()
    own = key if key is None or caller.key is None else f"{caller.space}\n{key}"
    mark = None if own is None else hashlib.sha256(own.encode()).hexdigest()
    for _ in range(_TRIES):
        found, at_ms = await store.schedules.look(name)
        if found is None:
            raise NotFound("schedule", name)
        _see(request, found)
        work = expand(found.definition)
        try:
            ran = await occurrence.submit(store, found, work, kind=Kind.RUN, at_ms=at_ms, salt=salt, key=mark)
        except IdempotencyConflict:  # it was changed meanwhile
            continue
        return ran, at_ms
    raise StoreUnavailable(f"schedule {name} keeps changing: too many concurrent updates")


def _said_in(raw: bytes) -> tuple[NewSchedule, Definition, Sequence[NewJob]]:
    """Return a schedule as it was sent, as it is kept, and the jobs that it starts."""
    new = body.parse(NewSchedule, raw)
    definition = new.definition(raw)
    return new, definition, expand(definition).jobs


def _see(request: Request, schedule: Schedule) -> None:
    """Raise NotFound for a schedule with jobs outside the caller's queues."""
    if not queue_rights.sees_schedule(caller_of(request), schedule):
        raise NotFound("schedule", schedule.name)


async def _visible(request: Request, names: Sequence[str]) -> list[Schedule]:
    schedules, caller = context_of(request).store.schedules, caller_of(request)

    async def look(name: str) -> Schedule | None:
        with suppress(StoreBroken):  # a damaged one spares the others
            return (await schedules.look(name))[0]
        return None

    found = await asyncio.gather(*map(look, names))
    return [one for one in found if one is not None and queue_rights.sees_schedule(caller, one)]
