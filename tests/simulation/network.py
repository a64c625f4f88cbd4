"""What stands between a process and the server: every call is under way for a while, and some go wrong.

A process's calls arrive in their order, as on one connection. Where a connection breaks, all calls on it fail at its
process, and what was under way may arrive nevertheless: later than what the next connection brings.
"""

import asyncio
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from redis.exceptions import ConnectionError as Away

from tests.simulation.fake_redis import Server, State
from tests.simulation.fault_plan import Fate, Weather
from tests.simulation.http import settle
from tests.simulation.left_behind import Watch
from tests.simulation.timeline import Process, Timeline
from workron.redis.connection import BLOCK_S, Connection

TRACE: Final = 5000
"""So many of the last calls are kept."""
_SCRIPT: Final = ("EVALSHA", "EVAL")
_NOT_TWICE: Final = frozenset({"BLPOP", "job_retry", "workflow_cancel"})
"""What the product never sends again by itself."""


@dataclass(eq=False)
class Lane:
    """One connection."""

    free_at: float = 0.0
    """When its last call arrives."""
    calls: list["Call"] = field(default_factory=list)
    blocks: bool = False
    """Whether its last call blocks, and those behind it wait on the server."""
    behind: list[Callable[[], None]] = field(default_factory=list)
    closed: bool = False


@dataclass(eq=False)
class Call:
    """A command under way."""

    process: Process
    command: Sequence[Any]
    answer: asyncio.Future[Any]
    boot: int
    lane: Lane


