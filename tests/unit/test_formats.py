"""Formats that Python and Lua share: what one writes, the other reads."""

import re
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as some
from lupa.lua51 import LuaRuntime  # type: ignore[import-untyped] # it has no stubs

from tests.lua_source import LUA
from workron import ids
from workron.models import Dependency, OnConflict, Unique, Until, When
from workron.models.retry import RetryPolicy
from workron.redis import formats
from workron.redis.formats import Heartbeat, Hook, RunLine

RUNTIME: Final = LuaRuntime(unpack_returned_tuples=True)
FORMATS: Final = RUNTIME.execute((LUA / "lib" / "formats.lua").read_text() + "\nreturn FORMATS")
NUMBERS: Final = some.integers(min_value=0, max_value=2**53)
IDS: Final = NUMBERS.map(lambda number: ids.encode(number))
NAMES: Final = some.text("abcXYZ019_.-:@", min_size=1, max_size=40)
"""Of queues, workers and keys without spaces."""
KEYS: Final = some.text("abcXYZ019 _.-:@", min_size=1, max_size=40)
"""Of limits on concurrency."""
TEXTS: Final = some.text(some.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=40)
CODES: Final = some.lists(some.integers(0, 255) | some.just("64-78"), max_size=3).map(tuple)
POLICIES: Final = some.builds(
    RetryPolicy,
    some.none() | some.integers(0, 10**9),
    some.none() | some.floats(1, 100),
    some.none() | some.integers(0, 10**9),
    some.none() | some.floats(0, 1),
)


def read(name: str, *said: Any) -> Any:
    """Return what the function of Lua returns; a tuple, if that is more than one value."""
    return getattr(FORMATS, name)(*said)


def test_both_know_the_same_hooks_and_none_is_a_part_of_another_one() -> None:
    """They were letters, and hooks ran in the order in which the letters had been appended."""
    text = (LUA / "lib" / "core.lua").read_text()
    [order] = re.findall(r"^local ORDER = \{ (.*) \}$", text, re.MULTILINE)
    assert sorted(word.strip("' ") for word in order.split(",")) == sorted(Hook)
    assert [(one, other) for one in Hook for other in Hook if one is not other and one in other] == []


@given(some.builds(Heartbeat, NAMES, NUMBERS, NUMBERS, NUMBERS))
def test_heartbeat(beat: Heartbeat) -> None:
    words = tuple(map(str, beat))
    text = read("heartbeat", *words)
    assert read("read_heartbeat", text) == words
    assert formats.read_heartbeat(text.encode()) == beat


@given(some.builds(Unique, TEXTS.filter(bool), some.sampled_from(Until), some.sampled_from(OnConflict), NUMBERS))
def test_unique(unique: Unique) -> None:
    text = formats.unique(unique)
    assert read("read_unique", text) == (unique.until, unique.on_conflict, str(unique.ttl_ms), unique.key)
    assert formats.read_unique(text) == unique


@given(IDS, NUMBERS)
def test_holder(job_id: str, run: int) -> None:
    text = formats.holder(job_id, run)
    assert read("holder", job_id, str(run)) == text
    assert read("read_holder", text) == formats.read_holder(text) == (job_id, str(run))


@given(some.none() | POLICIES, CODES, CODES)
def test_retry(policy: RetryPolicy | None, only: tuple[int | str, ...], never: tuple[int | str, ...]) -> None:
    text = formats.retry(policy, only, never)
    *numbers, again, not_again = read("read_retry", text)
    policy = policy or RetryPolicy()
    said = (policy.delay_ms, policy.factor, policy.max_delay_ms, policy.jitter)
    assert numbers == ["-" if number is None else f"{number:.12g}" for number in said]
    assert (again, not_again) == (",".join(map(str, only)), ",".join(map(str, never)))
    assert formats.retry(*formats.read_retry(text)) == text
    assert formats.read_retry(text)[1:] == (only, never)


@given(some.lists(some.builds(Dependency, IDS, some.sampled_from(When), some.booleans()), max_size=5))
def test_edges(edges: list[Dependency]) -> None:
    text, found, at = formats.edges(edges), [], 1
    while (edge := read("next_edge", text, at))[0]:
        found.append(edge[:2])
        at = edge[2]
    assert found == [(edge.job, edge.matching) for edge in edges]
    assert formats.read_edges(text) == edges
    assert formats.read_parents(text) == [edge.job for edge in edges]
    if edges:
        assert formats.first_edges(text.encode(), 2) == (formats.edges(edges[:2]).encode(), len(edges))


@given(some.tuples(some.sampled_from(["deadline", "expires"]), IDS) | some.tuples(some.just("refill"), KEYS))
def test_timer(timer: tuple[str, str]) -> None:
    kind, name = timer
    assert read("timer", kind, name) == formats.timer(kind, name)
    assert (
        read("read_timer", formats.timer(kind, name)) == formats.read_timer(formats.timer(kind, name)) == (kind, name)
    )


@given(IDS)
def test_the_due_time_of_a_scheduled_job_is_no_timer(job_id: str) -> None:
    assert (read("read_timer", job_id), formats.read_timer(job_id)) == (None, ("", job_id))


