"""Which faults a seed has in store, and when; after the storm there are none."""

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from random import Random
from typing import Final

RATES: Final = (0.0, 0.0, 0.005, 0.02, 0.06)
DEATH_RATES: Final = (0.0, 0.002, 0.01, 0.03)
STORM_S: Final = 15.0
"""How long faults happen."""
LAST_ROLLBACK_S: Final = 6.0
"""At most so long after its time a server restarts with the state that it had then."""
LARGEST_BODY: Final = 3000
_LONGEST_S: Final = 9.0
"""How long Redis is away or stands still: two leases and more."""


class Course(StrEnum):
    """Which kinds of faults a run has."""

    STORM = "storm"
    """Everything goes wrong."""
    OUTAGE = "outage"
    """Redis is away for longer than a lease, and clocks jump. Nothing else goes wrong, so this costs no attempt."""


class Fate(Enum):
    """What becomes of a call."""

    FINE = auto()
    LOST = auto()
    """It is applied, and its reply is lost."""
    REFUSED = auto()
    """It is not applied, and fails."""
    LATE = auto()
    """It fails, and is applied later nevertheless: after its repeat, perhaps."""
    STALLED = auto()
    """It takes longer than anybody waits for it, and all behind it on its connection too."""
    TWICE = auto()
    """It is applied, and much later once more."""
    DEADLY = auto()
    """Who made it dies before it is applied."""
    LAST = auto()
    """Who made it dies when it is applied."""


class Weather:
    """The faults of one run."""

    def __init__(self, random: Random, course: Course) -> None:
        self._random = random
        self.over = False
        self._rates: dict[Fate, float] = {}
        self.largest_body: int | None = LARGEST_BODY
        """A proxy in front of the API refuses a larger request."""
        if course is Course.STORM:
            self.largest_body = None
            self._rates = {fate: random.choice(RATES) for fate in Fate if fate is not Fate.FINE}
            self._rates |= {fate: random.choice(DEATH_RATES) for fate in (Fate.DEADLY, Fate.LAST)}
        self._slow = random.choice((0.0, 0.05, 0.2))
        """Share of the calls that take long."""

    def fate(self, *, changes: bool = True) -> Fate:
        """Return what becomes of a call; nobody dies of one that only looks."""
        if self.over:
            return Fate.FINE
        chance = self._random.random()
        for fate, rate in self._rates.items():
            chance -= rate
            if chance < 0:
                return fate if changes or fate not in (Fate.DEADLY, Fate.LAST) else Fate.FINE
        return Fate.FINE

    def loses_message(self) -> bool:
        return not self.over and self._random.random() < 0.1

    def delay_s(self) -> float:
        if not self.over and self._random.random() < self._slow:
            return self._random.uniform(0.02, 0.8)
        return self._random.expovariate(500)

    def long_delay_s(self) -> float:
        """For a call that comes late: now and then as late as after a lease."""
        return self._random.choice((0.05, 0.5, 2.5, 8.0)) * self._random.uniform(0.5, 1.5)


@dataclass(frozen=True, slots=True)
class Blow:
    """One fault of a process or of the server."""

    at_s: float
    kind: str
    who: int
    """Which of the processes, by number."""
    length_s: float
    """How long it is dead, frozen or down; for clocks, by how much they jump."""


KINDS: Final = (
    "crash", "crash", "freeze", "freeze", "stalls", "restart", "rollback",
    "server clock", "server clock", "host clock", "leave",
)  # fmt: skip


def blows(random: Random, course: Course) -> list[Blow]:
    """Return the faults of a run in their order."""
    if course is Course.OUTAGE:
        return _outages(random)
    kinds = random.sample(KINDS, random.randint(1, len(KINDS)))
    if {"rollback", "server clock"} <= set(kinds):
        # Fences grow by the server's clock where the counter was undone: one of both has to hold.
        worse = random.choice(("rollback", "server clock"))
        kinds = [kind for kind in kinds if kind != worse]
    found = [_blow(random, random.choice(kinds)) for _ in range(random.choice((0, 2, 4, 8)))]
    return sorted(found, key=lambda blow: blow.at_s)


def _blow(random: Random, kind: str) -> Blow:
    length_s = {
        "crash": lambda: random.choice((0.1, 1.0, 8.0)),
        "freeze": lambda: random.choice((0.5, 3.0, 5.0, 12.0)) * random.uniform(0.8, 1.2),
        "stalls": lambda: random.choice((4.7, 5.5)),
        "restart": lambda: random.choice((0.05, 0.5, 3.0)),
        "rollback": lambda: random.choice((0.05, 0.5, 3.0)),
        "server clock": lambda: random.choice((-3600.0, -30.0, -2.0, 2.0, 30.0, 3600.0, 3600.0, 3600.0)),
        "host clock": lambda: random.choice((-3600.0, 3600.0)),
        "leave": lambda: 0.0,
    }[kind]()
    at_s = random.uniform(0.5, 3.0 if kind == "stalls" else STORM_S)  # they come one after the other
    return Blow(at_s, kind, random.randrange(1000), length_s)


def _outages(random: Random) -> list[Blow]:
    """Return two outages, each longer than a lease, and a jump of each clock.

    The first pass of a reaper comes before them: it is from its passes that a reaper knows how long all were away.
    """

    def outage(at_s: float) -> Blow:
        kind = random.choice(("restart", "stand still"))
        return Blow(at_s, kind, 0, random.uniform(4.5, _LONGEST_S))

    outages = [outage(random.uniform(2.0, 4.0)), outage(random.uniform(13.0, STORM_S))]
    jumps = [
        Blow(
            random.uniform(2.0, 12.0), kind, random.randrange(1000), random.choice((-3600.0, -30.0, 2.0, 30.0, 3600.0))
        )
        for kind in ("server clock", "host clock")
    ]
    return sorted(outages + jumps, key=lambda blow: blow.at_s)
