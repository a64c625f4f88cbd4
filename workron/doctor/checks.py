"""Checks of objects (jobs, queues …), members of indexes, and keys. The rules are in `workron/doctor/places.py`."""

import re
from collections.abc import Iterable
from typing import Final

from workron.doctor import places
from workron.doctor.faults import Ask, Fault, shown, text_of
from workron.doctor.places import KINDS, Place, Row, number_of
from workron.doctor.reading import Check, Steps
from workron.redis import formats
from workron.redis.keys import Keys

_NAMES: Final = {"schedules": "schedule", "schedules:due": "schedule", "batches": "batch", "actions:open": "action"}
"""Index → kind of its members; other indexes have jobs."""


class Checks:
    """Checks take keys without their prefix. The attributes collect what is checked later."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._last_fence = 0
        self.blocked: dict[str, int] = {}
        """Job with dependencies → their approximate number."""

    def thing(self, kind: str, name: str) -> Check:
        """Check that an object is in all its places."""
        read, places_of = KINDS[kind]
        row = yield from read(self._keys, name)
        return (yield from self.stands(f"{kind} {name}", places_of(self._keys, name, row)))

    def stands(self, about: str, wanted: Iterable[Place]) -> Check:
        wanted = [place for place in wanted if place.ok]
        answers = yield [place.read for place in wanted]
        return [
            Fault(place.code, shown(about), self._detail(about, place.read, found), mend=place.mend)
            for place, found in zip(wanted, answers, strict=True)
            if place.ok and not place.ok(found)
        ]

    def _detail(self, about: str, read: Ask, found: object) -> str:
        words = [str(word).removeprefix(self._keys.prefix) for word in read[1:] if str(word) not in about.split(" ")]
        said = text_of(found) if isinstance(found, bytes) else str(found)
        return shown(" ".join(words) + ("" if found in (None, 0) else f" is {said}"))

    def job(self, job: str) -> Check:
        """Check a job."""
        keys, about = self._keys, f"job {shown(job)}"
        row = yield from places.job_row(keys, job)
        if places.is_damaged(row):
            [exists] = yield [("EXISTS", keys.job(job))]
            said = {field: row.get(field) for field in ("status", "queue", "priority")}
            return [Fault("damaged", about, shown(str(said)), mend=(("SADD", keys.quarantine, job),))] if exists else []
        if "batch" in row and "state" not in row:
            return [Fault("lost", about, f"its submission, {row['batch']}")]
        if "batch" in row:
            return []
        found = yield from self.stands(about, [*places.job_places(keys, job, row), *self._fence(job, row)])
        if row["status"] == "blocked":
            many, named = yield [("HLEN", keys.parents(job)), ("HSTRLEN", keys.job(job), "depends_on")]
            if many or named:
                self.blocked[job] = max(many or 0, (named or 0) // 23 + 1)
            if "final" in row and "workflow" in row and "size" not in row:
                found.append(Fault("lost", about, f"its workflow, {row['workflow']}"))
        return list(found)

    def _fence(self, job: str, row: Row) -> Iterable[Place]:
        """Yield the rules for a job's fence: it is a number, and the last fence in `meta` is not lower.

        The repair of an invalid fence is 0: the worker loses the lease.
        """
        keys, text = self._keys, row.get("fence", "")
        fence = number_of(text) if text.isdecimal() else None
        if fence is None and ("fence" in row or row["status"] == "running"):
            mend = ("HSET", keys.job(job), "fence", 0), ("DEL", keys.heartbeat(job))
            yield Place(("HGET", keys.job(job), "fence"), lambda _: False, mend, "malformed")
        elif fence is not None and row["status"] == "running":
            self._last_fence = max(self._last_fence, fence)
            last = ("HSET", keys.meta, "fence", self._last_fence)
            yield Place(("HGET", keys.meta, "fence"), lambda found: (number_of(found) or 0) >= fence, (last,))

    def member(self, index: str, member: str) -> Check:
        """Check that a member of an index has its place there."""
        key, keys = self._keys.prefix + index, self._keys
        is_set = index == "quarantine" or index.endswith(":skip")
        again: list[Ask] = []
        if index == "queues":
            belongs = bool(places.QUEUE.fullmatch(member))
        elif parts := re.fullmatch(r"array:(\w+):(?:turns|skip)", index):
            [size] = yield [("HGET", keys.array(parts[1]), "size")]
            belongs = size is None or (member.isdecimal() and int(member) < (number_of(size) or 0))
            again = [("ZADD", keys.arrays, 1, parts[1])]
        elif index == "quarantine":
            row = yield from places.job_row(keys, member)
            belongs = "status" in row and places.is_damaged(row)
        else:
            parts = re.fullmatch(r"concurrency:(.*):(?:running|waiting:.+)", index, re.DOTALL)
            again = [places.refill(keys, parts[1])] if parts else []
            place = yield from self._has_place(key, member, *self._named(index, member))
            belongs = bool(place)
        [there] = yield [("SISMEMBER" if is_set else "ZSCORE", key, member)]
        if belongs or there is None or (is_set and not there):
            return []
        code = "quarantined" if index == "quarantine" else "surplus"
        mend = ("SREM" if is_set else "ZREM", key, member), *again
        return [Fault(code, shown(member), f"in {shown(index)}", mend=mend)]

    def _named(self, index: str, member: str) -> tuple[str, str]:
        kind, name = formats.read_timer(member) if index == "due" else ("", member)
        return "concurrency" if kind == "refill" else _NAMES.get(index, "job"), name

    def _has_place(self, key: str, member: str, kind: str, name: str) -> Steps:
        """Return whether an object has a place. A damaged job stays where it is."""
        read, places_of = KINDS[kind]
        row = yield from read(self._keys, name)
        if kind == "job" and row and places.is_damaged(row):
            return True
        return any(place.read[1:3] == (key, member) for place in places_of(self._keys, name, row))

    def unique(self, name: str) -> Check:
        """Check that the holder of a unique key still needs it."""
        key = self._keys.unique(name)
        value, exists = yield [("GETRANGE", key, 0, 999), ("EXISTS", key)]
        holder = text_of(value or b"")
        job, _ = formats.read_holder(holder)
        row = yield from places.job_row(self._keys, job)
        belongs = (
            row.get("state") == "aborted"
            or any(  # else it is being given up step by step
                place.read[1:3] == (key, holder) for place in places.job_places(self._keys, job, row)
            )
        )
        return (
            []
            if belongs or not exists
            else [Fault("surplus", f"unique {shown(name)}", shown(holder), mend=(("DEL", key),))]
        )

    def idempotency(self, name: str) -> Check:
        key = self._keys.idempotency(name)
        value, exists = yield [("GETRANGE", key, 0, 999), ("EXISTS", key)]
        if not exists or formats.read_entry(text_of(value or b"")):
            return []
        return [Fault("malformed", f"idempotency {shown(name)}", shown(value or b""), mend=(("DEL", key),))]

    def orphan(self, name: str) -> Check:
        """Check that the key's job exists and refers to the key, or that the key has a TTL."""
        key, parts = self._keys.prefix + name, name.split(":")
        ttl, exists, outputs = yield [
            ("PTTL", key),
            ("EXISTS", self._keys.job(parts[1])),
            ("HGET", self._keys.job(parts[1]), "outputs"),
        ]
        known = exists and (parts[2:3] != ["output"] or parts[3] in formats.read_outputs(text_of(outputs or b"")))
        return [Fault("surplus", name, "its job is gone", mend=(("UNLINK", key),))] if ttl == -1 and not known else []

    def lasting(self, name: str, ms: int) -> Check:
        """Check that a key has a TTL; the repair sets one of `ms`."""
        key = self._keys.prefix + name
        [ttl] = yield [("PTTL", key)]
        return [Fault("no-ttl", shown(name), "", mend=(("PEXPIRE", key, ms),))] if ttl == -1 else []

    def type(self, name: str, kind: str) -> Check:
        """Check the type of a key. The repair renames a key of a wrong type, and creates it again from the jobs."""
        key = self._keys.prefix + name
        [found] = yield [("TYPE", key)]
        if found in {kind.encode(), b"none"}:
            return []
        said = f"a {text_of(found)} in place of a {kind}"
        return [Fault("wrong-type", shown(name), said, mend=(("RENAME", key, self._keys.set_aside(name)),))]
