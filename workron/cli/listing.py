"""Jobs as text: the table of `ls` and the details of `show`."""

import json
import shlex
from collections.abc import Iterator
from typing import Any, Final

from workron.cli import moments
from workron.cli.job_fields import FIELDS
from workron.cli.render import Column, print_card, status_style
from workron.cli.text import printable, printable_lines
from workron.client.documents import JobDoc, UniqueDoc


def command_line(job: JobDoc) -> str:
    """Return the command as typed in a shell."""
    return job["command"] if job["command"] is not None else shlex.join(job["argv"] or ())


def ending(job: JobDoc) -> str:
    """Return how it ended: `exit 1`, `signal 9`, `timeout`, `worker lost` …; empty if the status says it."""
    if job["exit_code"]:
        return f"exit {job['exit_code']}"
    if job["reason"] in {"exit_code", "signal"} and job["signal"] is not None:
        return f"signal {job['signal']}"
    return "" if job["reason"] == job["status"] else (job["reason"] or "").replace("_", " ")


def standing(job: JobDoc) -> str:
    """Return the status, or `cancelling` while a running command is being stopped."""
    return "cancelling" if job["status"] == "running" and job["cancel_requested_at"] else job["status"]


def _status_style(document: Any) -> str:
    return status_style(document["status"])


def _dim(_: Any) -> str:
    return "dim"


ID: Final = Column("ID", lambda job: job["id"], style=lambda _: "cyan")
STATUS: Final = Column("STATUS", standing, style=_status_style)
NAME: Final = Column("NAME", lambda job: job["name"] or "", rank=1, flexible=True)
TRIES: Final = Column("TRIES", lambda job: f"{job['attempts']}/{job['max_attempts']}", rank=4, right=True)
TOOK: Final = Column("TOOK", moments.took, rank=3, right=True)
ENDING: Final = Column("WHY", ending, rank=2, style=_dim)
COMMAND: Final = Column("COMMAND", command_line, rank=1, flexible=True)

JOBS: Final = (
    ID,
    STATUS,
    ENDING,
    Column("QUEUE", lambda job: job["queue"], rank=6, style=_dim),
    TRIES,
    Column("AGE", lambda job: moments.age(job["created_at"]), rank=5, right=True),
    TOOK,
    NAME,
    COMMAND,
)
OUTCOMES: Final = (ID, STATUS, ENDING, TOOK, NAME)


def print_job(job: JobDoc) -> None:
    """Print all details of a job."""
    heading = f"{job['id']}  {standing(job)}" + (f"  {job['name']}" if job["name"] else "")
    print_card(heading, f"bold {status_style(job['status'])}".strip(), _rows(job))


_OWN_ROWS: Final = frozenset(
    ("command", "argv", "timeout", "env", "cwd", "name", "tags", "metadata", "queue", "priority", "max_attempts")
)


def _rows(job: JobDoc) -> Iterator[tuple[str, str]]:
    yield "command", printable_lines(command_line(job))
    yield "directory", printable(job["cwd"] or "")
    yield from _array_rows(job)
    for name, value in job["env"].items():
        yield "env", printable(f"{name}={value}")
    yield "tags", printable(", ".join(job["tags"]))
    yield "metadata", printable(json.dumps(job["metadata"], ensure_ascii=False)) if job["metadata"] else ""
    yield "queue", f"{job['queue']}, priority {job['priority']}"
    if (concurrency := job["concurrency"]) is not None:
        yield "concurrency", f"{printable(concurrency['key'])}, at most {concurrency['limit']} at once"
    yield "unique", _holding(job["unique"])
    yield "tries", f"{job['attempts']} of {job['max_attempts']}" + (f", run {job['run']}" if job["run"] > 1 else "")
    yield "retry", _retrying(job)
    yield "timeout", moments.length(job["timeout"]) if job["timeout"] else ""
    for name, shown in job.items():
        if name in FIELDS and name not in _OWN_ROWS:
            yield name.replace("_", " "), printable(str(shown)) if shown else ""
    for label, moment in (
        ("created", job["created_at"]),
        ("run at", job["run_at"]),
        ("start by", job["expires"]),
        ("end by", job["deadline"]),
        ("started", job["started_at"]),
        ("heartbeat", job["last_heartbeat"] if job["status"] == "running" else None),
        ("cancelled", job["cancel_requested_at"]),
        ("finished", job["finished_at"]),
    ):
        yield label, moments.clock(moment) if moment else ""
    yield "took", moments.took(job)
    yield "worker", printable(job["worker"] or "")
    yield "ended by", "exit 0" if job["exit_code"] == 0 and not job["reason"] else ending(job)
    yield "progress", printable(_progress(job["progress"]))
    yield "result", printable(json.dumps(job["result"], ensure_ascii=False)) if job["result"] is not None else ""
    for edge in job["dependencies"]:
        which = ", task by task" if edge["matching"] else ""
        yield "after", f"{edge['job']} {edge['when']}{which}, is {edge['status'] or 'no longer stored'}"
    yield "workflow", job["workflow"] or ""
    yield "error", printable_lines(job["error"] or "")


def _array_rows(job: JobDoc) -> Iterator[tuple[str, str]]:
    if (task := job["task"]) is not None:
        value = f", value {printable(task['value'])}" if task["value"] is not None else ""
        yield "task", f"{task['index']} of {task['array']}{value}"
    if (array := job["array"]) is not None:
        counted = ", ".join(f"{number} {status}" for status, number in array["counts"].items() if number)
        at_once = f", {array['max_parallel']} at once" if array["max_parallel"] else ""
        yield "tasks", f"{array['size']}{at_once}: {counted}"


def _retrying(job: JobDoc) -> str:
    """Return the job's own retry policy."""
    policy = job["retry"]
    parts = []
    if policy is not None:
        waits = (("after", policy["delay"]), ("at most", policy["max_delay"]))
        parts += [f"{word} {moments.length(wait)}" for word, wait in waits if wait is not None]
        parts += [f"{word} {policy[word]:g}" for word in ("factor", "jitter") if policy[word] is not None]
    for words, codes in (("only on exit", job["retry_on_exit"]), ("not on exit", job["no_retry_on_exit"])):
        parts += [f"{words} {', '.join(map(str, codes))}"] if codes else []
    return ", ".join(parts)


def _progress(progress: float | str | None) -> str:
    return "" if progress is None else progress if isinstance(progress, str) else f"{progress:g}"


def _holding(unique: UniqueDoc | None) -> str:
    if unique is None:
        return ""
    return f"{printable(unique['key'])} until {unique['until']}, at most {moments.length(unique['ttl'])}"
