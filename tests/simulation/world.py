"""One run: a seed becomes a world, a storm passes over it, and when it is over all must have ended well."""

import asyncio
import itertools
import logging
import os
import platform
import random
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeVar
from unittest import mock

import fakeredis
import structlog
from consistency import Audit
from redis.exceptions import ConnectionError as Away

from workron import ids
from workron.keys import Keys
from workron.policy import Policy
from workron.settings import Settings
from workron.store import Store

from .actors import QUEUES, ApiServer, Client, WorkerProcess, reaper
from .fake_redis import Server
from .history import History
from .network import Client as Redis
from .network import Network, Wire, _settle
from .plants import planted
from .timeline import EPOCH_S, Process, Timeline
from .weather import STORM_S, Blow, Fate, Weather, blows

POLICY: Final = Policy(lease_ms=4000, pass_ms=1000, retry_ms=200, retry_max_ms=1000, stop_ms=5000)
NAMESPACE: Final = "sim"
DRAIN_S: Final = 120.0
"""After the storm all jobs must have ended within this time: nobody starves."""
SETTLE_S: Final = 7.0
"""Then what is left over is cleared away."""
APIS, WORKERS, REAPERS, CLIENTS = 2, 3, 2, 2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a seed."""

    seed: int
    problems: tuple[str, ...]
    calls: int
    """Commands that the server has run."""
    jobs: int
    took_s: float
    """Virtual time."""
    digest: int
    """The same for the same seed, and for no other."""
    trace: tuple[tuple[float, str, str, str], ...] = ()


def run(seed: int, plant: str | None = None) -> Verdict:
    """Run a seed from its beginning to its verdict."""
    timeline = Timeline()
    with ExitStack() as stack:
        stack.enter_context(timeline.patched())
        stack.enter_context(planted(plant))
        stack.enter_context(_chance_of(seed, timeline))
        stack.enter_context(_silence())
        return World(seed, timeline).run()


@contextmanager
def _chance_of(seed: int, timeline: Timeline) -> Iterator[None]:
    """Have all that is random follow from the seed."""
    before, source = random.getstate(), Random(f"ids {seed}")

    def new_id() -> str:
        ms = int((EPOCH_S + timeline.now + timeline.running.skew_s) * 1000)
        return ids.encode(ms << 80 | 7 << 76 | source.getrandbits(74))

    random.seed(seed)
    with (
        mock.patch.object(ids, "new_id", new_id),
        mock.patch.object(os, "getpid", lambda: 1),
        mock.patch.object(platform, "node", lambda: "host"),
        mock.patch.object(secrets, "token_hex", lambda size: f"{source.getrandbits(8 * size):0{2 * size}x}"),
    ):
        yield
    random.setstate(before)


@contextmanager
def _silence() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


class World:
    """All that takes part in one run."""

    def __init__(self, seed: int, timeline: Timeline) -> None:
        self.seed = seed
        self.timeline = timeline
        self.random = Random(f"world {seed}")
        self.keys = Keys(NAMESPACE)
        self.server = Server(timeline)
        self.weather = Weather(Random(f"weather {seed}"))
        self.network = Network(timeline, self.server, self.weather)
        self.history = History(self.server, self.keys, POLICY.lease_ms)
        self.history.moved = lambda job_id, how: self.network.note("", job_id, how)
        self.network.applied = self._applied
        self.known: list[str] = []
        """Jobs that clients were told of."""
        self.rolled_back = False
        self._errors: list[str] = []
        self._names = itertools.count()
        self._apis: list[ApiServer] = []
        self._processes: list[Process] = []
        self._leaving: dict[Process, WorkerProcess] = {}
        self._clients: list[Process] = []

    # --- the course of a run ------------------------------------------------------------------------------------------

    def run(self) -> Verdict:
        for start in [self._start_api] * APIS + [self._start_worker] * WORKERS + [self._start_reaper] * REAPERS:
            start()
        for number in range(CLIENTS):
            self._start_client(number)
        for blow in blows(self.random):
            self.timeline.push(blow.at_s, None, lambda blow=blow: self._strike(blow))
        self.timeline.run_until(STORM_S)
        self._calm()
        waited_s = self._drain()
        problems = self._judge(waited_s)
        for process in [*self._processes, *self._clients]:
            process.kill()
        return self._verdict(problems)

    def _calm(self) -> None:
        """End the storm: all is alive again, and calls go well."""
        self.weather.over = True
        self.network.note("world", "THE STORM IS OVER", "")
        for process in self._processes:
            if process.frozen:
                process.thaw()

    def _drain(self) -> float:
        """Wait until nothing is left to do; returns how long that took."""
        until = self.timeline.now + DRAIN_S
        while self.timeline.now < until and not self._is_quiet():
            self.timeline.run_until(self.timeline.now + 1.0)
        waited_s = self.timeline.now - STORM_S
        self.timeline.run_until(self.timeline.now + SETTLE_S)
        return waited_s

    def _is_quiet(self) -> bool:
        """Whether clients have said all they have to say, and every job has ended."""
        keys = (self.keys.propagate, self.keys.batches, self.keys.arrays)
        busy = any(process.alive for process in self._clients) or self.history.unfinished()
        return not busy and not any(self.server.get(key) for key in keys)

    def _judge(self, waited_s: float) -> list[str]:
        problems = [*self.history.problems, *self.timeline.broken, *self._errors, *self.history.lost()]
        unfinished = self.history.unfinished()
        if unfinished:
            problems += [f"{one} {waited_s:.0f} s after the storm" for one in unfinished]
        elif not self._is_quiet():
            problems.append(f"something is still under way {waited_s:.0f} s after the storm")
        else:
            with self.timeline.as_host(self.server):
                problems += [f"audit: {problem}" for problem in asyncio.run(self._audit())]
        return list(dict.fromkeys(problems))

    async def _audit(self) -> list[str]:
        client = fakeredis.FakeAsyncRedis(server=self.server.fake, protocol=3)
        try:
            return await Audit(client, self.keys).problems()
        finally:
            await client.aclose()

    def _verdict(self, problems: list[str]) -> Verdict:
        trace = tuple(self.network.trace) if problems else ()
        jobs, took_s = len(self.history.told.jobs), self.timeline.now
        return Verdict(self.seed, tuple(problems), self.server.calls, jobs, took_s, self.network.digest, trace)

    def _applied(self, command: Any, answer: Any) -> None:
        if isinstance(answer, Exception) and self.server.script:
            self._errors.append(f"{self.server.script} was answered with an error: {answer}")
        self.history.applied(command, answer)

    # --- processes ----------------------------------------------------------------------------------------------------

    def store(self, process: Process) -> Store:
        return Store(Wire(Redis(self.network, process)), namespace=NAMESPACE, policy=POLICY, shebang=False)

    def _process(self, kind: str, again: Callable[[], None]) -> Process:
        process = Process(self.timeline, f"{kind}{next(self._names)}")
        process.ended = lambda: self._replace(process, 1.0)
        process.again = again
        self._processes.append(process)
        return process

    def _replace(self, process: Process, after_s: float) -> None:
        """End a process, and start another one in its place after a while."""
        process.kill()
        if process in self._processes:
            self._processes.remove(process)
            self._apis = [api for api in self._apis if api.process is not process]
            self._leaving.pop(process, None)
            self.timeline.after(after_s, process.again)

    def _start_api(self) -> None:
        self._apis.append(ApiServer(self, self._process("api", self._start_api)))

    def _start_worker(self) -> None:
        process = self._process("worker", self._start_worker)
        settings = _settings().model_copy(update={"worker_name": process.name})
        actor = self._leaving[process] = WorkerProcess(self, process, settings)
        process.start(actor.run())

    def _start_reaper(self) -> None:
        process = self._process("reaper", self._start_reaper)
        process.start(reaper(self, process, POLICY.pass_ms / 1000))

    def _start_client(self, number: int) -> None:
        process = Process(self.timeline, f"client{number}")
        process.ended = process.kill
        self._clients.append(process)
        process.start(Client(self, process, Random(f"client {number} {self.seed}"), requests=8).run())

    async def ask(self, client: Process, api: int, handle: Callable[[Store], Awaitable[T]]) -> T:
        """Have an API server do something, and bring the answer back, over a network that loses things."""
        answer: asyncio.Future[T] = client.loop.create_future()
        fate = self.weather.fate()
        server = self._apis[api % len(self._apis)] if self._apis else None
        if server is None or fate is Fate.REFUSED:
            raise Away("no API answers")

        def begin() -> None:
            server.process.loop.create_task(handle(server.store)).add_done_callback(end)

        def end(task: asyncio.Task[T]) -> None:
            if task.cancelled():
                return
            value = task.exception() or task.result()
            if fate in (Fate.LOST, Fate.LATE):
                return
            back = asyncio.Handle(_settle, (answer, value), client.loop)
            self.timeline.push(self.timeline.now + self.weather.delay_s(), client, back)

        there = asyncio.Handle(begin, (), server.process.loop)
        self.timeline.push(self.timeline.now + self.weather.delay_s(), server.process, there)
        return await answer

    # --- faults -------------------------------------------------------------------------------------------------------

    def _strike(self, blow: Blow) -> None:
        process = self._processes[blow.who % len(self._processes)] if self._processes else None
        match blow.kind:
            case "restart":
                self.network.restart(blow.length_s, None)
            case "rollback":
                self._remember(blow)
            case "server clock":
                self.server.skew_s += blow.length_s
                self.history.steady = False
                self.network.note("redis", "CLOCK", f"{blow.length_s:+g} s")
            case _ if process is not None:
                self._strike_process(blow, process)

    def _strike_process(self, blow: Blow, process: Process) -> None:
        self.network.note(process.name, blow.kind.upper(), f"{blow.length_s:.1f} s")
        match blow.kind:
            case "crash":
                self._replace(process, blow.length_s)
            case "freeze":
                process.freeze()
                self.timeline.after(blow.length_s, process.thaw)
            case "host clock":
                process.skew_s += blow.length_s
            case "leave" if process in self._leaving:
                handle = asyncio.Handle(self._leaving[process].leave, (), process.loop)
                self.timeline.push(self.timeline.now, process, handle)

    def _remember(self, blow: Blow) -> None:
        """Have the server restart in a moment with the state that it has now."""
        state, told = self.server.state(), self.history.save()

        def restart() -> None:
            self.rolled_back = True
            self.history.roll_back(told, state)
            self.network.restart(blow.length_s, state)

        self.timeline.after(self.random.choice((0.01, 0.1, 1.0, 3.0)), restart)


def _settings() -> Settings:
    lease_s = POLICY.lease_ms / 1000
    return Settings(slots=2, queues=list(QUEUES), lease=lease_s, heartbeat=lease_s / 3, drain_timeout=1.0)