@given(some.sampled_from(When), IDS)
def test_child(when: When, job_id: str) -> None:
    assert read("child", when, job_id) == formats.child(when, job_id)
    assert read("read_child", formats.child(when, job_id)) == (when, job_id)


@given(some.lists(some.tuples(IDS, NUMBERS | some.sampled_from(["safe", "always"])), max_size=5))
def test_attempts(pairs: list[tuple[str, int | str]]) -> None:
    found = RUNTIME.eval(
        "function(each) local all = {} for id, fence in each do all[#all + 1] = id .. fence end return all end"
    )
    assert [*found(read("read_attempts", formats.attempts(pairs))).values()] == [
        f"{one}{fence}" for one, fence in pairs
    ]
    assert read(
        "attempts", RUNTIME.table(*(RUNTIME.table(*map(str, pair), "more") for pair in pairs))
    ) == formats.attempts(pairs)


@given(some.dictionaries(NUMBERS.map(str), NUMBERS, max_size=3))
def test_outputs(outputs: dict[str, int]) -> None:
    attempts = RUNTIME.table(*(RUNTIME.table(fence=fence, total=str(total)) for fence, total in outputs.items()))
    text = read("outputs", attempts)
    assert formats.read_outputs(text) == outputs
    assert [(one.fence, one.total) for one in read("read_outputs", text).values()] == [
        (fence, str(total)) for fence, total in outputs.items()
    ]


@given(NAMES, IDS, NUMBERS, some.none() | IDS)
def test_entry(fingerprint: str, first: str, size: int, workflow: str | None) -> None:
    text = read("entry", fingerprint, first, str(size), workflow or "")
    assert formats.read_entry(text) == (fingerprint, first, size, workflow)
    assert read("read_entry", text) == (fingerprint, first, str(size), workflow or "")


@given(NAMES, some.sampled_from(["next", "queued", "run"]), NUMBERS, some.none() | NUMBERS, some.none() | IDS)
def test_occurrence(version: str, kind: str, at_ms: int, following_ms: int | None, key: str | None) -> None:
    following = "-" if following_ms is None else str(following_ms)
    found = read("read_occurrence", formats.occurrence(version, kind, at_ms, following_ms, key))
    assert found == (version, kind, str(at_ms), following, key or "-")


@given(
    some.builds(
        RunLine,
        NUMBERS,
        some.sampled_from(["fired", "skipped"]),
        NUMBERS,
        NUMBERS,
        some.none() | IDS,
        some.none() | IDS,
        some.none() | TEXTS.filter(bool),
    )
)
def test_run(run: RunLine) -> None:
    words = (*map(str, run[:4]), run.job or "-", run.workflow or "-", run.error or "")
    text = read("run", *words)
    assert formats.read_run(text) == run
    assert read("read_run", text) == words


@given(some.dictionaries(NAMES, NUMBERS, max_size=5))
def test_rooms(needs: dict[str, int]) -> None:
    text = formats.rooms(needs)
    assert [(room.queue, int(room.number)) for room in read("read_rooms", text).values()] == [*needs.items()]
    assert text == " ".join(read("room", queue, str(number)) for queue, number in needs.items())


@given(NAMES, NUMBERS)
def test_room_that_is_given_back(queue: str, number: int) -> None:
    assert [
        (room.queue, int(room.number)) for room in read("read_rooms", read("room", queue, str(-number))).values()
    ] == [(queue, -number)]


@given(
    some.lists(
        some.tuples(
            some.lists(IDS, min_size=1, max_size=4),
            some.sampled_from(["", "pending", "blocked"]),
            some.sampled_from("123456789"),
            some.text("abcXYZ019_.-", min_size=1, max_size=20),
        ),
        max_size=4,
    )
)
def test_alike(runs: list[tuple[list[str], str, str, str]]) -> None:
    text = "\n".join(read("alike", RUNTIME.table(*job_ids), *about) for job_ids, *about in runs)
    found = read("read_alike", text).values()
    assert [([*one.ids.values()], one.status, one.priority, one.queue) for one in found] == runs


@given(NAMES, IDS, NUMBERS)
def test_stop(worker: str, job_id: str, fence: int) -> None:
    assert [*formats.read_stop(read("stop", worker, job_id, str(fence)))] == [(worker, job_id, fence)]
    assert [*formats.read_stop(worker)] == [(worker, "", 0)]


def test_what_is_missing_or_damaged_is_read_as_nothing() -> None:
    for name in ("heartbeat", "unique", "holder", "retry", "occurrence", "run"):
        for text in (None, False, "", "what?", "w1 1 2 3x"):
            found = read(f"read_{name}", text)
            assert (found[0] if isinstance(found, tuple) else found) is None
    assert read("read_entry", "what?")[0] is None
    assert [*read("read_outputs", None).values()] == [*read("read_rooms", None).values()] == []
    assert formats.read_heartbeat(b"what?") is formats.read_heartbeat(None) is formats.read_entry("what?") is None
