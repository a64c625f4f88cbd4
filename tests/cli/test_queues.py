"""Queues from the command line."""

import pytest

from tests.command_line import CommandLine


def test_a_paused_queue_starts_nothing(workron: CommandLine) -> None:
    assert workron("queues", "pause", "asleep").code == 0
    job = workron("submit", "--queue", "asleep", "true").out.strip()
    assert "paused" in workron("queues").out
    assert workron("queues", "purge", "asleep").out == "1 job cancelled\n"
    assert "cancelled" in workron("show", job).out
    assert workron("queues", "resume", "asleep").code == 0
    refused = workron("queues", "rm", "asleep")
    assert refused.code == 4
    assert "has 1 job," in refused.err


def test_limits_are_set_and_shown(workron: CommandLine) -> None:
    def line() -> str:
        return "".join(line for line in workron("queues").out.splitlines() if line.startswith("limited-here"))

    queue = workron("queues", "set", "limited-here", "--max-running", "2", "--rate", "10/1m", "-o", "json").document
    assert (queue["max_running"], queue["rate"]) == (2, {"jobs": 10, "per": 60.0})
    assert "2 run, 10/1m start" in line()
    assert workron("queues", "set", "limited-here", "--max-running", "none", "--rate", "none").code == 0
    assert line() == ""


@pytest.mark.parametrize("wrong", [["--rate", "10"], ["--rate", "x/1m"], ["--max-running", "many"], []])
def test_an_invalid_limit_is_reported(workron: CommandLine, wrong: list[str]) -> None:
    ran = workron("queues", "set", "slow", *wrong)
    assert ran.code == 2
    assert wrong == [] or wrong[0] in ran.err