class Network:
    """All connections to the server."""

    def __init__(self, timeline: Timeline, server: Server, weather: Weather) -> None:
        self.timeline = timeline
        self.server = server
        self.weather = weather
        self.trace: deque[tuple[float, str, str, str]] = deque(maxlen=TRACE)
        self.digest = 0
        """Tells two runs apart in which anything was different."""
        self.applied: Callable[[Sequence[Any], Any], None] = lambda command, answer: None
        """Called when the server has run a command, with what it answered."""
        self.deadly: Callable[[Process], None] = lambda process: None
        """Called with a process that dies of a call."""
        self.late_until = 0.0
        """When the last of the calls arrives to which something happened on their way."""
        self.watched: dict[Process, Watch] = {}
        """Processes whose calls are to leave nothing behind."""
        self._still_until = 0.0
        self._boot = 0
        self._blocked: dict[str, deque[Call]] = {}
        self._subscriptions: list[Subscription] = []
        server.on_message = self._publish

    def note(self, who: str, what: str, outcome: str) -> None:
        self.trace.append((self.timeline.now, who, what, outcome))
        self.digest = zlib.crc32(f"{self.timeline.now:.9f} {who} {what} {outcome}".encode(), self.digest)

    async def call(self, client: "Client", command: Sequence[Any]) -> Any:
        """Send a command and wait for what comes back."""
        process, lane = client.process, client.lane
        if process.dying:
            raise Away("this process is dead")
        if not self.server.up:
            await asyncio.sleep(self.weather.delay_s())
            raise Away("connection refused")
        call = Call(process, command, process.loop.create_future(), self._boot, lane)
        fate = self.weather.fate(changes=command[0] in _SCRIPT)
        arrives_at = max(lane.free_at, self.timeline.now + self.weather.delay_s())
        if fate is Fate.STALLED:
            arrives_at += self.weather.long_delay_s()
        if fate is Fate.LATE:  # the connection breaks, and the call arrives after those of the next one
            self.timeline.after(self.weather.delay_s(), lambda: self._break(client, lane))
            arrives_at += self.weather.long_delay_s()
        else:
            lane.free_at = arrives_at
        if fate is not Fate.FINE:
            self.late_until = max(self.late_until, arrives_at)
        self.timeline.push(arrives_at, None, lambda: self._arrive(client, call, fate))
        lane.calls.append(call)
        try:
            return await call.answer
        except asyncio.CancelledError:
            lane.closed = True
            if client.lane is lane:  # who gives a call up does not use its connection any more
                client.lane = Lane()
            raise
        finally:
            lane.calls.remove(call)

    def _break(self, client: "Client", lane: Lane) -> None:
        lane.closed = True
        if client.lane is lane:
            client.lane = Lane()
        for call in lane.calls:
            self._reply(call, Away("connection reset"), 0.0)

    def _arrive(self, client: "Client", call: Call, fate: Fate) -> None:
        if self.timeline.now < self._still_until:
            self.timeline.push(self._still_until, None, lambda: self._arrive(client, call, fate))
        elif call.boot != self._boot:
            self._reply(call, Away("connection reset"), 0.0)
        elif call.lane.blocks:
            call.lane.behind.append(lambda: self._arrive(client, call, fate))
        elif fate is Fate.REFUSED:
            self.note(call.process.name, _label(call.command, ""), "NOT APPLIED, connection reset")
            self._break(client, client.lane)
        elif fate is Fate.DEADLY:
            self.note(call.process.name, _label(call.command, ""), "NOT APPLIED, its maker dies")
            self.deadly(call.process)
        elif call.command[0] == "BLPOP":
            self._block(call, fate)
        else:
            self._apply(call, fate)
            if fate is Fate.TWICE and self.server.script not in _NOT_TWICE:
                again_in_s = self.weather.long_delay_s()
                self.late_until = max(self.late_until, self.timeline.now + again_in_s)
                self.timeline.after(again_in_s, lambda: self._again(call))

    def _apply(self, call: Call, fate: Fate) -> None:
        watch = self.watched.get(call.process)
        with watch.looking() if watch else nullcontext():
            answer = self.server.apply(call.command)
        self._note(call, answer, "" if fate is Fate.FINE else fate.name)
        if fate is Fate.LAST:
            self.deadly(call.process)
        else:
            self._reply(call, Away("connection reset") if fate is Fate.LOST else answer, self.weather.delay_s())

    def _again(self, call: Call) -> None:
        if call.boot == self._boot and self.server.up:
            self._note(call, self.server.apply(call.command), "a delayed copy")

    def _note(self, call: Call, answer: Any, how: str) -> None:
        label = _label(call.command, self.server.script)
        self.note(call.process.name, label, f"{how + ': ' if how else ''}{_short(answer)}")
        self.applied(call.command, answer)
        for key in [key for key, calls in self._blocked.items() if calls]:
            self._serve(key)

    def _reply(self, call: Call, answer: Any, delay_s: float) -> None:
        handle = asyncio.Handle(settle, (call.answer, answer), call.process.loop)
        self.timeline.push(self.timeline.now + delay_s, call.process, handle)

    # --- blocking calls and messages ----------------------------------------------------------------------------------

    def _block(self, call: Call, fate: Fate) -> None:
        _, key, timeout_s = call.command
        call.lane.blocks = True
        self._blocked.setdefault(key, deque()).append(call)
        self._serve(key, lost=fate is Fate.LOST)

        def give_up() -> None:
            if call in self._blocked.get(key, ()):
                self._blocked[key].remove(call)
                self._reply(call, None, 0.0)
                self._go_on(call)

        self.timeline.after(timeout_s, give_up)

    def _serve(self, key: str, *, lost: bool = False) -> None:
        calls = self._blocked[key]
        while calls and self.server.get(key):
            call = calls.popleft()
            worker = self.server.apply(("LPOP", key))
            self.note(call.process.name, f"BLPOP {key.rpartition(':')[2]}", "LOST" if lost else _short(worker))
            self.applied(("LPOP", key), worker)
            self._reply(call, Away("connection reset") if lost else [key.encode(), worker], self.weather.delay_s())
            self._go_on(call)

    def _go_on(self, call: Call) -> None:
        """Let the calls arrive that were sent behind one that has blocked; of a closed connection they are dropped."""
        lane = call.lane
        lane.blocks = False
        behind, lane.behind = lane.behind, []
        for arrive in () if lane.closed or call.process.dying else behind:
            arrive()

    def _publish(self, text: str) -> None:
        for subscription in self._subscriptions:
            if not self.weather.loses_message():
                subscription.deliver(text, self.weather.delay_s())

    def subscribe(self, subscription: "Subscription") -> None:
        self._subscriptions.append(subscription)

    def unsubscribe(self, subscription: "Subscription") -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    # --- restarts -----------------------------------------------------------------------------------------------------

    def restart(self, down_s: float, state: State | None) -> None:
        """End all connections; the server is back after a while, perhaps with an older state."""
        undone = self.server.calls - state.calls if state else 0
        self.note("redis", "*** restart", f"with the last {undone} calls undone" if state else "nothing lost")
        self._boot += 1
        self.server.up = False
        for calls in self._blocked.values():
            for call in calls:
                self._reply(call, Away("connection reset"), 0.0)
        self._blocked.clear()
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            subscription.deliver(None, 0.0)
        self.server.restart(state)
        self.timeline.after(down_s, self._come_up)

    def stand_still(self, length_s: float) -> None:
        """Have the server do nothing for a while; what arrives meanwhile, it does afterwards."""
        self.note("redis", "*** stands still", f"{length_s:.1f} s")
        self._still_until = self.timeline.now + length_s

    def _come_up(self) -> None:
        self.server.up = True


