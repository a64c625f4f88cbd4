"""Commands about workers: list and drain them."""

import time
from collections.abc import Iterator
from typing import Final

import click

from workron.cli import moments
from workron.cli.command import command
from workron.cli.connect import client_options
from workron.cli.each import Each
from workron.cli.exits import Exit, notice
from workron.cli.options import ids_argument
from workron.cli.render import Column, Format, output_option, print_card, print_document, print_table
from workron.cli.text import printable
from workron.cli.values import DURATION
from workron.client import Client
from workron.client.documents import WorkerDoc
from workron.errors import ApiProblem

_POLL_S: Final = 0.5
_STYLES: Final = {"active": "green", "draining": "yellow", "lost": "bold red"}


def _style(worker: WorkerDoc) -> str:
    return _STYLES.get(worker["state"], "")


def _busy(worker: WorkerDoc) -> str:
    return f"{worker['running']}/{worker['slots']}"


WORKERS: Final = (
    Column("WORKER", lambda worker: worker["id"], flexible=True, style=lambda _: "cyan"),
    Column("STATE", lambda worker: worker["state"], style=_style),
    Column("BUSY", _busy, right=True),
    Column("BEAT", lambda worker: moments.age(worker["last_heartbeat"]), rank=2, right=True),
    Column("UP", lambda worker: moments.age(worker["started_at"]), rank=4, right=True),
    Column("HOST", lambda worker: worker["host"], rank=3, flexible=True),
    Column("PID", lambda worker: str(worker["pid"]), rank=3, right=True),
    Column("VERSION", lambda worker: worker["version"], rank=6),
    Column("QUEUES", lambda worker: ", ".join(worker["queues"]), rank=1, flexible=True),
    Column("JOBS", lambda worker: " ".join(worker["jobs"]), rank=5, flexible=True),
)


@command("workron workers", "workron workers HOST-Ab3dEf", "workron workers -o json")
@click.argument("worker", metavar="[WORKER]", required=False, help="id of a worker, for its details")
@output_option
@client_options
def workers(worker: str | None, output: Format, client: Client) -> None:
    """List live workers, and those lost within the last hour."""
    if worker is not None:
        print_document(client.worker(worker), output, _print_worker)
    elif not print_table(client.workers(), output, WORKERS):
        notice("no workers: start one with `workron up` or `workron worker`")


def _print_worker(worker: WorkerDoc) -> None:
    print_card(f"{worker['id']}  {worker['state']}", f"bold {_style(worker)}".strip(), _facts(worker))


def _facts(worker: WorkerDoc) -> Iterator[tuple[str, str]]:
    yield "host", printable(worker["host"])
    yield "pid", str(worker["pid"])
    yield "version", printable(worker["version"])
    yield "queues", printable(", ".join(worker["queues"]))
    yield "slots", f"{_busy(worker)} in use"
    yield "started", moments.clock(worker["started_at"])
    yield "heartbeat", moments.clock(worker["last_heartbeat"])
    for job_id in worker["jobs"]:
        yield "job", printable(job_id)


@command(
    "workron drain HOST-Ab3dEf",
    "workron drain --wait --timeout 2h HOST-Ab3dEf && echo it has ended",
    "workron workers -o jsonl | jq -r 'select(.host == \"old\").id' | workron drain --wait -",
)
@ids_argument("ids of workers", "workers", "WORKER...")
@click.option("--timeout", type=DURATION, help="how long its jobs may keep running; by default its own --drain-timeout")
@click.option("--wait", is_flag=True, help="wait until they have ended")
@output_option
@client_options
def drain(workers: tuple[str, ...], timeout: float | None, *, wait: bool, output: Format, client: Client) -> int:
    """Drain workers: they claim no more jobs, let their jobs finish, and stop.

    Jobs still running after the timeout are stopped and released: another worker runs them. A worker restarted by a
    supervisor, such as `up` or a container, is a new worker.
    """
    asked: list[str] = []

    def ask(worker_id: str) -> WorkerDoc:
        asked.append(worker_id)
        return client.drain(worker_id, timeout_s=timeout)

    each = Each(workers, ask)
    print_table(each, output, WORKERS)
    lost = [worker_id for worker_id in asked if wait and not _has_gone(client, worker_id)]
    return each.code or (Exit.JOB_FAILED if lost else Exit.OK)


def _has_gone(client: Client, worker_id: str) -> bool:
    """Wait until a worker has stopped; return whether it stopped by itself."""
    client.persist()
    while True:
        try:
            state = client.worker(worker_id)["state"]
        except ApiProblem as problem:
            if problem.status == 404:
                return True
            raise
        if state == "lost":
            notice(f"{worker_id} was lost before it stopped: the reaper recovers its jobs")
            return False
        time.sleep(_POLL_S)
