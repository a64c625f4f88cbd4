"""`python -m bench.profile`: where the time of a no-op job goes, in submitting client, worker and server.

Each phase runs twice in this process: once plainly, for the shares of processor time (user and kernel, ours and the
server's), once under cProfile, for the functions. cProfile slows calls down, so its shares are hints, not times.
"""

import argparse
import asyncio
import cProfile
import pstats
import resource
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from bench.idle import Bench
from bench.quiet import quiet
from bench.server import Server
from bench.settings import settings_for
from workron.store import Store

JOBS: Final = 20_000
_TOP: Final = 25
_LAYERS: Final = (
    ("logging", "/workron/runtime/log"),
    ("logging", "/workron/runtime/log"),
    ("our Lua callers and store", "/workron/"),
    ("our worker", "/workers/"),
    ("the bench", "/bench/"),
    ("redis-py", "/redis/"),
    ("asyncio", "/asyncio/"),
)


@dataclass(frozen=True, slots=True)
class Spent:
    """Processor time of a phase, in µs per job."""

    wall: float
    user: float
    kernel: float
    server: float
    server_calls: dict[str, tuple[float, float]]
    """Calls per job and µs per job, by command; a script's commands count in the script, too."""


Phase = Callable[[], Awaitable[None]]


async def spend(server: Server, jobs: int, phase: Phase) -> Spent:
    server.client.config_resetstat()
    server_before, before, started = server.usage(), resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    await phase()
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = server.usage().since(server_before).cpu_s
    each = 1e6 / jobs
    rows: Any = server.client.info("commandstats")
    calls = {name.removeprefix("cmdstat_"): (row["calls"] / jobs, row["usec"] / jobs) for name, row in rows.items()}
    return Spent(
        wall * each,
        (after.ru_utime - before.ru_utime) * each,
        (after.ru_stime - before.ru_stime) * each,
        cpu_s * each,
        calls,
    )


async def run(server: Server, jobs: int, watch: cProfile.Profile | None, slots: int = 0) -> dict[str, Spent]:
    """Submit and drain; with `watch`, under cProfile; with `slots`, running commands."""
    server.clear()
    settings = settings_for(server.url, slots or 200)
    async with Store.connect(settings) as store:
        bench = Bench(store)
        await bench.submit(20)  # connections and scripts
        server.clear()

        async def submit() -> None:
            await bench.submit(jobs)

        async def drain() -> None:
            async with bench.working(settings, commands=slots > 0):
                await (bench.until_done(jobs) if slots else bench.wait(jobs))

        spent = {}
        if watch is not None:
            watch.enable()
        for name, phase in (("submit in bulk", submit), ("drain", drain)):
            spent[name] = await spend(server, jobs, phase)
        if watch is not None:
            watch.disable()
    return spent


def layer_of(file: str) -> str:
    """Return which layer a file of the profile belongs to."""
    if file == "~":
        return "built-in functions"
    return next((name for name, part in _LAYERS if part in file), "the rest of the standard library and others")


def show_spent(spent: dict[str, Spent]) -> None:
    for name, one in spent.items():
        print(f"\n{name}, µs per job: wall {one.wall:.1f}")
        rest = one.user + one.kernel
        print(f"  this process {rest:.1f}  (user {one.user:.1f}, kernel {one.kernel:.1f})   server {one.server:.1f}")
        top = sorted(one.server_calls.items(), key=lambda item: -item[1][1])[:12]
        for command, (calls, usec) in top:
            print(f"    {command:22} {calls:8.3f} calls {usec:8.2f} µs")


def show_profile(watch: cProfile.Profile, jobs: int) -> None:
    rows: Any = pstats.Stats(watch).stats  # type: ignore[attr-defined]
    layers: Counter[str] = Counter()
    for (file, _, _), (_, _, own, _, _) in rows.items():
        layers[layer_of(file)] += own
    total = sum(layers.values())
    print("\nown time by layer, under cProfile")
    for layer, own in layers.most_common():
        print(f"  {layer:45} {own / total:6.1%}")
    print(f"\n{'µs/job':>8} {'calls/job':>10}  function (own time)")
    for (file, line, function), (_, calls, own, _, _) in sorted(rows.items(), key=lambda item: -item[1][2])[:_TOP]:
        place = function if file == "~" else f"{'/'.join(file.split('/')[-2:])}:{line} {function}"
        print(f"{own / jobs * 1e6:8.2f} {calls / jobs:10.2f}  {place}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--commands", type=int, default=0, metavar="SLOTS", help="run `true` in so many slots")
    parser.add_argument("--server", choices=("redis", "valkey"), default="redis")
    options = parser.parse_args()
    quiet()
    with Server(options.server) as server:
        show_spent(asyncio.run(run(server, options.jobs, None, options.commands)))
        watch = cProfile.Profile()
        asyncio.run(run(server, options.jobs, watch, options.commands))
        show_profile(watch, options.jobs)


if __name__ == "__main__":
    main()
