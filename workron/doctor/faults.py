"""What can be wrong in Redis: each fault with what it means, what can have caused it, and how it is put right."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Mend(StrEnum):
    """Whether `workron doctor --repair` puts a fault right."""

    SAFE = "safe"
    BY_HAND = "by hand"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault."""

    what: str
    cause: str
    repair: str
    mend: Mend = Mend.SAFE


_EDITED: Final = "a key was deleted or edited by hand or by another program, or Redis lost writes"
_UNTOLD: Final = "a step of the walk over dependents was lost: Redis lost writes, or an entry was deleted"
_BROKEN_MIDWAY: Final = "a script broke midway on a damaged key, or the key was edited"

KINDS: Final = {
    "damaged": Kind(
        "a job is in no state, or no place, that there is",
        "another program wrote to it",
        "nobody can know what it was: it is passed over and kept in `quarantine`; delete the key, submit it anew",
        Mend.BY_HAND,
    ),
    "not-listed": Kind("it is missing from an index", _EDITED, "it is put into the index"),
    "not-in-list": Kind(
        "a pending job is in no list: nobody would ever claim it", _EDITED, "it is put at the end of its list"
    ),
    "not-in-line": Kind(
        "a pending job is missing from the line of its concurrency key", _EDITED, "it is put at the end of the line"
    ),
    "no-lease": Kind(
        "a running job has no lease: nobody would ever take it back",
        _EDITED,
        "it gets one that is over; the reaper sees whether its worker is alive",
    ),
    "no-slot": Kind("a running job has no slot of its concurrency key", _EDITED, "it gets the slot"),
    "not-due": Kind(
        "a job, timer or schedule is not looked at when its time comes", _EDITED, "it is noted among what is due"
    ),
    "stuck-walk": Kind(
        "dependents are to be told, or a stop is to go on, and nobody would do it", _UNTOLD, "it is gone on with"
    ),
    "stale-edge": Kind(
        "a job waits for another that has ended: it was not told", _UNTOLD, "the other one's dependents are told again"
    ),
    "unknown-child": Kind(
        "a job waits for another that does not know of it", _EDITED, "it is noted with the other one, and told"
    ),
    "edge-gone": Kind("a job does not wait for another on which it depends", _EDITED, "it waits for it"),
    "parent-gone": Kind("a job waits for one that is gone", _EDITED, "it is skipped, for it could never start"),
    "miscounted-edges": Kind("the number of its broken edges is wrong", _BROKEN_MIDWAY, "they are counted anew"),
    "unsettled": Kind(
        "a job waits, although nothing keeps it from starting, or from being skipped",
        _BROKEN_MIDWAY,
        "it waits for what it depends on, or is started, or skipped",
    ),
    "stuck-array": Kind(
        "an array has ended and does not say so, or the other way, or nobody makes its next tasks",
        _BROKEN_MIDWAY,
        "it is brought to what its tasks demand",
    ),
    "array-gone": Kind(
        "what is known of an array's tasks is gone",
        _EDITED,
        "it is made anew from its tasks; with more than 1,000 of them, cancel or delete the job",
    ),
    "jobs-gone": Kind(
        "jobs of a workflow, or tasks of an array, are gone: it would never end",
        "their keys were deleted by hand, or renamed by a mend",
        "they count as cancelled from now on",
    ),
    "workflow-gone": Kind(
        "what is known of a workflow is gone, and its final job waits for it",
        _EDITED,
        "nobody can know it: cancel the final job",
        Mend.BY_HAND,
    ),
    "half-staged": Kind(
        "a job belongs to a large submission that is gone",
        _EDITED,
        "nobody can know whether the submission was accepted: delete the job's keys, or submit anew",
        Mend.BY_HAND,
    ),
    "stray-member": Kind(
        "an index names something that does not belong there", _EDITED, "it is taken out of the index"
    ),
    "leaked-slot": Kind("a slot of a concurrency key is held by who does not run", _EDITED, "the slot is freed"),
    "held-up": Kind(
        "jobs wait for a slot, and nobody would look again", _EDITED, "those for whom there are slots are let go"
    ),
    "leaked-lock": Kind(
        "a unique key is held by a job that has ended, is gone, or does not need it any more",
        "Redis lost writes, or the job's key was deleted",
        "the key is freed",
    ),
    "orphan": Kind("a key belongs to a job that is gone", "the job's key was deleted by hand", "it is deleted"),
    "no-ttl": Kind(
        "a key would stay for ever that has to go by itself",
        "it was written again or persisted by hand",
        "it gets its time to live",
    ),
    "wrong-type": Kind(
        "a key of ours has another type",
        "another program uses its name",
        "it is renamed to `set-aside:…`, and made anew from what the jobs say",
    ),
    "miscounted": Kind("a count is wrong", _BROKEN_MIDWAY, "it is corrected by the difference"),
    "malformed": Kind(
        "a limit, a number or an entry is none, or can't be right",
        _EDITED,
        "it is made anew from what else is known, or removed; an attempt without a fence is taken for lost",
    ),
    "ungated": Kind(
        "a queue is paused or limited, and claims do not know of it",
        "Redis lost writes, or `meta` was edited",
        "it is noted for the claims",
    ),
    "fence-behind": Kind(
        "the fence counter is lower than a fence that was given out",
        "Redis lost writes, or `meta` was edited",
        "it goes on from the highest one",
    ),
    "quarantined": Kind(
        "it was passed over because one of its keys was damaged",
        "another program wrote to it",
        "it is looked at again from now on",
    ),
    "foreign": Kind(
        "a key under our prefix is none of ours",
        "another program, or another version of Workron",
        "it is left alone: delete it by hand if nobody needs it",
        Mend.BY_HAND,
    ),
    "unreadable": Kind(
        "it could not be looked at", "a key has the wrong type", "mend the key that is named first", Mend.BY_HAND
    ),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: its kind (a key of KINDS), what it is about, and what exactly was found."""

    code: str
    about: str
    detail: str
    mended: bool = False

    @property
    def kind(self) -> Kind:
        return KINDS[self.code]


def shown(value: bytes) -> str:
    """Return what was found in Redis as text: it may be anything."""
    return value.decode("utf-8", "backslashreplace")
