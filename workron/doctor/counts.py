"""Compares the counts of queues, workflows, arrays and concurrency keys with the number of their jobs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from workron.amounts import counted
from workron.doctor.arrays import Stock
from workron.doctor.faults import Ask, Fault, shown, text_of
from workron.doctor.places import INDEXED, LIVE, STATUSES, TERMINAL, Row, number_of, refill, row_of
from workron.doctor.reading import Reader
from workron.doctor.tally import Tally
from workron.models import Stopped
from workron.redis.keys import Keys
from workron.times import redis_ms

_MANY: Final = 200
"""Maximum of concurrency keys of a queue that are read at one moment."""
_MOST_QUEUES: Final = 1000
_WORKFLOW: Final = ("size", "final", "stop_at", "stopped", "stopped_by", *STATUSES)


class Counts:
    """Compares counts with a tally. During a rebuild, it also compares counts of ended jobs."""

    def __init__(self, keys: Keys, tally: Tally, reader: Reader) -> None:
        self._keys = keys
        self._tally = tally
        self._reader = reader
        self._locked = reader.lock is not None
        self._reserved: Counter[str] = Counter()
        """Queue → tasks of arrays that are not created yet; complete when all arrays were checked."""
        self._arrays = 0

    async def queue(self, name: str) -> list[Fault]:
        keys, fields, about = self._keys, (*STATUSES, "reserved", "held"), f"queue:{name}"
        asked: Ask = ("ZRANGE", keys.concurrency_keys(name), 0, -1 if self._locked else _MANY)
        [lines] = await self._reader.read([asked])
        answers = await self._moment([
            ("HMGET", keys.queue(name), *fields),
            ("EXISTS", keys.batches),
            *(("ZCARD", keys.index(name, status)) for status in INDEXED),
            asked,
            *(("ZCOUNT", keys.in_line(text_of(line), name), "(0", "+inf") for line in lines or ()),
        ])  # fmt: skip
        said, batches, *cards = answers[: 2 + len(INDEXED)]
        again, *held = answers[2 + len(INDEXED) :]
        right = {status: self._tally.counted[about, status] for status in LIVE}
        right |= {status: card or 0 for status, card in zip(INDEXED, cards, strict=True) if status in TERMINAL}
        if again == lines and (self._locked or len(lines or ()) <= _MANY):
            right["held"] = sum(one or 0 for one in held)
        if not batches and (self._locked or not self._arrays):
            right["reserved"] = self._reserved[name]
        return list(_differences(about, keys.queue(name), row_of(fields, said), right))

    async def concurrency(self, name: str) -> list[Fault]:
        key, about = self._keys.concurrency(name), f"concurrency:{name}"
        [jobs] = await self._moment([("HGET", key, "jobs")])
        right = {"jobs": self._tally.counted[about, "jobs"]}
        return list(_differences(about, key, row_of(["jobs"], [jobs]), right, refill(self._keys, name)))

    async def workflow(self, workflow: str) -> list[Fault]:
        """Check the counts of a workflow, which include deleted jobs, and its final job.

        The repair counts the jobs that exist; all others count as cancelled.
        """
        keys, key, about = self._keys, self._keys.workflow(workflow), f"workflow:{workflow}"
        texts, listed, batches = await self._moment(
            [("HMGET", key, *_WORKFLOW), ("LLEN", keys.workflow_jobs(workflow)), ("EXISTS", keys.batches)]
        )
        said = row_of(_WORKFLOW, texts)
        if not said or ("size" not in said and not listed):
            return []
        live = {status: self._tally.counted[about, status] for status in LIVE}
        ended = {status: number_of(said.get(status, "0")) for status in TERMINAL}
        found = list(_differences(about, key, said, live))
        total = sum(live.values()) + sum(number or 0 for number in ended.values())
        size = listed if listed == total and not batches else number_of(said.get("size")) or 0
        wrong = [f"{status} is {said[status]}" for status, number in ended.items() if number is None]
        wrong += [f"size is {said.get('size')}, not {size}"] if str(size) != said.get("size") else []
        if total > size or (total < size and not batches):
            wrong.append(f"its counts add up to {counted(total, 'job')}, not {size}")
        if wrong:
            right = live | {status: self._tally.ended[about, status] for status in TERMINAL}
            there = sum(right.values())
            gone = 0 if batches else max(0, (size or listed) - there)
            right |= {"cancelled": right["cancelled"] + gone, "size": max(size, there + gone)}
            mend = (*(("HSET", key, field, number) for field, number in right.items()), ("HINCRBY", key, "swept", gone))
            found.append(Fault("miscounted", about, shown(", ".join(wrong)), mend=mend))
        if "stop_at" in said and not _is_stop(said):
            stop = ("HSET", key, "stopped", "cancelled", "stop_at", 0), ("RPUSH", keys.propagate, about)
            found.append(Fault("malformed", about, f"its stop is at {said['stop_at']}", mend=stop))
        return found or await self._final(about, said, size - sum(number or 0 for number in ended.values()))

    async def _final(self, about: str, said: Row, others: int) -> list[Fault]:
        """Report a final job that waits although all others have ended."""
        key = self._keys.job(said.get("final", ""))
        [answer, waits, now] = await self._moment(
            [("HMGET", key, "status", "batch", "run_at"), ("EXISTS", f"{key}:parents"), ("TIME",)]
        )
        row = row_of(("status", "batch", "run_at"), answer)
        if row.get("status") != "blocked" or "batch" in row or waits or others > 1:
            return []
        later = (number_of(row.get("run_at")) or 0) > redis_ms(now)
        mend = ("HSET", key, "status", "scheduled" if later else "pending")
        return [Fault("stuck", about, "its final job waits for nothing", mend=(mend,))]

    async def array(self, array: str) -> list[Fault]:
        """Check an array. The repair writes all its fields; it never creates a deleted task again."""
        about = f"array:{array}"
        stock = Stock(self._keys, array, await self._moment(Stock.commands(self._keys, array)))
        if not stock.known:
            return []
        tasks = {state: self._tally.counted[about, state] for state in LIVE}
        if self._locked:
            tasks |= {state: self._tally.ended[about, state] for state in TERMINAL}
        found = await stock.faults(tasks, self._reader) or await stock.stuck(self._moment)
        self._arrays += stock.head["status"] not in TERMINAL
        if "dropped" not in stock.said:
            self._reserved[stock.head.get("queue", "default")] += stock.to_make
        return found

    async def totals(self) -> list[Fault]:
        """Compare the number of waiting jobs in all queues together, if there is no other fault."""
        keys = self._keys
        [queues] = await self._reader.read([("ZRANGE", keys.queues, 0, -1 if self._locked else _MOST_QUEUES)])
        if len(queues or ()) > _MOST_QUEUES and not self._locked:
            return []
        fields = ("pending", "scheduled", "blocked", "reserved")
        said, batches, *counts = await self._moment([
            ("HGET", keys.meta, "waiting"),
            ("EXISTS", keys.batches),
            *(("HMGET", keys.queue(text_of(queue)), *fields) for queue in queues or ()),
        ])  # fmt: skip
        if batches:
            return []  # what is staged may be in queues that are not listed yet
        waiting = sum(number_of(one) or 0 for row in counts for one in row or () if one is not None)
        return list(_differences("meta", keys.meta, row_of(["waiting"], [said]), {"waiting": waiting}))

    async def _moment(self, commands: Sequence[Ask]) -> list[Any]:
        """Run commands at the moment of the tally; during a rebuild, at any moment."""
        return await (self._reader.read(commands) if self._locked else self._tally.at_once(commands))


def _is_stop(said: Row) -> bool:
    stopped = said.get("stopped")
    whole = stopped == Stopped.CANCELLED or (stopped == Stopped.FAILED and "stopped_by" in said)
    return whole and number_of(said["stop_at"]) is not None


def _differences(about: str, key: str, said: Row, right: Mapping[str, int], *also: Ask) -> Iterator[Fault]:
    for field, number in right.items():
        found = number_of(said.get(field, "0"))
        if found != number:
            detail = f"{field} is {said.get(field, '0')}, not {number}"
            code = "malformed" if found is None else "miscounted"
            yield Fault(code, shown(about), shown(detail), mend=(("HSET", key, field, number), *also))
