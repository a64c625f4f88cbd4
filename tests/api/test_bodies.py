"""What a submission may hold, and what becomes of it."""

import json
import time
from contextlib import suppress
from typing import Any

import pytest

from api.http.body import parse
from api.problems import InvalidFields
from workron.errors import InvalidRequest
from workron.models import Dependency, When
from workron.specs.job import NewJob
from workron.specs.workflow import NewJobs, NewWorkflow, Steering

MIB = 1024 * 1024


def refusal(**fields: Any) -> InvalidFields:
    with pytest.raises(InvalidFields) as caught:
        parse(NewJob, json.dumps(fields).encode())
    return caught.value


def accepted(**fields: Any) -> NewJob:
    return parse(NewJob, json.dumps(fields).encode())


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"command": ""}, ["command"]),
        ({"command": "echo \0"}, ["command"]),
        ({"command": "x" * (MIB + 1)}, ["command"]),
        ({"command": "ä" * (MIB // 2 + 1)}, ["command"]),
        ({"command": 5}, ["command"]),
        ({"argv": []}, ["argv"]),
        ({"argv": [""]}, ["argv"]),
        ({"argv": ["a", "b\0"]}, ["argv", 1]),
        ({"argv": ["x" * MIB, "y"]}, ["argv"]),
        ({"command": "x", "argv": ["x"]}, []),
        ({}, []),
        ({"command": "x", "name": ""}, ["name"]),
        ({"command": "x", "name": "n" * 201}, ["name"]),
        ({"command": "x", "name": "two\nlines"}, ["name"]),
        ({"command": "x", "queue": "a b"}, ["queue"]),
        ({"command": "x", "queue": "q\n"}, ["queue"]),
        ({"command": "x", "queue": "q" * 65}, ["queue"]),
        ({"command": "x", "priority": 0}, ["priority"]),
        ({"command": "x", "priority": 10}, ["priority"]),
        ({"command": "x", "priority": "5"}, ["priority"]),
        ({"command": "x", "priority": True}, ["priority"]),
        ({"command": "x", "max_attempts": 0}, ["max_attempts"]),
        ({"command": "x", "max_attempts": 101}, ["max_attempts"]),
        ({"command": "x", "timeout": 0}, ["timeout"]),
        ({"command": "x", "timeout": -1}, ["timeout"]),
        ({"command": "x", "timeout": float("nan")}, ["timeout"]),
        ({"command": "x", "timeout": float("inf")}, ["timeout"]),
        ({"command": "x", "delay": -1}, ["delay"]),
        ({"command": "x", "delay": 1, "run_at": "2030-01-01T00:00:00Z"}, []),
        ({"command": "x", "run_at": "2030-01-01T00:00:00"}, ["run_at"]),
        ({"command": "x", "run_at": "2030-02-30T00:00:00Z"}, ["run_at"]),
        ({"command": "x", "run_at": "9999-12-31T23:59:59-23:59"}, ["run_at"]),
        ({"command": "x", "run_at": 1_900_000_000}, ["run_at"]),
        ({"command": "x", "env": {"A=B": "c"}}, ["env", "A=B", "[key]"]),
        ({"command": "x", "env": {"": "c"}}, ["env", "", "[key]"]),
        ({"command": "x", "env": {"A": "c\0"}}, ["env", "A"]),
        ({"command": "x", "env": {"A": 1}}, ["env", "A"]),
        ({"command": "x", "env": {"A": "x" * MIB, "B": "y"}}, ["env"]),
        ({"command": "x", "cwd": ""}, ["cwd"]),
        ({"command": "x", "cwd": "/tmp\0"}, ["cwd"]),
        ({"command": "x", "depends_on": "a"}, ["depends_on"]),
        ({"command": "x", "depends_on": ["a", {"job": "a", "when": "failed"}]}, []),
        ({"command": "x", "depends_on": ["a"] * 10_001}, ["depends_on"]),
        ({"command": "x", "comand": "y"}, ["comand"]),
    ],
)
def test_a_wrong_field_is_refused_and_named(fields: dict[str, Any], place: list[str | int]) -> None:
    assert place in [fault["loc"] for fault in refusal(**fields).faults]


def test_a_dependency_of_the_wrong_kind_is_named_by_its_place_alone() -> None:
    faults = refusal(command="x", depends_on=["a", 5]).faults
    assert {tuple(fault["loc"]) for fault in faults} == {("depends_on", 1)}


def test_a_refusal_never_repeats_what_was_sent() -> None:
    error = refusal(command="x", env={"TOKEN": 12345678})
    assert "12345678" not in json.dumps(error.faults)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b'"command"',
        b"[" * 100_000,
        b'{"command":' * 100_000,
        b'{"command":"\\ud800"}',
        b'{"command":"\xff"}',
        b'{"priority":1' + b"0" * 10_000 + b',"command":"x"}',
        "{'command': 'x'}".encode("utf-16"),
        b'{"command":"x","metadata":{"x":NaN}}',
        b'{"command":"x","metadata":{"x":[null,{"y":-Infinity}]}}',
        b'{"command":"x","metadata":{"x":1e400}}',
        b'{"command":"x","metadata":{"x":18446744073709551616}}',
    ],
)
def test_what_is_not_sound_json_is_refused(raw: bytes) -> None:
    """[A NaN was kept as null, and with an Idempotency-Key, or in a schedule, it was an internal error.]"""
    with pytest.raises(InvalidFields):
        parse(NewJob, raw)


