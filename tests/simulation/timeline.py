"""Virtual time: one timeline for all that happens, and an event loop for each process.

Nothing waits: the next entry is what happens next, whenever that is. A frozen process keeps its entries until it is
thawed, a dead one has none. What runs at a moment sees the clocks of its own process (`time.time` and its like).
"""

import asyncio
import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, Final
from unittest import mock

EPOCH_S: Final = 1_799_999_993.0
"""Seven seconds before a full minute."""
_CANCELS: Final = 50
_LAST_STEPS: Final = 10_000
"""So often the tasks of a dying process are told to end, and so many callbacks they may run each time."""


class Host:
    """Something with a wall clock that can be set; `skew_s` is how far it is off."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.skew_s = 0.0


class Timeline:
    """All that is to happen, in its order."""

    def __init__(self) -> None:
        self.now = 0.0
        self.running = Host("nobody")
        """Whose clock is read now."""
        self.broken: list[str] = []
        """Errors that no process should have."""
        self._entries: list[tuple[float, int, Process | None, asyncio.Handle | Callable[[], None]]] = []
        self._numbers = itertools.count()

    def push(self, when: float, process: "Process | None", what: "asyncio.Handle | Callable[[], None]") -> None:
        heapq.heappush(self._entries, (max(when, self.now), next(self._numbers), process, what))

    def after(self, delay_s: float, do: Callable[[], None]) -> None:
        """Have the world do something, whoever is frozen or dead."""
        self.push(self.now + delay_s, None, do)

    def run_until(self, end: float) -> None:
        entries = self._entries
        while entries and entries[0][0] <= end:
            self.now, _, process, what = heapq.heappop(entries)
            if process is not None and isinstance(what, asyncio.Handle):
                process.step(what)
            elif callable(what):
                what()
        self.now = end

    @contextmanager
    def as_host(self, host: Host) -> Iterator[None]:
        before, self.running = self.running, host
        try:
            yield
        finally:
            self.running = before

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Have `time` tell the virtual time."""

        def wall_s() -> float:
            return EPOCH_S + self.now + self.running.skew_s

        def wall_ns() -> int:
            return int(wall_s() * 1e9)

        def steady_s(_clock: int = 0) -> float:
            return 1000 + self.now

        with (
            mock.patch.object(time, "time", wall_s),
            mock.patch.object(time, "time_ns", wall_ns),
            mock.patch.object(time, "monotonic", steady_s),
            mock.patch.object(time, "clock_gettime", steady_s),
        ):
            yield


class Process(Host):
    """One process: it runs `main`, and whatever that starts, until it ends, is killed, or breaks."""

    def __init__(self, timeline: Timeline, name: str) -> None:
        super().__init__(name)
        self.timeline = timeline
        self.loop = ProcessLoop(self)  # type: ignore[abstract] # what Workron uses of a loop is there
        self.alive = True
        self.frozen = False
        self.again: Callable[[], None] = lambda: None
        """Starts another one in its place."""
        self.ended: Callable[[], None] = lambda: None
        """Called when `main` has returned."""
        self.at_death: list[Callable[[], None]] = []
        """Called when it is killed: others notice."""
        self._held: list[asyncio.Handle] = []
        self._last: deque[asyncio.Handle] | None = None
        """While it dies: what is to run yet."""
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self, main: Coroutine[Any, Any, Any]) -> None:
        self.loop.create_task(main).add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.broke(error)
        elif self._last is None:
            self.ended()

    def broke(self, error: BaseException) -> None:
        self.timeline.broken.append(f"{self.name} broke: {type(error).__name__}: {error}")

    def push(self, when: float, handle: asyncio.Handle) -> None:
        if self._last is None:
            self.timeline.push(when, self, handle)
        elif when <= self.timeline.now:
            self._last.append(handle)

    def step(self, handle: asyncio.Handle) -> None:
        if not self.alive or handle.cancelled():
            return
        if self.frozen:
            self._held.append(handle)
            return
        asyncio._set_running_loop(self.loop)
        self.timeline.running = self
        handle._run()
        asyncio._set_running_loop(None)

    def keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks = [other for other in self._tasks if not other.done()] if len(self._tasks) > 50 else self._tasks
        self._tasks.append(task)

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False
        held, self._held = self._held, []
        for handle in held:
            self.push(self.timeline.now, handle)

    def kill(self) -> None:
        """End it at once: nothing that it still does reaches anybody."""
        if not self.alive:
            return
        self.frozen, self._held = False, []
        self._last = deque()
        for _ in range(_CANCELS):  # what is cleaned up may wait again
            left = [task for task in self._tasks if not task.done()]
            for task in left:
                task.cancel()
            for _ in range(_LAST_STEPS):
                if not self._last:
                    break
                self.step(self._last.popleft())
            if not left:
                break
        self.alive = False
        for notice in self.at_death:
            notice()

    @property
    def dying(self) -> bool:
        return self._last is not None


class ProcessLoop(asyncio.AbstractEventLoop):
    """As much of an event loop as Workron uses, on the timeline."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def time(self) -> float:
        return self._process.timeline.now

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        handle = asyncio.Handle(callback, args, self, context)
        self._process.push(self.time(), handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:  # type: ignore[override]
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._process.push(when, handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name or "task", context=context)
        self._process.keep(task)
        return task

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """What would go to a thread is done at once."""
        answer = self.create_future()
        try:
            answer.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - raised again by who waits
            answer.set_exception(error)
        return answer

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._process.alive and not self._process.dying and "exception" in context:
            self._process.broke(context["exception"])

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return not self._process.alive

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing to do: a cancelled entry is passed over when its time comes."""
