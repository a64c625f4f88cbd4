"""Clients that submit all the time, repeat what was not answered, and remember what was acknowledged."""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import httpx2

from tests.chaos.deployment import API_KEY
from workron.models import output_stream

TRIES: Final = 100
"""Most attempts of a job that has to succeed in the end, whatever befalls its workers."""
MIX: Final = {
    "workflow": 8,
    "flaky": 4,
    "array": 2,
    "unique": 2,
    "line": 3,
    "cancel": 3,
    "retry": 2,
    "slow": 1,
    "talk": 3,
}
"""How often each kind is submitted, in proportion."""
WORKFLOW_ENDS: Final = {
    "flaky": "done",
    "left": "done",
    "right": "done",
    "join": "done",
    "bad": "failed",
    "mourner": "skipped",
    "heir": "skipped",
    "handler": "done",
    "final": "done",
}
"""How each job of a workflow has to end, whoever is killed meanwhile."""
WORKFLOW_EDGES: Final = {
    "left": [("flaky", "done")],
    "right": [("flaky", "done")],
    "join": [("left", "done"), ("right", "done")],
    "mourner": [("bad", "done")],
    "heir": [("mourner", "done")],
    "handler": [("bad", "failed")],
}
WORDS: Final = range(1, 11)
"""What a job that talks says, one after the other, each behind its attempt's fence."""
_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_FORGOTTEN: Final = 410
_REPEATED: Final = 200
_STORED: Final = frozenset({_REPEATED, 201})
"""200: the answer to a repeated request, or the job that has the unique key."""
_PAUSE_S: Final = 0.2
ANSWER_S: Final = 3.0
"""How long a client waits for an answer before it asks again: servers give theirs within 2 s."""


