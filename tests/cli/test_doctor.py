"""`workron doctor` as a user runs it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from tests import local_stack
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


@pytest.fixture
def second(tmp_path: Path, stack: Stack) -> Iterator[Stack]:
    """An instance of the same user that is newer than the stack."""
    home = tmp_path / "second"
    home.mkdir()
    with local_stack.running(["workron", "up"], local_stack.environment(home)) as running:
        [announcement] = Path(running.environment["XDG_RUNTIME_DIR"], "workron").glob("*.json")
        copy = Path(stack.environment["XDG_RUNTIME_DIR"], "workron", announcement.name)
        shutil.copy(announcement, copy)
        yield running
        copy.unlink()


def test_it_examines_the_instance_that_the_url_names_and_no_other(
    workron: CommandLine, stack: Stack, second: Stack
) -> None:
    assert workron("submit", "sleep 0").code == 0
    del workron.env["WORKRON_DATA_DIR"]
    of_first, of_second = (
        workron("doctor", "-o", "json", WORKRON_URL=stack.url),
        workron("doctor", "-o", "json", "--url", second.url),
    )
    assert of_first.document["jobs"] >= 1
    assert (of_second.document["jobs"], of_second.err) == (0, "")
    by_directory = workron("doctor", "-o", "json", "--data-dir", stack.environment["WORKRON_DATA_DIR"], WORKRON_URL="")
    assert (by_directory.document["jobs"], by_directory.err) == (of_first.document["jobs"], "")


def test_a_url_of_another_machine_is_no_reason_to_examine_what_runs_here(workron: CommandLine) -> None:
    ran = workron("doctor", WORKRON_URL="http://jobs.example:8080")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "workron: http://jobs.example:8080 is no instance on this machine: set its Redis with --redis URL\n"
    )


def test_a_url_and_a_redis_are_not_both_taken(alone: CommandLine) -> None:
    ran = alone("doctor", "--redis", "redis://127.0.0.1:1", "--url", "http://127.0.0.1:2")

    assert (ran.code, ran.err) == (2, "workron: --url and a Redis in the settings: name one of the two\n")
