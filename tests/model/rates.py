"""The model: of a queue with a rate, never more starts in any window of that length than it says."""

from dataclasses import dataclass, field

from workron.models import Rate


@dataclass
class Starts:
    """The starts of a queue. `known`: as many as the rate allows, as long as they matter by that of the last one."""

    known: list[int] = field(default_factory=list)
    known_until: int = 0
    all: list[int] = field(default_factory=list)
    """Since the rate is what it is."""

    def begin_anew(self, rate: Rate | None) -> None:
        """The rate has become another one: what has started before counts as far as it is known."""
        self.all = []
        if rate is None:
            self.known = []

    def room(self, rate: Rate, now: int) -> int:
        known = self.known if self.known_until > now else []
        return rate.jobs - sum(at + rate.per_ms > now for at in known)

    def note(self, rate: Rate, now: int) -> None:
        self.known = [*(self.known if self.known_until > now else []), now][-rate.jobs :]
        self.known_until = now + rate.per_ms
        self.all.append(now)
        window = [at for at in self.all if at + rate.per_ms > now]
        assert len(window) <= rate.jobs, f"{len(window)} starts within {rate.per_ms} ms, at most {rate.jobs} may be"
