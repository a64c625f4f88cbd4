"""Tokens by which the command of a workflow's job may add to its workflow, while its attempt runs."""

import pytest

from tests.builders import claim, finish, new_job, reap_all, submit
from tests.servers import Bench
from tests.workflows import FAILURE, claim_one, start
from workron.errors import StoreUnavailable
from workron.store import Store
from workron.store.workflow_tokens import Grant


async def test_a_claim_of_a_workflow_has_a_token_for_it_and_no_other_has(store: Store) -> None:
    workflow = await start(store, new_job())
    claimed = await claim_one(store)
    assert claimed.more["workflow"] == workflow
    judged = await store.attempts.tokens.judge(claimed.more["token"])
    assert judged == Grant(workflow, claimed.id, str(claimed.fence))
    await submit(store, new_job())
    assert (await claim_one(store)).more == {}


async def test_a_token_is_good_at_every_api_server(bench: Bench) -> None:
    one, other = bench.store(), bench.store()
    await start(one, new_job())
    assert await other.attempts.tokens.judge((await claim_one(one)).more["token"])


async def test_a_worker_ended_when_redis_was_set_back_while_the_secret_was_made(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bench.store()
    await start(store, new_job())
    call = store.connection.call

    async def set_back(*command: str, **options: bool) -> object:
        answer = await call(*command, **options)
        if command[0] == "HSETNX":
            await bench.client.hdel(bench.keys.meta, "token_secret")
        return answer

    monkeypatch.setattr(store.connection, "call", set_back)
    assert "token" not in (await claim_one(store)).more


async def test_a_token_ends_with_its_attempt(store: Store) -> None:
    await start(store, new_job())
    first = await claim_one(store)
    await finish(store, first, FAILURE)
    assert await store.attempts.tokens.judge(first.more["token"]) is None
    second = await claim_one(store)
    assert await store.attempts.tokens.judge(first.more["token"]) is None
    assert await store.attempts.tokens.judge(second.more["token"])


async def test_a_token_ends_with_the_lease(store: Store) -> None:
    await start(store, new_job())
    lost = await claim_one(store)
    await reap_all(store)
    assert await store.attempts.tokens.judge(lost.more["token"]) is None


async def test_a_token_that_was_changed_is_none(store: Store) -> None:
    await start(store, new_job())
    token = (await claim_one(store)).more["token"]
    words = token.split(".")
    for at, word in enumerate(words):
        changed = ".".join([*words[:at], word[:-1] + ("1" if word[-1] != "1" else "2"), *words[at + 1 :]])
        assert await store.attempts.tokens.judge(changed) is None
    for hostile in ("wf1", "wf1.....", "wf1.a.b.1.99999999999999999999.x", f"{token}.", f"{token}\u0660", ""):
        assert await store.attempts.tokens.judge(hostile) is None


async def test_a_token_expires(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workron.store.workflow_tokens._LONGEST_S", -10)
    await start(store, new_job())
    assert await store.attempts.tokens.judge((await claim_one(store)).more["token"]) is None


async def test_a_claim_comes_without_a_token_where_no_secret_can_be_had(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable() -> bytes:
        raise StoreUnavailable("away")

    monkeypatch.setattr(store.attempts.tokens, "_current", unavailable)
    workflow = await start(store, new_job())
    (claimed,) = await claim(store)
    assert claimed.more == {"workflow": workflow}
