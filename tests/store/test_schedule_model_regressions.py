"""Faults that the model of the scheduler (tests/model) found in schedules."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.schedules import HOUR_MS, definition, fire, full_hour_ms, hourly, make_due, outcomes, put
from tests.servers import Bench
from workron.schedules.models import RunOutcome
from workron.store import Store


def before_it_is_stored(store: Store, patch: pytest.MonkeyPatch, act: Callable[[], Awaitable[object]]) -> None:
    """Have something done when a schedule is about to be stored as its next change wants it."""
    stored = store.scripts.schedule_put

    async def later(*args: Any, **fields: Any) -> Any:
        patch.undo()
        await act()
        return await stored(*args, **fields)

    patch.setattr(store.scripts, "schedule_put", later)


async def test_an_occurrence_that_is_started_while_its_schedule_is_changed_is_not_due_again(
    bench: Bench, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store)
    await make_due(bench)
    before_it_is_stored(store, monkeypatch, lambda: fire(bench.store()))
    await put(store, work={"command": "other"})
    assert await fire(store) == 0
    assert await outcomes(store) == [(RunOutcome.FIRED, 1)]


async def test_a_time_that_comes_while_a_schedule_gets_another_cron_that_names_it_too_comes_once(
    bench: Bench, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store)
    soon_ms = full_hour_ms(-1)

    async def comes() -> None:
        await bench.client.hset(bench.keys.schedule("nightly"), "last", str(soon_ms))

    before_it_is_stored(store, monkeypatch, comes)
    changed_to, _ = await store.schedules.put("nightly", hourly())
    assert (changed_to.last_at_ms, changed_to.next_at_ms) == (soon_ms, soon_ms + HOUR_MS)


async def test_a_schedule_that_was_paused_and_is_deleted_while_it_is_put_is_new_and_not_paused(
    bench: Bench, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, paused=True)
    before_it_is_stored(store, monkeypatch, lambda: bench.store().schedules.delete("nightly"))
    made, created = await store.schedules.put("nightly", definition(), keep_paused=True)
    assert (created, made.definition.paused) == (True, False)
