"""Queues that are limited, and submissions that they refuse."""

from typing import Any

import pytest

from workron.errors import QueueFull
from workron.models import NO_LIMIT, NewJob, QueueChange, QueueState
from workron.store import Store


async def limit_queue(store: Store, queue: str, max_pending: int | None) -> QueueState:
    """Set how many jobs of a queue may wait; None: it has no limit of its own."""
    return await store.change_queue(queue, QueueChange(max_pending=NO_LIMIT if max_pending is None else max_pending))


async def limited(store: Store, most: int, queue: str = "default") -> Store:
    await limit_queue(store, queue, most)
    return store


async def refused(store: Store, *many: NewJob, **options: Any) -> QueueFull:
    with pytest.raises(QueueFull) as raised:
        await store.submit(many, **options)
    return raised.value
