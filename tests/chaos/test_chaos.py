"""A minute of everything going wrong, and the account of it; `python -m tests.chaos` runs for longer."""

import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.budget import budget
from tests.chaos.__main__ import arguments
from tests.chaos.account import Account
from tests.chaos.data_servers import Ground
from tests.chaos.faults import plan
from tests.chaos.harness import Run
from tests.chaos.judge import judge
from tests.chaos.load import WORDS, Load
from tests.chaos.records import Events, Ran
from tests.local.probe import processes_of, wait_for
from tests.local_stack import ROOT
from tests.servers import Bench

pytestmark = [pytest.mark.chaos]


@pytest.mark.timeout(600)
async def test_nothing_is_lost_and_nothing_accepted_twice_whatever_dies(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    account = await Run(tmp_path, seed=seed, seconds=budget(45, 120)).run()
    print(account.table())
    assert account.wrong == {}
    assert len(account.faults) >= 8
    assert account.followed > 0
    assert min(account.done, account.failed, account.cancelled, account.skipped, account.lease_losses) > 0
    wait_for(lambda: not processes_of(tmp_path), "the end of all that was started")


def test_a_stopped_run_leaves_nothing_behind() -> None:
    command = [sys.executable, "-m", "tests.chaos", "--minutes", "5", "--seed", "1"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr
        folder = Path(run.stderr.readline().split()[-1])
        wait_for(lambda: len(processes_of(folder)) > 8, "the deployment", within_s=60)
        run.terminate()
        run.stderr.read()
    wait_for(lambda: not processes_of(folder), "the end of all that was started")
    shutil.rmtree(folder)


def test_the_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["--help"])
    assert "python -m tests.chaos --minutes 60 --json account.json" in capsys.readouterr().out


def test_a_seed_decides_what_goes_wrong_and_when() -> None:
    kinds = ("kill", "cut", "delay")
    first, second, other = (plan(seed, kinds, 1.0) for seed in (7, 7, 8))
    assert [next(first) for _ in range(50)] == [next(second) for _ in range(50)] != [next(other) for _ in range(50)]


class Records:
    """One job that was acknowledged, run once and done, and all that was written down of it."""

    def __init__(self, folder: Path) -> None:
        self.events = Events(lambda: None, "", folder / "events")  # type: ignore[arg-type, return-value]
        self.tell(("pending", "j"), ("running", "j"), ("done", "j"))
        self.load = Load(1, folder, 1, self.events.ended)
        self.load.acknowledged["j"] = (100.0, frozenset({"done"}))
        self.rows: dict[str, dict[str, str]] = {"j": {"status": "done", "name": "one"}}
        self.ran = Ran()
        self.run("j", "5000")
        self.ground = Ground(folder)

    def tell(self, *entries: tuple[str, str]) -> None:
        for status, job_id in entries:
            self.events.take(f"{len(self.events.entries) + 1}-0", {status: [job_id]})

    def run(self, job_id: str, *fences: str, name: str = "one") -> None:
        self.ran.fences[job_id] = [*fences]
        self.ran.named[name].add(job_id)

    def account(self) -> Account:
        account = Account()
        judge(account, self.load, self.events, self.rows, self.ran, self.ground)
        return account


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path)


def test_a_run_without_faults_of_the_product_is_good(records: Records) -> None:
    assert records.account().wrong == {}


def test_an_account_finds_a_lost_job(records: Records) -> None:
    del records.rows["j"], records.events.status["j"]
    assert records.account().wrong == {"lost": 1}


def test_a_job_that_was_acknowledged_before_a_failover_is_lost_in_the_rollback(records: Records) -> None:
    del records.rows["j"], records.events.status["j"]
    records.ground.rollbacks.append((90.0, 110.0))
    account = records.account()
    assert (account.wrong, account.lost_in_rollback) == ({"rollbacks_told": 0}, 1)
    account.rollbacks_told = 1
    assert account.wrong == {}


@pytest.mark.parametrize(("status", "wrong"), [("failed", "wrong_end"), ("blocked", "unfinished")])
def test_an_account_finds_a_job_that_did_not_end_as_it_had_to(records: Records, status: str, wrong: str) -> None:
    records.rows["j"]["status"] = status
    assert records.account().wrong == {wrong: 1}


def test_an_account_finds_a_second_result(records: Records) -> None:
    records.tell(("done", "j"))
    assert records.account().wrong == {"accepted_twice": 1}


def test_a_job_that_its_submitter_retried_may_end_again(records: Records) -> None:
    records.tell(("pending", "j"), ("running", "j"), ("done", "j"))
    records.rows["j"]["run"] = "2"
    records.run("j", "5000", "6000")
    assert records.account().wrong == {}


def test_an_account_finds_a_submission_that_was_stored_twice(records: Records) -> None:
    records.rows["other"] = {"status": "done", "name": "one"}
    assert records.account().wrong == {"submitted_twice": 1}


def test_an_account_finds_a_submission_that_was_stored_twice_although_one_of_both_is_forgotten_by_now(
    records: Records,
) -> None:
    records.tell(("pending", "other"), ("running", "other"), ("done", "other"))
    records.run("other", "6000")
    assert records.account().wrong == {"submitted_twice": 1}


