"""`workron doctor` as a user runs it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from tests.command_line import CommandLine
from tests.local_stack import Stack
from tests.servers import start_server
from workron.local.valkey import server_binary
from workron.redis.keys import Keys


def test_it_finds_the_server_of_what_runs_on_this_machine_and_tells_that_all_is_well(
    workron: CommandLine, stack: Stack
) -> None:
    assert workron("run", "true").code == 0
    ran = workron("doctor")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("no faults\n")
    report = workron("doctor", "-o", "json").document
    assert (report["healthy"], report["faults"], report["uncounted"]) == (True, [], None)
    assert report["jobs"] >= 1


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    process = start_server(server_binary(), tmp_path)
    yield f"unix://{tmp_path / 'redis.sock'}"
    process.terminate()
    process.wait(10)


def test_it_says_what_is_wrong_and_rebuilds_it(alone: CommandLine, server: str) -> None:
    keys = Keys("default")
    with Redis.from_url(server) as redis:
        redis.zadd(keys.queues, {"default": 0})
        redis.hset(keys.queue("default"), "pending", 3)
        redis.zadd(keys.leases, {"0355V5KZcf37V5oINfxPD7": 5})
    ran = alone("doctor", "--redis", server)
    assert ran.code == 1
    assert ran.out.startswith("2 faults\n")
    for line in ("surplus", "0355V5KZcf37V5oINfxPD7  in leases", "pending is 3, not 0"):
        assert line in ran.out
    assert "--rebuild" in ran.err

    ran = alone("doctor", "--rebuild", WORKRON_REDIS=server)
    assert ran.code == 0
    assert ran.out.startswith("no faults\n")
    assert "repaired: miscounted" in ran.out
    assert alone("doctor", "--redis", server, "-o", "json").document["faults"] == []


def test_the_old_option_names_the_new_one(alone: CommandLine, server: str) -> None:
    ran = alone("doctor", "--repair", "--redis", server)
    assert (ran.code, ran.out) == (2, "")
    assert "--rebuild" in ran.err


def test_a_form_without_lines_is_refused_before_anything_is_rebuilt(alone: CommandLine, server: str) -> None:
    keys = Keys("default")
    with Redis.from_url(server) as redis:
        redis.zadd(keys.leases, {"0355V5KZcf37V5oINfxPD7": 5})
        ran = alone("doctor", "--rebuild", "--redis", server, "-o", "jsonl")
        assert (ran.code, ran.out) == (2, "")
        assert "-o json" in ran.err
        assert redis.zcard(keys.leases) == 1


def test_where_no_redis_is_named_and_nothing_runs_it_says_so(alone: CommandLine) -> None:
    ran = alone("doctor")
    assert (ran.code, ran.out) == (7, "")
    assert "workron up" in ran.err


def test_an_unreachable_server_is_reported_in_one_line(alone: CommandLine, tmp_path: Path) -> None:
    ran = alone("doctor", "--redis", f"unix://{tmp_path}/nobody.sock")
    assert (ran.code, ran.out) == (5, "")
    assert len(ran.err.splitlines()) == 1


def test_keys_of_another_version_are_not_touched(alone: CommandLine, server: str) -> None:
    keys = Keys("default")
    with Redis.from_url(server) as redis:
        redis.hset(keys.meta, "schema", 99)
        redis.zadd(keys.leases, {"0355V5KZcf37V5oINfxPD7": 5})
        ran = alone("doctor", "--rebuild", "--redis", server)
        assert (ran.code, ran.out) == (8, "")
        assert "version 99" in ran.err
        assert redis.zcard(keys.leases) == 1


def test_a_namespace_that_is_not_there_is_not_called_healthy(alone: CommandLine, server: str) -> None:
    ran = alone("doctor", "--redis", server, "--namespace", "typo")
    assert ran.out.startswith("no data\n")
    assert "check the namespace" in ran.err
