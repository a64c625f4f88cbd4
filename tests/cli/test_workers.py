"""The commands about workers, on an API that does as told."""

from typing import Any

import pytest

from tests.command_line import Answer, Call, CommandLine, ScriptedApi, problem
from workron.client.client import PAGE


def worker_document(**fields: Any) -> dict[str, Any]:
    return {
        "id": "build-7-Ab3dEf",
        "host": "build-7",
        "pid": 4711,
        "version": "0.1.0",
        "queues": ["default", "urgent"],
        "slots": 4,
        "running": 2,
        "jobs": ["03557DJR2dL0HA8BMGxsib", "03557DJR2dL0HA8BMGxsic"],
        "started_at": "2026-03-01T09:30:00.250Z",
        "last_heartbeat": "2026-03-01T09:30:00.250Z",
        "state": "active",
    } | fields


def worker_list(*workers: dict[str, Any], next_cursor: str | None = None) -> Answer:
    return Answer({"data": list(workers), "next_cursor": next_cursor})


def test_the_table_of_workers_shows_state_slots_and_jobs(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(worker_list(worker_document(), worker_document(id="old-Xyz", state="lost", jobs=[], running=0)))

    title, first, second = scripted("workers").out.splitlines()

    assert title.split() == ["WORKER", "STATE", "BUSY", "BEAT", "UP", "HOST", "PID", "VERSION", "QUEUES", "JOBS"]
    assert first.split()[:3] == ["build-7-Ab3dEf", "active", "2/4"]
    assert first.split()[-2:] == ["03557DJR2dL0HA8BMGxsib", "03557DJR2dL0HA8BMGxsic"]
    assert second.split()[:3] == ["old-Xyz", "lost", "0/4"]


def test_all_pages_of_workers_are_listed(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(worker_list(worker_document(id="a"), next_cursor="a"), worker_list(worker_document(id="b")))

    assert [worker["id"] for worker in scripted("workers", "-o", "json").document] == ["a", "b"]
    assert [call.query for call in api.calls] == [{"limit": f"{PAGE}"}, {"limit": f"{PAGE}", "cursor": "a"}]


def test_one_worker_is_shown_with_its_jobs(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(Answer(worker_document(id="a+b@c:1-Ab3dEf")))

    ran = scripted("workers", "a+b@c:1-Ab3dEf")

    assert ran.out.splitlines()[0] == "a+b@c:1-Ab3dEf  active"
    for text in ("build-7", "4711", "default, urgent", "2/4 in use", "03557DJR2dL0HA8BMGxsic"):
        assert text in ran.out
    assert api.calls[0].path == "/workers/a%2Bb%40c%3A1-Ab3dEf"


@pytest.mark.parametrize(("options", "body"), [((), {}), (("--timeout", "2h"), {"timeout": 7200})])
def test_a_drain_goes_to_each_worker_named(
    scripted: CommandLine, api: ScriptedApi, options: tuple[str, ...], body: dict[str, Any]
) -> None:
    def answer(call: Call) -> Answer:
        if call.path == "/workers/gone/drain":
            return problem(404, "not-found", "no such worker: gone")
        return Answer(worker_document(state="draining"), 202)

    api.answer = answer

    ran = scripted("drain", *options, "gone", "-", given="build-7-Ab3dEf\n")

    assert (ran.code, ran.err) == (3, "workron: no such worker: gone\n")
    assert "draining" in ran.out
    assert [(call.method, call.path, call.body) for call in api.calls] == [
        ("POST", "/workers/gone/drain", body),
        ("POST", "/workers/build-7-Ab3dEf/drain", body),
    ]


def test_a_name_that_is_a_path_is_no_worker(scripted: CommandLine, api: ScriptedApi) -> None:
    for name in ("../jobs", ".", ".."):
        assert scripted("drain", name).code == 3
    assert api.calls == []


def test_a_worker_has_to_run_at_least_one_job(alone: CommandLine) -> None:
    ran = alone("worker", "--max-jobs", "0")

    assert (ran.code, "at least 1" in ran.err) == (2, True)
