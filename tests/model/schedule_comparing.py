"""All that is visible of schedules, beside what the model says of them."""

from typing import Any

from tests.model.scheduling import Book, Schedule
from tests.model.state import differing
from workron.schedules.models import Schedule as Document
from workron.store import Store


async def differences_of_schedules(store: Store, book: Book) -> list[str]:
    """Read each schedule alone and all of them page by page, and when they are to be looked at."""
    found: list[str] = []
    listed = await _listed(store)
    if list(listed) != sorted(book.schedules):
        return [f"schedules are {list(listed)}, in the model {sorted(book.schedules)}"]
    for name, schedule in book.schedules.items():
        document, expected = await store.schedules.get(name), schedule_of(schedule)
        found += differing(f"schedule {name}", schedule_of_store(document), expected)
        short = schedule_of_store(listed[name]) | {"work": expected["work"], "runs": expected["runs"]}
        found += differing(f"schedule {name}, as it is listed", short, expected)
    return found + await _differences_of_looks(store, book)


async def _listed(store: Store) -> dict[str, Document]:
    """All schedules as they are listed, one on a page."""
    page = await store.schedules.page(1, None)
    listed = list(page.schedules)
    while page.next_cursor is not None:
        page = await store.schedules.page(1, page.next_cursor)
        listed += page.schedules
    return {one.name: one for one in listed}


async def _differences_of_looks(store: Store, book: Book) -> list[str]:
    due = await store.schedules.due(0, 100)
    expected = {name for name, schedule in book.schedules.items() if schedule.look and schedule.look[1] <= book.now}
    found = list(differing("schedules", {"due": set(due.names)}, {"due": expected}))
    looks = [schedule.look for schedule in book.schedules.values() if schedule.look and schedule.look[0] > book.now]
    soonest, latest = (min((look[end] - book.now for look in looks), default=None) for end in (0, 1))
    told = due.next_in_ms
    if (told is None) != (soonest is None) or (soonest and latest and not soonest <= (told or 0) <= latest):
        found.append(f"schedules are looked at in {told} ms, in the model in {soonest} to {latest}")
    return found


def schedule_of(schedule: Schedule) -> dict[str, Any]:
    said = schedule.said
    return {
        "line": (said.line.cron, said.line.timezone, said.line.dst),
        "rules": (said.overlap, said.catch_up, said.paused),
        "is_workflow": said.work.is_workflow,
        "work": said.work.body(),
        "version": schedule.version,
        "created_at": schedule.created_at,
        "updated_at": schedule.updated_at,
        "next": schedule.next,
        "last": schedule.last,
        "queued": schedule.queued,
        "counts": dict(schedule.counts),
        "runs": schedule.runs,
    }


def schedule_of_store(document: Document) -> dict[str, Any]:
    said = document.definition
    return {
        "line": (said.cron, said.timezone, said.dst),
        "rules": (said.overlap, said.catch_up, said.paused),
        "is_workflow": said.is_workflow,
        "work": said.work,
        "version": document.version,
        "created_at": document.created_at_ms,
        "updated_at": document.updated_at_ms,
        "next": document.next_at_ms,
        "last": document.last_at_ms,
        "queued": document.queued_at_ms,
        "counts": {outcome.value: number for outcome, number in document.counts.items() if number},
        "runs": [
            (run.at_ms, run.outcome.value, run.count, run.recorded_at_ms, run.job, run.workflow, run.error)
            for run in document.runs
        ],
    }
