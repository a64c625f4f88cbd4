"""What the command line does when a queue is full: it waits for room and says so, or fails at once."""

import signal
from collections.abc import Callable
from typing import Any

import pytest
import redis

from tests import followed
from tests.command_line import Answer, CommandLine, ScriptedApi, job_document, problem
from tests.local_stack import Stack
from workron.cli.exits import Exit
from workron.redis.keys import Keys


def full(*, retry_after: int = 1, size: int = 1, limit: int = 5) -> Answer:
    detail = "queue default is full: 5 jobs wait, the limit is 5"
    extras: dict[str, Any] = {"queue": "default", "limit": limit, "waiting": 5, "size": size}
    return problem(503, "queue-full", detail, headers={"retry-after": str(retry_after)}, **extras)


def memory_full() -> Answer:
    return problem(503, "store-full", "Redis has no memory left for new work", headers={"retry-after": "1"})


WORKFLOW = {"id": "03557DJR2dL0HA8BMGxsib", "name": None, "status": "running", "size": 0, "counts": {}, "jobs": []}
SUBMIT = ("submit", "true")
WORKFLOW_SUBMIT = ("workflow", "submit", "-")


@pytest.mark.parametrize(("words", "stored"), [(SUBMIT, job_document()), (WORKFLOW_SUBMIT, WORKFLOW)])
def test_a_submission_to_a_full_queue_waits_for_room_with_one_notice_and_one_key(
    scripted: CommandLine, api: ScriptedApi, words: tuple[str, ...], stored: dict[str, Any]
) -> None:
    api.script(full(), full(), Answer(stored, 201))

    ran = scripted(*words, given="jobs: [{command: 'true'}]")

    assert (ran.code, ran.out) == (0, f"{stored['id']}\n")
    assert ran.err.splitlines() == [
        "workron: queue default is full: 5 jobs wait, the limit is 5; waiting for room",
        "workron: room available",
    ]
    assert len({call.headers["idempotency-key"] for call in api.calls}) == 1
    first, second, third = (call.at for call in api.calls)
    assert second - first >= 1
    assert third - second >= 1


def test_room_in_the_memory_of_redis_is_waited_for_as_well(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(memory_full(), Answer(job_document(), 201), memory_full())

    waited, refused = scripted(*SUBMIT), scripted("submit", "--no-wait", "true")

    assert (waited.code, refused.code, refused.out) == (0, Exit.QUEUE_FULL, "")
    assert "waiting for room" in waited.err


def test_run_waits_for_room_too(scripted: CommandLine, api: ScriptedApi) -> None:
    done = job_document(status="done", attempts=1, exit_code=0)
    answers = [full(), Answer(done, 201)]

    def answer(call: Any) -> Answer:
        if call.method == "POST":
            return answers.pop(0)
        if call.path.endswith("/output"):
            return followed.stream(followed.text(1, 0, b"out\n"), followed.end(1, 4))
        return Answer(done)

    api.answer = answer

    ran = scripted("run", "true")

    assert (ran.code, ran.out) == (0, "out\n")
    assert "waiting for room" in ran.err


@pytest.mark.parametrize(("words", "code"), [(SUBMIT, 10), (WORKFLOW_SUBMIT, 10), (("run", "true"), 125)])
def test_no_wait_fails_at_once_with_an_exit_code_of_its_own(
    scripted: CommandLine, api: ScriptedApi, words: tuple[str, ...], code: int
) -> None:
    api.script(full())

    ran = scripted(words[0], *words[1:-1], "--no-wait", words[-1], given="jobs: [{command: 'true'}]")

    assert (ran.code, ran.out) == (code, "")
    assert ran.err == "workron: queue default is full: 5 jobs wait, the limit is 5\n"
    assert len(api.calls) == 1
    assert Exit.QUEUE_FULL == 10


def test_a_submission_that_never_fits_is_not_tried_again(scripted: CommandLine, api: ScriptedApi) -> None:
    api.script(full(size=6))

    assert scripted("submit", "true").code == Exit.QUEUE_FULL
    assert len(api.calls) == 1


def test_a_wait_longer_than_the_patience_for_an_outage_is_waited_for_until_ctrl_c(
    scripted: CommandLine, api: ScriptedApi
) -> None:
    api.script(full(retry_after=3600))
    process = scripted.start("submit", "true")
    assert process.stderr is not None
    assert b"waiting for room" in process.stderr.readline()

    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)

    assert (process.returncode, out) == (Exit.INTERRUPTED, b"")
    assert len(api.calls) == 1


@pytest.fixture
def reports(workron: CommandLine, stack: Stack) -> Any:
    """Sets the limit of a queue that nobody serves, but that is said to drain fast; it is without one at the end."""

    def limit(most: str) -> Any:
        ran = workron("queues", "set", "reports", "--max-pending", most, "-o", "json")
        with redis.Redis(unix_socket_path=str(stack.data_dir / "valkey" / "valkey.sock")) as server:
            server.hset(Keys("default").queue("reports"), "rate", "100")  # else it is asked again only a minute later
        return ran

    yield limit
    limit("none")


def test_a_queue_gets_a_limit_is_full_and_has_room_again(workron: CommandLine, reports: Callable[[str], Any]) -> None:
    assert reports("1").document["max_pending"] == 1
    shown = {queue["name"]: queue["max_pending"] for queue in workron("queues", "-o", "json").document}
    assert shown["reports"] == 1
    assert "MAX" in workron("queues").out
    stored = workron("submit", "--queue", "reports", "true")
    refused = workron("submit", "--queue", "reports", "--no-wait", "true")
    assert (stored.code, refused.code) == (0, Exit.QUEUE_FULL)
    waiting = workron.start("submit", "--queue", "reports", "true")
    assert waiting.stderr is not None
    assert b"waiting for room" in waiting.stderr.readline()
    assert workron("cancel", stored.out.strip()).code == 0
    out, _ = waiting.communicate(timeout=90)
    assert waiting.returncode == 0
    assert workron("cancel", out.decode().strip()).code == 0


def test_a_limit_that_is_no_number_is_a_usage_error(scripted: CommandLine) -> None:
    for wrong in ("many", "-1", "1.5", ""):
        ran = scripted("queues", "set", "reports", "--max-pending", wrong)
        assert (ran.code, ran.out) == (Exit.USAGE, ""), wrong
    assert scripted("queues", "set", "reports").code == Exit.USAGE
