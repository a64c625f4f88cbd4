"""Queues that are limited, and submissions that they refuse."""

from typing import Any

import pytest

from workron.errors import QueueFull
from workron.models import NewJob
from workron.store import Store


async def limited(store: Store, most: int, queue: str = "default") -> Store:
    await store.limit_queue(queue, most)
    return store


async def refused(store: Store, *many: NewJob, **options: Any) -> QueueFull:
    with pytest.raises(QueueFull) as raised:
        await store.submit(many, **options)
    return raised.value