class Client:
    """What `Connection` is given in place of redis-py's client: the calls of one process."""

    def __init__(self, network: Network, process: Process) -> None:
        self.network = network
        self.process = process
        self.lane = Lane()
        self.response_callbacks: dict[str, Any] = {}

    async def execute_command(self, *command: Any) -> Any:
        return await self.network.call(self, command)

    def pipeline(self, *, transaction: bool) -> "Pipeline":
        assert not transaction
        return Pipeline(self)

    def pubsub(self, *, ignore_subscribe_messages: bool) -> "Subscription":
        assert ignore_subscribe_messages
        return Subscription(self.network, self.process)

    async def aclose(self) -> None:
        """Nothing is held."""


class Pipeline:
    """Commands that are sent together; others come in between them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._calls: list[Coroutine[Any, Any, Any]] = []

    def execute_command(self, *command: Any) -> None:
        self._calls.append(self._client.execute_command(*command))

    async def execute(self, *, raise_on_error: bool) -> list[Any]:
        assert not raise_on_error
        answers = await asyncio.gather(*self._calls, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, Away):
                raise answer
        return answers


class Subscription:
    """A channel that is listened to; what comes while nobody does is lost."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process
        self._messages: asyncio.Queue[str | None] = asyncio.Queue()

    async def __aenter__(self) -> "Subscription":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._network.unsubscribe(self)

    async def subscribe(self, _channel: str) -> None:
        if not self._network.server.up or self._process.dying:
            raise Away("connection refused")
        self._network.subscribe(self)

    async def get_message(self, *, timeout: float) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(timeout):
                text = await self._messages.get()
        except TimeoutError:
            return None
        if text is None:
            raise Away("connection reset")
        return {"data": text.encode()}

    def deliver(self, text: str | None, delay_s: float) -> None:
        handle = asyncio.Handle(self._messages.put_nowait, (text,), self._process.loop)
        self._network.timeline.push(self._network.timeline.now + delay_s, self._process, handle)


class Wire(Connection):
    """The product's own connection, on a client of ours."""

    def __init__(self, client: Client, **options: Any) -> None:
        super().__init__(client, **options)  # type: ignore[arg-type] # as much of a client as it uses
        self._ours = client

    @asynccontextmanager
    async def own(self, block_s: float = BLOCK_S) -> AsyncIterator[Connection]:
        yield Wire(Client(self._ours.network, self._ours.process), budget_s=block_s + 1)


def _label(command: Sequence[Any], script: str) -> str:
    rest = command[5:] if script or command[0] in _SCRIPT else command[1:]
    return f"{script or command[0]} {' '.join(_short(part) for part in rest[:12])}"[:200]


def _short(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    text = "[" + " ".join(map(_short, value)) + "]" if isinstance(value, list) else str(value)
    return text if len(text) <= 120 else text[:117] + "…"