class Load:
    """A number of clients behind one address, and a probe that submits a job every fraction of a second."""

    def __init__(self, port: int, folder: Path, seed: int, ended: Callable[[str], bool]) -> None:
        self.acknowledged: dict[str, tuple[float, frozenset[str]]] = {}
        """When each job was acknowledged (s since the epoch), and how it may end."""
        self.runs: dict[str, int] = {}
        """The run of jobs that were retried by their submitter."""
        self.probes: dict[str, float] = {}
        """When each probe was submitted."""
        self.sizes: dict[str, int] = {}
        """How many jobs run under a name, where it is not one: tasks of an array."""
        self.arrays: dict[str, str] = {}
        """The names of jobs that have tasks in place of a command."""
        self.parents: dict[str, list[tuple[str, str]]] = {}
        """What each job waits for, and how that has to end: done, failed or finished."""
        self.followed: dict[str, bytes] = {}
        """What came of the output of jobs that were followed to their end."""
        self.unanswered = 0
        self.rate = 12.0
        """Jobs a second that the clients try for."""
        self.most_open = 150
        self._tag = f"{seed}"
        self._chance = random.Random(seed)  # noqa: S311 - a load that can be repeated
        self._folder = folder
        self._ended = ended
        self._open: set[str] = set()
        self._number = 0
        self._stopping = asyncio.Event()
        self._http = httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            headers={"authorization": f"Bearer {API_KEY}"},
            timeout=ANSWER_S,
            trust_env=False,
            limits=httpx2.Limits(keepalive_expiry=5),
        )
        (folder / "marks").mkdir()

    async def run(self) -> None:
        """Submit until told to stop; return when each request under way is answered or given up."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._probe(group))
            while not self._stopping.is_set():
                await asyncio.sleep(1 / self.rate * self._chance.uniform(0.5, 1.5) * 4)
                self._open = {job_id for job_id in self._open if not self._ended(job_id)}
                if len(self._open) < self.most_open:
                    (kind,) = self._chance.choices(list(MIX), list(MIX.values()))
                    group.create_task(getattr(self, f"_{kind}")())

    @property
    def open(self) -> int:
        """How many acknowledged jobs had not ended when it last looked."""
        return len(self._open)

    def stop(self) -> None:
        self._stopping.set()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _post(self, path: str, body: Any, key: str, patience_s: float = 120.0) -> httpx2.Response | None:
        """Post until there is an answer, with the same Idempotency-Key; None if there is none in the end."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            try:
                answer = await self._http.post(path, json=body, headers={"Idempotency-Key": key})
            except httpx2.HTTPError:
                await asyncio.sleep(_PAUSE_S)
                continue
            if answer.status_code not in _AGAIN:
                return answer
            await asyncio.sleep(_PAUSE_S)
        return None

    def _next(self) -> str:
        self._number += 1
        return f"{self._tag}-{self._number}"

    def _acknowledge(self, job_id: str, *ends: str) -> None:
        self.acknowledged[job_id] = (time.time(), frozenset(ends))
        self._open.add(job_id)

    def _note(self, name: str) -> str:
        """Return the command that notes that it runs, and for whom."""
        return f"echo $WORKRON_JOB_ID $WORKRON_FENCE {name} >> {self._folder / 'ran'}"

    async def _submit(self, *ends: str, name: str | None = None, command: str = ":", **fields: Any) -> str | None:
        """Submit one job; return its id once that is acknowledged."""
        name = name or self._next()
        body = {"name": name, "command": f"{self._note(name)}; {command}", "max_attempts": TRIES, **fields}
        answer = await self._post("/jobs", body, name)
        if answer is None:
            self.unanswered += 1
            return None
        if answer.status_code == _FORGOTTEN:  # accepted, run and forgotten before its submitter was answered
            return None
        assert answer.status_code in _STORED, (answer.status_code, answer.text)
        job_id: str = answer.json()["id"]
        self._acknowledge(job_id, *ends)
        return job_id

    async def _workflow(self) -> None:
        name = self._next()

        def job(part: str, command: str, *parents: Any, **fields: Any) -> dict[str, Any]:
            command = f"{self._note(of(part))}; sleep 0.{self._chance.randint(1, 6)}; {command}"
            job = {"name": of(part), "command": command, "max_attempts": TRIES, "depends_on": parents}
            return job | fields

        def of(part: str) -> str:
            return f"{name}.{part}"

        jobs = [
            job("flaky", self._fails_once(name)),
            job("left", ":", of("flaky")),
            job("right", ":", of("flaky")),
            job("join", ":", of("left"), of("right")),
            job("bad", "exit 3", max_attempts=2),
            job("mourner", ":", of("bad")),
            job("heir", ":", of("mourner")),
            job("handler", ":", {"job": of("bad"), "when": "failed"}),
            job("final", ":", final=True),
        ]
        answer = await self._post("/workflows", {"name": name, "jobs": jobs}, name)
        if answer is None:
            self.unanswered += 1
            return
        if answer.status_code == _FORGOTTEN:
            return
        assert answer.status_code in _STORED, (answer.status_code, answer.text)
        ids = {made["name"].rpartition(".")[2]: made["id"] for made in answer.json()["jobs"]}
        # A repeat lists the jobs that are still stored: full memory deletes ended jobs early.
        assert len(ids) == len(jobs) or answer.status_code == _REPEATED, answer.text
        edges = WORKFLOW_EDGES | {"final": [(part, "finished") for part in ids if part != "final"]}
        for part, job_id in ids.items():
            self._acknowledge(job_id, WORKFLOW_ENDS[part])
            self.parents[job_id] = [(ids[parent], when) for parent, when in edges.get(part, ()) if parent in ids]

    def _fails_once(self, name: str) -> str:
        mark = self._folder / "marks" / name
        return f"test -e {mark} || {{ touch {mark}; echo not yet; exit 1; }}"

    async def _flaky(self) -> None:
        name = self._next()
        await self._submit("done", name=name, command=self._fails_once(name))

    async def _array(self) -> None:
        name, size = self._next(), self._chance.randint(2, 6)
        self.sizes[name] = size
        array = {"size": size, "max_parallel": 3}
        if job_id := await self._submit("done", name=name, command="sleep 0.2", array=array):
            self.arrays[job_id] = name

    async def _unique(self) -> None:
        """One of a few keys: the answer is the job that has it, whoever made that."""
        key = f"key-{self._chance.randint(1, 3)}"
        await self._submit("done", command="sleep 0.5", unique={"key": key})

    async def _line(self) -> None:
        key = {"key": f"line-{self._chance.randint(1, 3)}", "limit": self._chance.randint(1, 2)}
        await self._submit("done", command="sleep 0.2", concurrency=key)

    async def _slow(self) -> None:
        """Runs for longer than it may."""
        await self._submit("failed", command="sleep 30", timeout=0.5, max_attempts=2)

    async def _cancel(self) -> None:
        job_id = await self._submit("done", "cancelled", command="sleep 1")
        if job_id is None:
            return
        await asyncio.sleep(self._chance.uniform(0, 1))
        answer = await self._post(f"/jobs/{job_id}/cancel", {"run": 1}, f"cancel-{job_id}")
        if answer is not None and answer.status_code in (200, 202):
            self._acknowledge(job_id, "cancelled")
        elif answer is not None and answer.status_code == 409:
            self._acknowledge(job_id, "done")

    async def _retry(self) -> None:
        """A job that fails is run once more by who submitted it, and fails again."""
        job_id = await self._submit("failed", command="exit 4", max_attempts=1)
        if job_id is None:
            return
        while not self._ended(job_id):
            if self._stopping.is_set():
                return
            await asyncio.sleep(0.1)
        self.runs[job_id] = 2
        answer = await self._post(f"/jobs/{job_id}/retry", {"run": 1}, f"retry-{job_id}")
        if answer is not None and answer.status_code == 200:
            self._open.add(job_id)

    async def _talk(self) -> None:
        """Says something for two seconds, and is followed over servers that die and connections that break."""
        words = f"for n in {' '.join(map(str, WORDS))}; do echo $WORKRON_FENCE $n; sleep 0.2; done"
        job_id = await self._submit("done", command=words)
        if job_id is not None and (said := await self._follow(job_id)) is not None:
            self.followed[job_id] = said

    async def _follow(self, job_id: str, patience_s: float = 120.0) -> bytes | None:
        """Return all that comes of a job's output; None if it is not there any more, or no end of it comes."""
        position, said = "0:0", b""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            came, query = b"", {"follow": "true", "position": position}
            path, accept = f"/jobs/{job_id}/output", {"accept": output_stream.CONTENT_TYPE}
            with suppress(httpx2.HTTPError):
                async with self._http.stream("GET", path, params=query, headers=accept) as answer:
                    if answer.status_code == 404:
                        return None
                    if answer.is_success:
                        async for chunk in answer.aiter_bytes():
                            came += chunk
            for event in output_stream.read_events([came]):
                position, said = event.position, said + event.data
                if event.ended:
                    return said
            await asyncio.sleep(_PAUSE_S)
        return None

    async def _probe(self, group: asyncio.TaskGroup) -> None:
        while not self._stopping.is_set():
            group.create_task(self._probe_once())
            await asyncio.sleep(0.25)

    async def _probe_once(self) -> None:
        at = time.time()
        if job_id := await self._submit("done", priority=9):
            self.probes[job_id] = at
