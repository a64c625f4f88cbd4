"""Stores on servers that take over from one another; each test starts servers of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.chaos.data_servers import KEYS, NAMESPACE, Ground
from tests.servers import PATIENCE_S, QUICK
from workron.redis.connection import Connection
from workron.store import Store


class Placed:
    """A ground that has started, with stores on it as processes have them."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self._stores: list[Store] = []

    def connection(self, budget_s: float = PATIENCE_S) -> Connection:
        return Connection.open(self.ground.url, key=KEYS.meta, budget_s=budget_s)

    def store(self, budget_s: float = PATIENCE_S) -> Store:
        store = Store(self.connection(budget_s), namespace=NAMESPACE, policy=QUICK)
        self._stores.append(store)
        return store

    async def aclose(self) -> None:
        for store in self._stores:
            await store.aclose()
        await self.ground.aclose()


@pytest.fixture
async def placed(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Placed]:
    """The ground whose class is the parameter."""
    placed = Placed(request.param(tmp_path))
    try:
        await placed.ground.start()
        yield placed
    finally:
        await placed.aclose()
