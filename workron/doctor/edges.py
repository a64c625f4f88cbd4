"""Checks the edges of blocked jobs: each waits for an end that can still happen.

There is one repair for all faults. The job waits again for all its dependencies, and they go into `propagate` as if
they had ended now (`lua/lib/edges.lua`). The next reaper visits them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from workron.doctor.faults import Ask, Fault, shown, text_of
from workron.doctor.places import TERMINAL, Row, number_of, row_of
from workron.doctor.reading import Check
from workron.redis import formats
from workron.redis.formats import Hook
from workron.redis.keys import Keys

SLICE: Final = 50
"""Maximum of edges in one check, so that no step is long."""
_FIELDS: Final = ("status", "batch", "broken", "hooks", "depends_on", "final", "run_at", "children")
_PARENT: Final = ("status", "edge_cursor", "children")


def edges(keys: Keys, job: str, start: int, size: int = SLICE) -> Check:
    """Check `size` edges of a job, from the position `start` in its sorted dependencies."""
    answer, said, started, now = yield [
        ("HMGET", keys.job(job), *_FIELDS),
        ("HGETALL", keys.parents(job)),
        ("HGET", keys.array(job), "started"),
        ("TIME",),
    ]
    row, states = row_of((*_FIELDS, "now"), [*(answer or ()), now]), _pairs(said)
    if row.get("status") != "blocked" or "batch" in row or started:
        return []
    named = formats.split_edges(row.get("depends_on", ""))
    wanted = {one: when for one, when, matching in named if not matching}  # tasks that match wait for no edge
    every = sorted({*wanted, *states})
    some = every[start : start + size]
    answers = yield [
        command
        for one in some
        for command in (
            ("HMGET", keys.job(one), *_PARENT),
            ("EXISTS", keys.job(one)),
            ("IN", keys.children(one), formats.child(wanted.get(one), job)),
        )
    ]
    parents = {one: _Parent(*answers[3 * at : 3 * at + 3]) for at, one in enumerate(some)}
    waits = _Waits(keys, job, row, wanted, states, parents)
    wrong = [text for one in some for text in waits.wrong(one)] + ([*waits.wrong_in_all()] if start == 0 else [])
    mend = tuple(waits.again()) if wrong and len(some) == len(every) else ()  # faults of a slice are only reported
    return [Fault("wrong-edge", f"job {job}", shown(one), mend=() if at else mend) for at, one in enumerate(wrong)]


class _Parent:
    """A dependency: its row, whether its key exists, and whether its children include the job."""

    def __init__(self, answer: Any, exists: int, knows: bool) -> None:
        self.row, self.exists, self.knows = row_of(_PARENT, answer), exists, knows

    def state(self, when: str) -> str | None:
        """Return the correct value in the job's hash of parents: see `edge_state` in `lua/lib/edges.lua`."""
        if self.row["status"] not in TERMINAL:
            return when
        return None if when in {"finished", self.row["status"]} else f"!{when}"


@dataclass(frozen=True, slots=True)
class _Waits:
    """The dependencies of a job: as submitted (`wanted`), and in its hash of parents (`states`)."""

    keys: Keys
    job: str
    row: Row
    wanted: Mapping[str, str]
    states: Mapping[str, str]
    parents: Mapping[str, _Parent]

    def wrong(self, one: str) -> Iterator[str]:
        when, state, parent = self.wanted.get(one), self.states.get(one), self.parents[one]
        if when is None or state not in {None, when, f"!{when}"}:
            yield f"it waits for {one} to be {state}"
        elif "status" not in parent.row:
            if state and not parent.exists:  # else it is damaged, and may be mended
                yield f"{one} is gone"
        elif state and not (parent.knows and "children" in parent.row):
            yield f"{one} does not know of it"
        elif "edge_cursor" not in parent.row and parent.state(when) != state:
            yield f"{one} is {parent.row['status']}, and it {'waits' if state else 'does not wait'}"

    def wrong_in_all(self) -> Iterator[str]:
        broken = sum(state.startswith("!") for state in self.states.values())
        if number_of(self.row.get("broken", "0")) != broken:
            yield f"its count of broken dependencies is {self.row.get('broken', '0')}, not {broken}"
        elif broken:
            yield "it can never start"
        elif not self.states and "final" not in self.row:
            yield "it waits for nothing"

    def again(self) -> Iterator[Ask]:
        """Yield the repair: the job waits as when it was submitted. If a dependency was deleted, it can never start."""
        key, edges = self.keys.job(self.job), self.keys.parents(self.job)
        gone = [one for one in self.wanted if one in self.states and not self.parents[one].exists]
        there = [one for one in self.wanted if "status" in self.parents[one].row]
        there += [one for one in self.wanted if one in self.states and one not in gone and one not in there]  # damaged
        yield "DEL", edges
        yield "HDEL", key, "broken", "caused_by"
        yield from (("HSET", edges, one, self.wanted[one]) for one in there)
        if gone:
            yield from (("HSET", edges, one, f"!{self.wanted[one]}") for one in gone)
            error = f"skipped: it depends on {gone[0]}, whose key is gone"
            yield "HSET", key, "broken", len(gone), "caused_by", gone[0], "reason", "upstream", "error", error
            yield "HSET", key, "status", "skipped", "finished_at", self.row["now"]
            yield from self._visit([self.job] if "children" in self.row else [])
            return
        yield from (
            ("RPUSH", self.keys.children(one), formats.child(self.wanted[one], self.job))
            for one in there
            if not self.parents[one].knows
        )
        yield from self._visit(there)
        if not there and Hook.ARRAY in self.row.get("hooks", ""):
            yield "HSET", self.keys.array(self.job), "started", 1
            yield "ZADD", self.keys.arrays, 1, self.job
        elif not there and "final" not in self.row:
            yield "HSET", key, "status", "scheduled" if "run_at" in self.row else "pending"

    def _visit(self, jobs: Sequence[str]) -> Iterator[Ask]:
        for one in jobs:
            yield "HSET", self.keys.job(one), "children", 1, "edge_cursor", 0
            yield "RPUSH", self.keys.propagate, one


def _pairs(answer: Any) -> dict[str, str]:
    """Return a hash: scripts answer with a list, connections with a map."""
    if isinstance(answer, dict):
        answer = [word for pair in answer.items() for word in pair]
    words = [text_of(word) for word in answer or ()]
    return dict(zip(words[::2], words[1::2], strict=True))
