"""What the store asks of a server before it trusts it with jobs."""

import pytest

from tests.servers import Bench, start_server
from workron.errors import SettingsError, StoreUnavailable, StoreUnsuitable
from workron.local.valkey import server_binary
from workron.redis.connection import Connection
from workron.redis.server_info import ServerInfo, check, excess
from workron.settings import Settings
from workron.store import Store
from workron.store.health import SCHEMA

GOOD = ServerInfo("Redis", "7.0.15", True, "everysec", "noeviction", 10, 100)


async def test_a_good_server_is_accepted_and_marked(bench: Bench) -> None:
    store = bench.store()
    info = await store.check()
    await bench.store().check()
    assert await bench.client.hget(bench.keys.meta, "schema") == str(SCHEMA).encode()
    if bench.kind != "fake":
        assert (info.product, info.maxmemory_policy) == (bench.kind.capitalize(), "noeviction")
        assert info.appendonly is False


async def test_keys_of_another_version_are_refused(bench: Bench) -> None:
    store = bench.store()
    await store.check()
    for other in (SCHEMA - 1, SCHEMA + 1):
        await bench.client.hset(bench.keys.meta, "schema", other)
        with pytest.raises(StoreUnsuitable, match=f"version {other}.*use another --data-dir or --redis"):
            await store.check()


async def test_a_server_that_evicts_is_refused_unless_allowed(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("evicting")
    process = start_server(server_binary(), folder, "--maxmemory-policy", "allkeys-lru")
    try:
        async with Store(Connection.open(f"unix://{folder}/redis.sock")) as store:
            with pytest.raises(StoreUnsuitable, match="allkeys-lru"):
                await store.check()
            await store.check(allow_eviction=True)
    finally:
        process.kill()
        process.wait()


def test_an_old_server_is_refused() -> None:
    with pytest.raises(StoreUnsuitable, match=r"6\.2\.7 is too old"):
        check(ServerInfo("Redis", "6.2.7", True, None, "noeviction", 1, 0), allow_eviction=False)
    check(GOOD, allow_eviction=False)
    check(ServerInfo("Redis", "", None, None, None, None, None), allow_eviction=False)


@pytest.mark.parametrize(
    ("used", "limit", "too_much"),
    [(10, 100, 0), (80, 100, 0), (160, 100, 0.5), (81, 0, 0), (0, 9, 0), (None, 100, None)],
)
def test_a_server_is_full_beyond_a_share_of_its_memory(used: int | None, limit: int, too_much: float | None) -> None:
    assert excess(ServerInfo("Redis", "7.0", True, None, None, used, limit), 0.8) == too_much


async def test_a_server_that_is_away_is_reported_in_time() -> None:
    async with Store(Connection.open("unix:///nowhere/redis.sock", budget_s=0.3)) as store:
        with pytest.raises(StoreUnavailable, match="can't be reached"):
            await store.ping()


@pytest.mark.parametrize(
    ("url", "reason"),
    [("http://x", "must begin with redis://"), ("redis", "must begin with redis://"), ("redis://host:port", "a port")],
)
def test_what_is_not_a_redis_url_is_refused(url: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        Store.connect(Settings(redis=url))


async def test_every_way_to_a_server_never_retries_by_itself() -> None:
    """redis-py's constructors differ: `Redis(host=…)` would apply a command twice when a reply is lost."""
    for url in ("redis://127.0.0.1:1/0", "rediss://127.0.0.1:1", "unix:///nowhere/redis.sock"):
        connection = Connection.open(url)
        pool = connection._client.connection_pool
        made = pool.make_connection()
        assert made.retry._retries == 0
        assert (made.socket_timeout, made.socket_connect_timeout, made.health_check_interval) == (5.0, 2.0, 15)
        await connection.aclose()


async def test_a_connection_that_the_server_closed_is_replaced_unnoticed(bench: Bench) -> None:
    if bench.url is None:
        return
    connection = Connection.open(bench.url)
    victim = await connection.call("CLIENT", "ID")
    await bench.client.client_kill_filter(_id=victim)
    assert await connection.call("PING") == b"PONG"
    assert await connection.call("CLIENT", "ID") > victim
    await connection.aclose()
