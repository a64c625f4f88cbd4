"""Workron's store driven directly: filling, claiming and finishing in large numbers, without worker processes."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.server import Server
from workron import ids
from workron.models import Claim, ClaimRequest, Dependency, NewJob, Outcome, Result, WorkerInfo
from workron.models.exchange import MAX_RESULTS
from workron.redis.connection import Connection
from workron.redis.scripts import Script
from workron.store import Store

CHUNK = 400
SCRIPTS = sorted(path.stem for path in (Path(__file__).parent.parent / "lua").glob("*.lua"))


@dataclass
class Direct:
    """A store, and the claims that it holds."""

    server: Server
    store: Store
    worker: str = "bench"
    held: list[Claim] = field(default_factory=list)
    requests: int = 0
    names: dict[str, str] = field(default_factory=dict)

    @classmethod
    def on(cls, server: Server, namespace: str = "default") -> "Direct":
        store = Store(Connection.open(server.url), namespace=namespace)
        return cls(server, store, names={Script.load(name, shebang=True).sha: name for name in SCRIPTS})

    async def fill(self, count: int) -> None:
        """Store this many waiting jobs."""
        for start in range(0, count, CHUNK):
            batch = ids.new_ids(min(CHUNK, count - start))
            await self.store.submit([NewJob(name, command="true") for name in batch])

    def _request(self, limit: int) -> ClaimRequest:
        self.requests += 1
        return ClaimRequest(self.worker, ("default",), limit, f"bench:{self.requests}")

    async def time_claims(self, count: int) -> tuple[float, float]:
        """Claim one by one; return p50 and p99 of the calls in the server, in µs."""
        self.server.client.config_resetstat()
        for _ in range(count):
            self.held += (await self.store.attempts.claim(self._request(1))).claims
        row: Any = self.server.info()["latency_percentiles_usec_evalsha"]
        return float(row["p50"]), float(row["p99"])

    async def claim_all(self) -> None:
        while claims := (await self.store.attempts.claim(self._request(MAX_RESULTS))).claims:
            self.held += claims

    async def finish_all(self) -> None:
        """Claim and finish until nothing waits."""
        while True:
            batch, self.held = self.held[:MAX_RESULTS], self.held[MAX_RESULTS:]
            results = [Result(claim.id, claim.fence, Outcome(None, exit_code=0)) for claim in batch]
            request = self._request(MAX_RESULTS) if len(self.held) < MAX_RESULTS else None
            done = await self.store.attempts.finish(results, request, worker=self.worker)
            self.held += done.claimed.claims
            if not self.held and not done.claimed.more:
                return

    async def submit_layers(self, size: int, width: int = 100) -> None:
        """A workflow of layers; each job depends on one of the layer before."""
        names = ids.new_ids(size)
        jobs = [
            NewJob(name, command="true", depends_on=(Dependency(names[at - width]),) if at >= width else ())
            for at, name in enumerate(names)
        ]
        await self.store.submit(jobs, as_workflow=True)

    async def submit_fan_out(self, size: int) -> None:
        """A workflow in which all jobs depend on the first one."""
        names = ids.new_ids(size)
        edge = (Dependency(names[0]),)
        jobs = [NewJob(name, command="true", depends_on=edge if at else ()) for at, name in enumerate(names)]
        await self.store.submit(jobs, as_workflow=True)

    async def finish_first_and_propagate(self) -> None:
        self.held.clear()
        [claim] = (await self.store.attempts.claim(self._request(1))).claims
        await self.store.attempts.finish([Result(claim.id, claim.fence, Outcome(None, exit_code=0))])
        await self.store.maintenance.propagate()

    async def heartbeat(self) -> None:
        now_ms = int(time.time() * 1000)
        info = WorkerInfo(self.worker, "bench", 1, ("default",), len(self.held), len(self.held), now_ms, "0")
        await self.store.attempts.heartbeat(info, [(claim.id, claim.fence) for claim in self.held])

    def watch_slow(self) -> None:
        """Have the server note every call of a quarter of a millisecond and more, from now on."""
        self.server.client.config_set("slowlog-log-slower-than", 250)
        self.server.client.config_set("slowlog-max-len", 20_000)
        self.server.client.slowlog_reset()

    def slowest(self) -> tuple[str, float]:
        """Return the script of the longest call since `watch_slow`, and how long it took in ms."""
        rows: Any = self.server.client.slowlog_get(20_000)
        calls = [(row["duration"] / 1000, row["command"].split()[:2]) for row in rows]
        calls = [(took, words) for took, words in calls if words[0].upper() in (b"EVALSHA", b"EVAL")]
        took, words = max(calls, default=(0.0, [b"", b"none"]))
        return self.names.get(words[1].decode(errors="replace"), "first call of a script"), took