def test_an_account_finds_a_job_that_is_done_and_never_ran(records: Records) -> None:
    records.ran = Ran()
    assert records.account().wrong == {"done_without_run": 1}


def test_an_account_finds_an_array_that_is_done_with_a_task_that_never_ran(records: Records) -> None:
    records.load.acknowledged["array"] = (100.0, frozenset({"done"}))
    records.rows["array"] = {"status": "done", "name": "tasks"}
    records.load.arrays["array"], records.load.sizes["tasks"] = "tasks", 2
    for task in ("t1", "t2"):
        assert records.account().wrong == {"done_without_run": 1}
        records.tell(("pending", task), ("running", task), ("done", task))
        records.run(task, task[1:], name="tasks")
    assert records.account().wrong == {}


def test_an_account_finds_a_job_that_was_started_before_its_parent_had_ended(records: Records) -> None:
    records.load.parents["child"] = [("j", "done"), ("other", "finished")]
    records.tell(("running", "child"), ("done", "child"))
    assert records.account().wrong == {"started_too_early": 1}
    records.load.parents["child"] = [("j", "failed")]
    assert records.account().wrong == {"started_too_early": 1}
    records.load.parents["child"] = [("j", "finished")]
    assert records.account().wrong == {}


def said(fence: int, *words: int) -> bytes:
    return b"".join(b"%d %d\n" % (fence, word) for word in words)


def test_a_lost_attempt_keeps_the_beginning_of_its_output_and_the_last_one_all(records: Records) -> None:
    for first in (b"", said(6, 1, 2), said(6, 1, 2)[:-1] + b"\n", said(6, *WORDS)):
        records.load.followed["j"] = first + said(7, *WORDS)
        account = records.account()
        assert (account.wrong, account.followed) == ({}, 1)


def cut(size: int) -> bytes:
    return f"\n… {size:,} bytes cut …\n".encode()


LONG = 1_795_944_192_334
"""A fence as they are: with 13 digits."""


def test_output_that_a_full_server_refused_is_reported_missing(records: Records) -> None:
    again = said(LONG - 1, 1) + cut(144) + said(LONG, *WORDS)
    for came in (said(LONG, 1, 2) + cut(129), cut(161), said(LONG, 1, 2) + cut(161), again):
        records.load.followed["j"] = came
        assert records.account().wrong == {}
    for came in (said(LONG, 1, 2) + cut(130), cut(160), said(LONG, *WORDS) + cut(1), cut(161) + said(LONG, 1)):
        records.load.followed["j"] = came
        assert records.account().wrong == {"followed_wrong": 1}


@pytest.mark.parametrize(
    "came",
    [
        b"",
        said(7, *WORDS[:-1]),
        said(7, *WORDS[1:]),
        said(7, *WORDS) + said(7, *WORDS[-1:]),
        said(7, 1, *WORDS),
        said(7, 1, 3, 2, *WORDS[3:]),
        said(7, *WORDS) + said(6, 1),
        said(6, 1) + said(7, *WORDS) + said(6, 2),
        said(7, *WORDS) + b"x\n",
    ],
)
def test_an_account_finds_output_that_is_lost_or_comes_twice(records: Records, came: bytes) -> None:
    records.load.followed["j"] = came
    assert records.account().wrong == {"followed_wrong": 1}
    records.ground.rollbacks.append((90.0, 110.0))
    assert records.account().wrong == {}


def test_without_all_events_there_is_no_account(records: Records) -> None:
    records.events.missed = 1
    assert records.account().wrong == {"events_missed": 1}


async def test_events_that_left_the_stream_before_they_were_read_are_missed(bench: Bench, tmp_path: Path) -> None:
    events = Events(lambda: bench.client, bench.keys.events, tmp_path / "events")
    for number in range(5):
        await bench.client.xadd(bench.keys.events, {"done": f"j{number}"})
        if number == 1:
            await events.catch_up(bench.client)
    await bench.client.xtrim(bench.keys.events, 2, approximate=False)
    await events.catch_up(bench.client)
    assert (events.missed, len(events.entries)) == (1, 4)


async def test_a_job_whose_end_was_undone_has_not_ended(bench: Bench, tmp_path: Path) -> None:
    events = Events(lambda: bench.client, bench.keys.events, tmp_path / "events")
    for status in ("running", "done"):
        name = await bench.client.xadd(bench.keys.events, {status: "j"})
    await events.catch_up(bench.client)
    assert events.ended("j")
    await bench.client.xdel(bench.keys.events, name)
    await events.catch_up(bench.client)
    assert not events.ended("j")


def test_an_account_finds_commands_without_a_claim_and_fences_that_repeat(records: Records) -> None:
    records.run("j", "5000", "5000")
    found = records.account().wrong
    assert found.keys() == {"fences_used_twice", "executed_without_cause", "executed_again"}


def test_a_lease_that_was_lost_allows_for_one_command_more(records: Records) -> None:
    def entry(number: int, **told: Any) -> None:
        records.events.entries[f"0-{number}"] = told

    records.events.entries.clear()
    for number, told in enumerate(({"running": ["j"]}, {"pending": ["j"]}, {"running": ["j"]}, {"done": ["j"]})):
        entry(number, **told)
    records.run("j", "5000", "6000")
    account = records.account()
    assert (account.wrong, account.executed_again, account.lease_losses) == ({}, 1, 1)