@pytest.mark.parametrize(
    ("tasks", "indexes"),
    [("3", [3]), ("5,1-3,2-4", [1, 2, 3, 4, 5]), ("0-9,3,9-9,8-11", list(range(12))), ("7,9-3", [7]), ("1,1,1", [1])],
)
def test_indexes_are_named_by_spans_in_any_order(tasks: str, indexes: list[int]) -> None:
    assert Steering(tasks=tasks).indexes() == indexes


@pytest.mark.parametrize("tasks", ["0-9999999", ",".join(["0-99999"] * 1000), ",".join(["1-99999", "0"] * 900)])
def test_spans_of_tasks_take_no_more_time_than_the_tasks_that_they_may_name(tasks: str) -> None:
    """[Ten million indexes were made to find that they are too many, and one span was counted as often as it stood.]"""
    began_s = time.process_time()
    with suppress(InvalidRequest):
        Steering(tasks=tasks).indexes()
    assert time.process_time() - began_s < 0.2


def test_null_and_large_numbers_are_kept_in_metadata() -> None:
    metadata = {"a": None, "b": [1.5, None, 1e300, 2**63], "null": "null"}
    assert accepted(command="x", metadata=metadata).metadata == metadata


@pytest.mark.parametrize("start", ['{"command":"x",', '{"command":"x","env":{'])
def test_a_body_with_very_many_faults_is_refused_soon(start: str) -> None:
    """[Two million of them took 5 to 13 s, in which the API answered nobody.]"""
    many = ",".join(f'"k{number}":1' for number in range(300_000))
    raw = (start + many + "}" * start.count("{")).encode()
    began_s = time.process_time()
    with pytest.raises(InvalidRequest, match="300,000 errors"):
        parse(NewJob, raw)
    assert time.process_time() - began_s < 0.5


def test_text_of_all_the_world_is_kept() -> None:
    name = "naïve 🚀 名前"
    job = accepted(command=f"echo '{name}'", name=name, env={"名": "🚀"}).to_new_job("id", ())
    assert (job.command, job.name, job.env) == (f"echo '{name}'", name, {"名": "🚀"})


def test_a_command_of_a_megabyte_is_taken() -> None:
    assert accepted(command="x" * MIB).command == "x" * MIB


def test_what_is_left_out_has_the_documented_defaults() -> None:
    job = accepted(command="x").to_new_job("id", ())
    assert (job.queue, job.priority, job.max_attempts) == ("default", 5, 3)
    assert (job.timeout_ms, job.delay_ms, job.run_at_ms, job.cwd, job.name, job.argv) == (None,) * 6
    assert (job.env, job.depends_on) == ({}, ())


def test_seconds_become_milliseconds() -> None:
    job = accepted(command="x", timeout=1.5, delay=0.25).to_new_job("id", ())
    assert (job.timeout_ms, job.delay_ms) == (1500, 250)


def test_a_whole_number_may_be_written_with_a_point() -> None:
    assert parse(NewJob, b'{"command":"x","priority":7.0}').priority == 7
    assert "priority" in str(refusal(command="x", priority=7.5))


def test_the_shortest_timeout_is_not_rounded_to_none() -> None:
    assert accepted(command="x", timeout=1e-9).to_new_job("id", ()).timeout_ms == 1


@pytest.mark.parametrize(
    ("run_at", "at_ms"),
    [
        ("1970-01-01T00:00:01.5Z", 1500),
        ("1970-01-01t01:00:02+01:00", 2000),
        ("2030-01-01T00:00:00.123456789Z", 1_893_456_000_123),
        ("0001-01-01T00:00:00+23:59", 1),
    ],
)
def test_run_at_becomes_milliseconds_since_1970(run_at: str, at_ms: int) -> None:
    assert accepted(command="x", run_at=run_at).to_new_job("id", ()).run_at_ms == at_ms


def test_dependencies_are_plain_or_say_which_end_they_mean() -> None:
    job = accepted(command="x", depends_on=["a", {"job": "b"}, {"job": "c", "when": "finished"}])
    assert job.dependencies() == [Dependency("a"), Dependency("b"), Dependency("c", When.FINISHED)]


def test_one_bad_job_among_many_is_found_by_its_place() -> None:
    raw = json.dumps({"jobs": [{"command": "x"}] * 3 + [{"command": ""}] * 50_000}).encode()
    with pytest.raises(InvalidFields) as caught:
        parse(NewJobs, raw)
    assert [fault["loc"] for fault in caught.value.faults] == [["jobs", 3, "command"]]


@pytest.mark.parametrize("model", [NewJobs, NewWorkflow])
def test_a_submission_needs_at_least_one_job(model: type[NewJobs | NewWorkflow]) -> None:
    with pytest.raises(InvalidFields):
        parse(model, b'{"jobs":[]}')
