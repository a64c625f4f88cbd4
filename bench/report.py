"""`RESULTS.md`: what was measured, on what, with which settings, and how the targets stand."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.peers import OURS, PEERS
from bench.picture import bars
from bench.results import Results, number
from bench.targets import targets

SYSTEMS = (OURS, *PEERS)
_MAIN = (
    ("drain", "drain, jobs/s"),
    ("bulk enqueue", "bulk enqueue, jobs/s"),
    ("enqueue one by one", "one by one, jobs/s"),
    ("latency p50", "idle p50, ms"),
    ("latency p99", "idle p99, ms"),
    ("memory", "bytes per waiting job"),
)
_COSTS = (
    ("server cpu submit", "CPU submit, µs"),
    ("server cpu drain", "CPU drain, µs"),
    ("commands submit", "commands submit"),
    ("commands drain", "commands drain"),
    ("round trips submit", "round trips submit"),
    ("round trips drain", "round trips drain"),
)
_ONE_BY_ONE = frozenset(measure for measure, _ in (*_MAIN, *_COSTS)) | {"server cpu", "round trips", "round trips idle"}


def write(results: Results, folder: Path) -> None:
    """Write RESULTS.md and drain.svg."""
    drains = [(name, figure.median) for name, figure in results.systems("drain")]
    if drains:
        (folder / "drain.svg").write_text(bars("No-op jobs per second, one worker process", drains, OURS.name))
    (folder / "RESULTS.md").write_text("\n".join(_lines(results)) + "\n")


def _lines(results: Results) -> Iterable[str]:
    yield "# Benchmark"
    yield ""
    yield "Made by `uv run python -m bench`; all figures of one run, on one server, systems in turn, round by round."
    yield "Figures are medians, with the smallest and the largest below. Only ratios within a run mean something:"
    yield "the machine is small and noisy."
    yield ""
    yield from _table(("", ""), results.machine.items())
    yield "## Targets"
    yield ""
    yield from _table(("what", "target", "reached", "spread", "met"), [target.row for target in targets(results)])
    yield "## Compared with other queues"
    yield ""
    if "drain" in results.values:
        yield "![drain](drain.svg)"
        yield ""
    yield "No-op jobs; each writes one byte to a pipe, where they are counted. Drain: one worker process, all jobs"
    yield "enqueued before. Idle: from the submitting call to the first line of the job, nothing else to do."
    yield "Memory: growth of the server's `used_memory`, without buffers, by the bulk enqueue."
    yield ""
    yield from _by_system(results, _MAIN)
    yield "### What a job costs the server"
    yield ""
    yield "CPU: user and system time of the server process. Commands: `total_commands_processed`, also those that"
    yield "scripts call. Round trips: reads of the server from its clients, a pipeline is one."
    yield ""
    yield from _by_system(results, _COSTS)
    yield "### Settings"
    yield ""
    packages = {system.name: ", ".join(system.packages) or "this repository" for system in SYSTEMS}
    used = [(system.name, packages[system.name], system.settings) for system in SYSTEMS]
    yield from _table(("system", "packages", "settings"), used)
    yield "## Everything else"
    yield ""
    for measure in results.values:
        if measure not in _ONE_BY_ONE:
            rows = [(name, number(f.median), f.spread, str(len(f.values))) for name, f in results.systems(measure)]
            yield from _table((measure, "median", "spread", "values"), rows)
    yield from _left_out(results)


def _left_out(results: Results) -> Iterable[str]:
    if results.missing:
        yield "## Not measured"
        yield ""
        yield from _table(("what", "why"), results.missing.items())
    if results.notes:
        yield "## Notes"
        yield ""
        yield from (f"- {note}" for note in results.notes)


def _by_system(results: Results, columns: Sequence[tuple[str, str]]) -> Iterable[str]:
    rows = []
    for system in SYSTEMS:
        cells = [_cell(results, measure, system.name) for measure, _ in columns]
        if any(cell != "–" for cell in cells):
            rows.append((system.name, *cells))
    over_http = [_cell(results, measure, "workron over HTTP") for measure, _ in columns]
    if any(cell != "–" for cell in over_http):
        rows.append(("workron over HTTP", *over_http))
    yield from _table(("system", *(title for _, title in columns)), rows)


def _cell(results: Results, measure: str, system: str) -> str:
    figure = results.get(measure, system)
    if figure is None:
        return "–"
    return number(figure.median) if len(figure.values) == 1 else f"{number(figure.median)}<br>{figure.spread}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + " --- |" * len(head)
    yield from ("| " + " | ".join(row) + " |" for row in rows)
    yield ""
