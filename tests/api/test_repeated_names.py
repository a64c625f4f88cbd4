"""Keys, parameters and headers that are given twice are refused: of two values one would be dropped in silence."""

import json
from typing import Any

import httpx2
import pytest

from api.http import body
from api.http.large import LARGE
from api.problems import InvalidFields
from api.worker_calls.bodies import NewExchange
from workron.models import user_json
from workron.specs.job import NewJob
from workron.specs.workflow import NewJobs, NewWorkflow
from workron.strict_json import repeated_key

on_fake = pytest.mark.parametrize("bench", ["fake"], indirect=True)
PADDING = " " * LARGE


@pytest.mark.parametrize("padding", ["", PADDING])
@pytest.mark.parametrize(
    ("model", "text", "key"),
    [
        (NewJob, '{"command":"a","command":"b"}', "command"),
        (NewJob, r'{"command":"a","comm\u0061nd":"b"}', "command"),
        (NewJob, '{"command":"a","env":{"A":"1","B":"2","A":"3"}}', "A"),
        (NewJob, '{"command":"a","metadata":{"a":[{"b":1,"b":1}]}}', "b"),
        (NewJob, '{"command":"a","array":{"values":["a"],"values":["b"]}}', "values"),
        (NewJobs, '{"jobs":[{"command":"a"}],"jobs":[{"command":"b"}]}', "jobs"),
        (NewJobs, '{"jobs":[{"command":"a"},{"command":"a","tags":[],"tags":[]}]}', "tags"),
        (NewWorkflow, '{"name":"a","jobs":[{"command":"a"}],"name":"b"}', "name"),
    ],
)
async def test_the_first_of_two_values_was_dropped_in_silence(model: Any, text: str, key: str, padding: str) -> None:
    with pytest.raises(InvalidFields, match=f"duplicate key '{key}'"):
        await body.parse_many(model, (text[:-1] + padding + text[-1]).encode())


def large(count: int = 2_000) -> str:
    return ",".join(f'{{"command":"job number {number} of many","tags":["a","b"]}}' for number in range(count))


VALUES = ",".join(['"value"'] * 20_000)


@pytest.mark.parametrize(
    ("model", "text", "key", "place"),
    [
        (NewJobs, f'{{"jobs":[{large()}],"jobs":[{{"command":"a"}}]}}', "jobs", []),
        (NewJobs, f'{{"jobs":[{{"command":"a"}}],"jobs":[{large()}]}}', "jobs", []),
        (NewJobs, f'{{"jobs":[{large()},{{"command":"a","command":"b"}}]}}', "command", ["jobs"]),
        (NewJob, f'{{"command":"a","array":{{"values":[{VALUES}],"values":["b"]}}}}', "values", []),
        (NewJob, f'{{"command":"a","array":null,"array":{{"values":[{VALUES}]}}}}', "array", []),
    ],
)
async def test_neither_do_large_bodies_have_duplicate_keys(model: Any, text: str, key: str, place: list[str]) -> None:
    assert len(text) > LARGE
    with pytest.raises(InvalidFields) as caught:
        await body.parse_many(model, text.encode())
    assert caught.value.faults == [{"loc": place, "msg": f"duplicate key '{key}'"}]


async def test_a_report_of_a_worker_has_no_duplicate_keys() -> None:
    with pytest.raises(InvalidFields, match="duplicate key 'worker_id'"):
        await body.parse_many(NewExchange, b'{"worker_id":"a","worker_id":"a"}')


def test_a_key_may_stand_in_several_objects_and_other_faults_are_found_elsewhere() -> None:
    assert repeated_key('[{"a": {"a": "\\"a\\": 1, \\"a\\": 1"}}, {"a": NaN}]') is None
    for text in (b"{", b"\xff", b"[" * 100_000, b'{"a": ' + b"9" * 5_000 + b"}"):
        assert repeated_key(text) is None


def test_a_result_with_a_duplicate_key_is_refused_too() -> None:
    with pytest.raises(ValueError, match=r"^has the key 'a' twice$"):
        user_json.check(b'{"a": 1, "a": 2}', 100)


@on_fake
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/jobs?limit=5&limit=6", "limit"),
        ("/jobs?limit=5&limit=5", "limit"),
        ("/jobs?limit=5&l%69mit=6", "limit"),
        ("/jobs?queue=&queue=a", "queue"),
        ("/jobs?metadata.a=1&tag=a&metadata.a=2", "metadata.a"),
        ("/jobs/next?worker_id=a&worker_id=b", "worker_id"),
        ("/workers?limit=1&limit=2", "limit"),
        ("/queues?limit=1&limit=2", "limit"),
        ("/schedules?limit=1&limit=2", "limit"),
        ("/audit?limit=1&limit=2", "limit"),
        ("/jobs/0000000000000000000000?wait=1&wait=2", "wait"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_the_first_of_two_parameters_was_dropped_in_silence(
    client: httpx2.AsyncClient, path: str, name: str, method: str
) -> None:
    answer = await client.request(method, path)
    assert answer.status_code == 422
    if method == "GET":
        assert answer.json()["errors"] == [{"loc": ["query", name], "msg": "is given more than once"}]


@on_fake
async def test_lists_are_repeated_parameters(client: httpx2.AsyncClient) -> None:
    for path in ("/jobs?tag=a&tag=b&metadata.a=1&metadata.b=1", "/jobs/next?worker_id=w&queue=a&queue=b"):
        assert (await client.get(path)).is_success


@on_fake
async def test_of_two_idempotency_keys_the_second_was_ignored(client: httpx2.AsyncClient) -> None:
    headers = [("idempotency-key", "a"), ("idempotency-key", "b"), ("content-type", "application/json")]
    answer = await client.post("/jobs", content=json.dumps({"command": "true"}), headers=headers)
    assert (answer.status_code, answer.json()["detail"]) == (422, "Idempotency-Key is given more than once")
