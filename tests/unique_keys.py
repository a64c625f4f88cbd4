"""Unique keys and who holds them, for tests."""

from typing import Any

import pytest

from tests.builders import new_job, submit
from tests.servers import Bench
from workron.errors import UniqueConflict
from workron.models import OnConflict, Unique, Until
from workron.store import Store


def unique(on_conflict: str = "reject", key: str = "k", until: str = "finished", ttl_ms: int = 60_000) -> Unique:
    return Unique(key, Until(until), OnConflict(on_conflict), ttl_ms)


async def holder(bench: Bench, key: str = "k") -> str | None:
    value = await bench.client.get(bench.keys.unique(key))
    return None if value is None else value.decode()


async def refused(store: Store, **fields: Any) -> str:
    """Submit a job that is refused; return who is named."""
    with pytest.raises(UniqueConflict) as caught:
        await submit(store, new_job(unique=unique(), **fields))
    return caught.value.job_id
