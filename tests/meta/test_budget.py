"""An everyday run leaves to `--soak` what it says, and nothing else; and what makes tests cheap changes no answer."""

import os
from pathlib import Path

import fakeredis
import pytest
from redis.exceptions import ResponseError

from tests.budget import ON_REDIS
from tests.damaged_namespace import Patient
from tests.meta.test_summary import ROOT, SPREAD, run_suite
from tests.patience import Patience, slowness
from tests.servers import Bench
from tests.snapshot import Snapshot

SUITE = """
import pytest
from tests.budget import budget

every = pytest.mark.parametrize("bench", ["fake", "valkey", "redis"])

@every
def test_claim(bench): pass

@every
@pytest.mark.large
def test_very_many(bench): pass

@pytest.mark.parametrize("bench", ["redis"])
def test_of_one_server(bench): pass

@pytest.mark.parametrize("chosen", [budget("usual", "soak")])
def test_elsewhere(chosen): pass
"""


@pytest.mark.parametrize(
    ("options", "outcome", "budget"),
    [
        (["."], "5 passed, 3 deselected", "usual"),
        ([".", "--soak"], "8 passed", "soak"),
        ([".", "--soak", *SPREAD], "8 passed", "soak"),
        ([".", *SPREAD], "5 passed", "usual"),
        (["test_suite.py"], "8 passed", "usual"),
        (["test_suite.py::test_claim", "test_suite.py::test_elsewhere"], "4 passed", "usual"),
    ],
)
def test_only_runs_of_whole_folders_leave_something_out(
    tmp_path: Path, options: list[str], outcome: str, budget: str
) -> None:
    done = run_suite(tmp_path, SUITE, ("-p", "tests.budget", "-v", *options))
    assert f" {outcome}" in done.stdout.splitlines()[-1]
    assert f"test_elsewhere[{budget}]" in done.stdout


def test_what_runs_on_redis_exists() -> None:
    assert [path for path in ON_REDIS if not (ROOT / path).exists()] == []


def test_a_busy_machine_uses_up_less_of_the_time_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    cores, now_s = len(os.sched_getaffinity(0)), [0.0]
    monkeypatch.setattr("tests.patience.time.monotonic", lambda: now_s[0])
    for load, waited_s in ((0.0, 20), (cores, 20), (8.0 * cores, 160)):
        monkeypatch.setattr("tests.patience.os.getloadavg", lambda load=load: (load, 0.0, 0.0))
        patience, begun_s = Patience(20), now_s[0]
        while not patience.is_over:
            now_s[0] += 1
        assert now_s[0] - begun_s == waited_s
    assert slowness() == 8


async def test_a_snapshot_answers_as_the_server_does(bench: Bench) -> None:
    await Patient(bench).build()
    client, prefix = bench.client, bench.keys.prefix
    snapshot = await Snapshot.of(client, prefix)
    names = [name async for name in client.scan_iter(f"{prefix}*", count=1000)]
    assert {name async for name in snapshot.scan_iter(f"{prefix}*")} == set(names)
    for key in sorted(name.decode() for name in names):
        kind = (await client.type(key)).decode()
        assert await snapshot.exists(key)
        if kind == "hash":
            assert await snapshot.hgetall(key) == await client.hgetall(key)
        elif kind == "list":
            assert await snapshot.lrange(key, 0, -1) == await client.lrange(key, 0, -1)
        elif kind == "set":
            assert await snapshot.smembers(key) == set(await client.smembers(key))
        elif kind == "zset":
            assert await snapshot.zrange(key, 0, -1) == await client.zrange(key, 0, -1)
            pairs = await client.zrange(key, 0, -1, withscores=True)
            assert dict(await snapshot.zrange(key, 0, -1, withscores=True)) == dict(pairs)
    assert (await snapshot.hgetall("none"), await snapshot.zcard("none"), await snapshot.get("none")) == ({}, 0, None)
    with pytest.raises(AssertionError, match="is a hash, not a list"):
        await snapshot.lrange(bench.keys.queue("default"), 0, -1)


def test_servers_that_share_a_lua_runtime_share_nothing_else() -> None:
    first, second = (fakeredis.FakeRedis(server=fakeredis.FakeServer(version=(7, 0))) for _ in range(2))
    script = "redis.call('INCRBY', KEYS[1], ARGV[1]); return redis.call('GET', KEYS[1])"
    assert [first.eval(script, 1, "n", 1), second.eval(script, 1, "n", 5), first.eval(script, 1, "n", 1)] == [
        b"1",
        b"5",
        b"2",
    ]
    with pytest.raises(ResponseError, match="global"):
        first.eval("leaked = 1", 0)
    assert second.eval("return type(rawget(_G, 'leaked'))", 0) == b"nil"
    for client in (first, second):
        client.close()
