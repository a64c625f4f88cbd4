"""What a client no longer waits for is stopped."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.api.live import AUTHORIZATION, Live
from workron.store import Store

pytestmark = pytest.mark.parametrize("bench", ["fake"], indirect=True)

HEAD = f"HTTP/1.1\r\nhost: localhost\r\nauthorization: {AUTHORIZATION['authorization']}\r\n\r\n"
JOB = "03557FNiXdtaIcOFmFQkXK"  # the same in all processes of a run


class Endless:
    """Something that the store is asked, and never answers."""

    def __init__(self) -> None:
        self.asked = self.given_up = 0

    async def __call__(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up += 1


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/jobs", "list_jobs"),
        (f"/jobs/{JOB}", "job"),
        (f"/jobs/{JOB}/explain", "explain"),
        (f"/jobs/{JOB}/parents", "attempts.parents"),
        (f"/workflows/{JOB}", "workflow"),
        ("/workers", "workers"),
        ("/queues", "queue_page"),
        ("/schedules", "schedules.page"),
        ("/jobs/actions", "actions.list"),
        ("/keys", "api_keys.list"),
        ("/audit", "audit.page"),
    ],
)
async def test_a_list_was_made_to_its_end_for_clients_that_had_gone(
    live: Live, store: Store, wait_until: Callable[..., Any], path: str, asked: str
) -> None:
    *way, name = asked.split(".")
    owner = getattr(store, way[0]) if way else store
    assert hasattr(owner, name)
    endless = Endless()
    setattr(owner, name, endless)
    _, writer = await asyncio.open_connection("127.0.0.1", live.port)
    writer.write(f"GET {path} {HEAD}".encode())
    await wait_until(lambda: endless.asked)
    assert not endless.given_up
    writer.close()
    await wait_until(lambda: endless.given_up)
    assert endless.asked == 1


async def test_a_client_that_stays_gets_the_answer(live: Live, store: Store) -> None:
    assert (await live.client.get("/jobs")).json() == {"data": [], "next_cursor": None}
    assert (await live.client.get("/jobs", params={"cursor": "zz"})).status_code == 422
    assert (await live.client.get(f"/jobs/{JOB}")).status_code == 404


async def test_an_error_in_an_answer_is_no_client_that_has_gone(
    live: Live, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(**_: Any) -> Any:
        raise TimeoutError

    monkeypatch.setattr(store, "workers", late)
    assert (await live.client.get("/workers")).status_code == 500
