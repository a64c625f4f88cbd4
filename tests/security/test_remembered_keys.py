"""What an API server remembers of keys: for how long, and how many of them."""

from typing import Any

import pytest

from api.auth.keyring import REMEMBERED_S, Keyring
from tests.api.live import KEY
from tests.security.conftest import Clients
from workron import ids
from workron.store import Store


async def test_the_ids_that_anybody_may_make_up_are_not_remembered_without_end(
    store: Store, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They also pushed out what was remembered of good keys."""
    monkeypatch.setattr("api.auth.keyring._MOST_REMEMBERED", 10)
    monkeypatch.setattr("api.auth.keyring._MOST_UNKNOWN", 5)
    keyring, text = Keyring(KEY, store), (await clients.key("read")).encode()
    assert await keyring.caller(b"Bearer " + text, "GET", "/jobs") is not None
    for key_id in ids.new_ids(50):
        assert await keyring.caller(f"Bearer wk1.{key_id}.x".encode(), "GET", "/jobs") is None
    assert (len(keyring._found), len(keyring._unknown)) == (1, 5)


async def test_the_number_of_remembered_keys_is_limited(
    store: Store, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.auth.keyring._MOST_REMEMBERED", 3)
    keyring = Keyring(KEY, store)
    for _ in range(5):
        text = (await clients.key("read")).encode()
        assert await keyring.caller(b"Bearer " + text, "GET", "/jobs") is not None
    assert len(keyring._found) == 3


async def test_a_key_costs_one_round_trip_in_five_seconds(store: Store, clients: Clients) -> None:
    text = (await clients.key("read")).encode()
    keyring = Keyring(KEY, store)
    asked = 0
    find = store.api_keys.find

    async def counted(key_id: str) -> Any:
        nonlocal asked
        asked += 1
        return await find(key_id)

    store.api_keys.find = counted  # type: ignore[method-assign]
    for _ in range(100):
        assert await keyring.caller(b"Bearer " + text, "GET", "/jobs") is not None
        assert await keyring.caller(b"Bearer " + text[:-1] + b"!", "GET", "/jobs") is None
    assert asked == 1
    assert REMEMBERED_S <= 5
