"""Claim requests that wait, and who is woken, for tests of the store."""

from typing import Any

from tests.servers import Bench
from workron.models import Claimed, ClaimRequest
from workron.store import Store


async def ask(store: Store, worker: str = "w1", *, limit: int = 1, park_ms: int = 60_000, **fields: Any) -> Claimed:
    """Make a request that stays the same until it gets something."""
    fields = {"queues": ("default",), "request_id": "boot:1"} | fields
    return await store.attempts.claim(ClaimRequest(worker=worker, limit=limit, park_ms=park_ms, **fields))


async def unheard(bench: Bench, *workers: str) -> list[int]:
    """How often each worker is woken, and has not noticed yet."""
    return [await bench.client.llen(bench.keys.inbox(worker)) for worker in workers]
