"""Schedules: put, list, read, pause, run now and delete them."""

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api import openapi, problems, schemas
from api.auth import queue_rights
from api.auth.callers import READ, SUBMIT, ScopedRoute, caller_of, needs, note_targets
from api.context import context_of
from api.http import body, idempotency
from api.http.large import LARGE, in_thread
from api.http.queries import StrictQuery
from workron import ids
from workron.errors import Forbidden, IdempotencyConflict, NotFound, StoreBroken, StoreUnavailable
from workron.models import NewJob, Submitted
from workron.schedules.models import Definition, Run, RunOutcome, Schedule
from workron.schedules.plan import Kind
from workron.specs.schedule import SCHEDULE_PATTERN, NewSchedule, expand
from workron.store import occurrence

router = APIRouter(route_class=ScopedRoute, tags=["schedules"])

Name = Annotated[str, Path(pattern=SCHEDULE_PATTERN)]
_UNKNOWN: Final = (problems.NOT_FOUND, problems.VALIDATION, problems.STORE_UNAVAILABLE)
_TRIES: Final = 10


class SchedulesQuery(StrictQuery):
    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    cursor: Annotated[str, Field(pattern=SCHEDULE_PATTERN)] | None = None
    """`next_cursor` of the previous page."""


@router.get(
    "/schedules",
    operation_id="list_schedules",
    response_model=schemas.ScheduleList,
    responses=openapi.answers({}, problems.VALIDATION, problems.STORE_UNAVAILABLE),
    openapi_extra=needs(READ),
)
async def list_schedules(request: Request, query: Annotated[SchedulesQuery, Query()]) -> Response:
    """List schedules by name, without their jobs and runs."""
    page = await context_of(request).store.schedules.page(query.limit, query.cursor)
    shown: Sequence[Schedule] = page.schedules
    if caller_of(request).queues is not None:  # what they start is not read for a page
        shown = await _visible(request, [schedule.name for schedule in shown])
    return schemas.json_response(schemas.list_document(map(schemas.summary_document, shown), page.next_cursor))


@router.put(
    "/schedules/{schedule}",
    operation_id="put_schedule",
    status_code=200,
    response_model=schemas.ScheduleState,
    responses=openapi.answers(
        {201: {"description": "Created", "model": schemas.ScheduleState}, 200: {"description": "Replaced"}},
        problems.TOO_LARGE,
        problems.UNSUPPORTED_MEDIA_TYPE,
        problems.VALIDATION,
        problems.DEPENDENCY_CYCLE,
        problems.STORE_UNAVAILABLE,
        problems.STORE_FULL,
    ),
    openapi_extra=needs(SUBMIT) | openapi.body(NewSchedule),
)
async def put_schedule(request: Request, schedule: Name) -> Response:
    """Create or replace a schedule. Jobs it has started continue; due occurrences fire with the new definition."""
    context = context_of(request)
    body.require_json(request)
    raw = await body.read(request, min(context.settings.max_body, body.MOST_OF_ONE))
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


@router.get(
    "/schedules/{schedule}",
    operation_id="get_schedule",
    response_model=schemas.ScheduleState,
    responses=openapi.answers({}, *_UNKNOWN),
    openapi_extra=needs(READ),
)
async def get_schedule(request: Request, schedule: Name) -> Response:
    """Return a schedule with its next and its latest occurrences."""
    found = await context_of(request).store.schedules.get(schedule)
    _see(request, found)
    return schemas.json_response(schemas.schedule_document(found))


@router.delete(
    "/schedules/{schedule}",
    operation_id="delete_schedule",
    status_code=204,
    responses=openapi.answers({204: {"description": "The schedule is deleted"}}, *_UNKNOWN),
    openapi_extra=needs(SUBMIT),
)
async def delete_schedule(request: Request, schedule: Name) -> Response:
    """Delete a schedule; jobs it has started continue."""
    schedules = context_of(request).store.schedules
    if caller_of(request).queues is not None:
        _see(request, await schedules.get(schedule))
    await schedules.delete(schedule)
    return Response(status_code=204)


@router.post(
    "/schedules/{schedule}/pause",
    operation_id="pause_schedule",
    response_model=schemas.ScheduleState,
    responses=openapi.answers({}, *_UNKNOWN, problems.STORE_FULL),
    openapi_extra=needs(SUBMIT),
)
async def pause_schedule(request: Request, schedule: Name) -> Response:
    """Pause a schedule."""
    found = await context_of(request).store.schedules.pause(schedule, paused=True, check=partial(_see, request))
    return schemas.json_response(schemas.schedule_document(found))


@router.post(
    "/schedules/{schedule}/resume",
    operation_id="resume_schedule",
    response_model=schemas.ScheduleState,
    responses=openapi.answers({}, *_UNKNOWN, problems.STORE_FULL),
    openapi_extra=needs(SUBMIT),
)
async def resume_schedule(request: Request, schedule: Name) -> Response:
    """Resume a schedule from now on; occurrences during the pause are not made up for."""
    found = await context_of(request).store.schedules.pause(schedule, paused=False, check=partial(_see, request))
    return schemas.json_response(schemas.schedule_document(found))


@router.post(
    "/schedules/{schedule}/run",
    operation_id="run_schedule",
    status_code=201,
    response_model=schemas.ScheduleRun,
    responses=openapi.answers(
        {
            201: {"description": "Started", "model": schemas.ScheduleRun},
            200: {
                "description": "Already started with this Idempotency-Key; or `skipped`: `job` holds its unique key",
                "model": schemas.ScheduleRun,
            },
        },
        *_UNKNOWN,
        problems.STORE_FULL,
        problems.QUEUE_FULL,
        problems.CONFLICT,
    ),
    openapi_extra=needs(SUBMIT) | idempotency.PARAMETER,
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
