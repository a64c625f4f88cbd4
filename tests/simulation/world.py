"""All that takes part in a run: who is there, how they reach each other, and how faults strike them."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from redis.exceptions import ConnectionError as Away

from tests.simulation.actors import QUEUES, Client, WorkerProcess, reaper
from tests.simulation.chance import seeded
from tests.simulation.fake_redis import Server
from tests.simulation.fault_plan import LAST_ROLLBACK_S, Blow, Course, Fate, Weather, blows
from tests.simulation.history import History
from tests.simulation.http import ApiServer, settle
from tests.simulation.left_behind import Watch
from tests.simulation.network import Client as Redis
from tests.simulation.network import Network, Wire
from tests.simulation.rollback_observers import Witnesses
from tests.simulation.strangers import Stranger
from tests.simulation.timeline import Process, Timeline
from workron.redis.keys import Keys
from workron.settings import Settings
from workron.store import Store
from workron.store.policy import Policy

POLICY: Final = Policy(lease_ms=4000, pass_ms=1500, retry_ms=200, retry_max_ms=1000, stop_ms=5000)
NAMESPACE: Final = "sim"
STALLS, BETWEEN_STALLS_S, LEAP_S = 3, 2.0, 3600.0
MOST_COMMANDS, MOST_LOOKED_AT = 300, 1000
LARGE_STEPS = ("maintain_repair", "maintain_promote")
"""Most commands of one call of a script, with the small bounds of a run; two scripts keep their large ones."""
APIS, WORKERS, HTTP_WORKERS, REAPERS, CLIENTS = 2, 2, 1, 2, 2

T = TypeVar("T")


class World:
    """All that takes part in one run."""

    def __init__(self, seed: int, timeline: Timeline, course: Course) -> None:
        self.seed = seed
        self.course = course
        self.timeline = timeline
        self.random = seeded(f"world {seed}")
        self.keys = Keys(NAMESPACE)
        self.server = Server(timeline)
        self.weather = Weather(seeded(f"weather {seed}"), course)
        self.network = Network(timeline, self.server, self.weather)
        self.history = History(self.server, self.keys, POLICY.lease_ms, course)
        self.witnesses = Witnesses(self.server, self.keys)
        self.history.moved = lambda job_id, how: self.network.note("", job_id, how)
        self.network.applied = self._applied
        self.network.deadly = lambda process: self._replace(process, self.random.choice((0.1, 1.0, 6.0)))
        self.known: list[str] = []
        """Jobs that clients were told of."""
        self.set_back = False
        """Whether the server's clock was, once."""
        self.errors: list[str] = []
        """What scripts were answered with that nobody should see."""
        self._settings = _settings()
        self._names = itertools.count()
        self._apis: list[ApiServer] = []
        self._processes: list[Process] = []
        self._leaving: dict[Process, WorkerProcess] = {}
        self._clients: list[Process] = []

    def start(self) -> None:
        """Have everybody begin, and the faults lie in wait."""
        over_http = partial(self._start_worker, over_http=True)
        workers = [self._start_worker] * WORKERS + [over_http] * HTTP_WORKERS
        if self.course is Course.OUTAGE:  # half of them can be refused
            workers = [self._start_worker, over_http] * 2
        for start in [self._start_api] * APIS + workers + [self._start_reaper] * REAPERS:
            start()
        for number in range(CLIENTS):
            self._start_client(f"client{number}", lambda client: client.run())
        if self.course is Course.OUTAGE:
            self._start_stranger()
        for blow in blows(self.random, self.course):
            self.timeline.push(blow.at_s, None, partial(self._strike, blow))

    def calm(self) -> None:
        """End the storm: all is alive again, and calls go well."""
        self.weather.over = True
        self.network.note("world", "*** the storm is over", "")
        for process in self._processes:
            if process.frozen:
                process.thaw()

    def put_right(self) -> None:
        """Have somebody open what clients have closed."""
        self._start_client("operator", lambda client: client.put_right())

    @property
    def asked(self) -> bool:
        """Whether clients have said all they have to say."""
        return not any(process.alive for process in self._clients)

    def is_quiet(self) -> bool:
        """Whether nobody wants anything any more, and every job has ended."""
        keys = (self.keys.propagate, self.keys.batches, self.keys.arrays, self.keys.actions_open)
        return self.asked and not self.history.unfinished() and not any(self.server.get(key) for key in keys)

    def end(self) -> None:
        for process in [*self._processes, *self._clients]:
            process.kill()

    def _applied(self, command: Any, answer: Any) -> None:
        if self.course is Course.OUTAGE:
            self._work_is_bounded()
        if isinstance(answer, Exception) and self.server.script:
            self.errors.append(f"{self.server.script} was answered with an error: {answer}")
        self.history.applied(command, answer)

    def _work_is_bounded(self) -> None:
        script, commands = self.server.script, self.server.commands
        if script and commands > (MOST_LOOKED_AT if script in LARGE_STEPS else MOST_COMMANDS):
            self.errors.append(f"one call of {script} has run {commands} commands")

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
        process = self._process("api", self._start_api)
        self._apis.append(ApiServer(process, self.store(process), self._settings))

    def _start_worker(self, *, over_http: bool = False) -> None:
        process = self._process("http" if over_http else "worker", partial(self._start_worker, over_http=over_http))
        settings = self._settings.model_copy(update={"worker_name": process.name})
        actor = self._leaving[process] = WorkerProcess(self, process, settings, over_http=over_http)
        process.start(actor.run())

    def _start_reaper(self) -> None:
        process = self._process("reaper", self._start_reaper)
        process.start(reaper(self, process, POLICY.pass_ms / 1000))

    def _start_client(self, name: str, work: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
        process = Process(self.timeline, name)
        process.ended = process.kill
        self._clients.append(process)
        random = seeded(f"{name} {self.seed}")
        process.start(work(Client(self, process, random, requests=8, course=self.course)))

    def _start_stranger(self) -> None:
        process = Process(self.timeline, "stranger")
        process.ended = process.kill
        self._clients.append(process)
        store, watch = self.store(process), Watch(self.server, self.keys)
        self.network.watched[process] = watch
        api = ApiServer(process, store, self._settings)
        process.start(Stranger(self, store, api, watch, seeded(f"stranger {self.seed}")).run())

    def note(self, who: str, what: str, outcome: str) -> None:
        self.network.note(who, what, outcome)

    def some_api(self, number: int | None = None) -> ApiServer | None:
        number = self.random.randrange(1000) if number is None else number
        return self._apis[number % len(self._apis)] if self._apis else None

    async def ask(self, client: Process, api: int, handle: Callable[[Store], Awaitable[T]]) -> T:
        """Have an API server do something, and bring the answer back, over a network that loses things."""
        answer: asyncio.Future[T] = client.loop.create_future()
        fate = self.weather.fate()
        server = self.some_api(api)
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
            back = asyncio.Handle(settle, (answer, value), client.loop)
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
            case "stand still":
                self.network.stand_still(blow.length_s)
            case "rollback":
                self._remember(blow)
            case "stalls":
                self._stall(blow.length_s, STALLS)
            case "server clock":
                self.server.skew_s += blow.length_s
                self.set_back = self.set_back or blow.length_s < 0
                self.history.clock_was_set()
                self.network.note("redis", "*** clock", f"{blow.length_s:+g} s")
                if blow.length_s >= LEAP_S:  # somebody notices that
                    back = Blow(0, blow.kind, blow.who, -blow.length_s)
                    self.timeline.after(self.random.choice((0.5, 2.0, 4.0)), partial(self._strike, back))
            case _ if process is not None:
                self._strike_process(blow, process)

    def _stall(self, length_s: float, times: int) -> None:
        """Have all reapers stand still, go on for a pass, and stand still again."""
        self.network.note("world", "*** reapers stand still", f"{length_s:.1f} s")
        still = [process for process in self._processes if process.name.startswith("reaper")]
        for process in still:
            process.freeze()
            self.timeline.after(length_s, process.thaw)
        if times > 1:
            self.timeline.after(length_s + BETWEEN_STALLS_S, partial(self._stall, length_s, times - 1))

    def _strike_process(self, blow: Blow, process: Process) -> None:
        self.network.note(process.name, f"*** {blow.kind}", f"{blow.length_s:.1f} s")
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
            self.network.restart(blow.length_s, state)
            self.history.roll_back(told)
            self.witnesses.rolled_back()

        self.timeline.after(self.random.choice((0.01, 0.3, 2.0, LAST_ROLLBACK_S)), restart)


def _settings() -> Settings:
    """Settings of all processes, whatever the environment says."""
    lease_s = POLICY.lease_ms / 1000
    times = {"lease": lease_s, "heartbeat": lease_s / 3, "drain_timeout": 1.0}
    return Settings.model_validate({"slots": 2, "queues": [*QUEUES], "data_dir": "unused", **times})
