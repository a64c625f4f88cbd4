"""The spot check that reapers make all the time: some jobs in turn, repaired at once (`lua/maintain_repair.lua`)."""

from typing import Final

from workron.doctor.faults import Fault, shown
from workron.redis.connection import Connection
from workron.redis.keys import Keys
from workron.redis.scripts import Scripts, UnknownReply

_KEYS_PER_CALL: Final = 100
_CALLS: Final = 6
"""Of a million keys, each is visited about once an hour."""


class SpotCheck:
    """Checks all jobs in turn. Any number of reapers may do so."""

    def __init__(self, connection: Connection, keys: Keys, scripts: Scripts) -> None:
        self._connection = connection
        self._keys = keys
        self._scripts = scripts
        self._cursor = b"0"

    async def look(self) -> list[Fault]:
        """Check the next jobs; return their faults, repaired or not."""
        found: list[Fault] = []
        for _ in range(_CALLS):
            match await self._scripts.maintain_repair(self._cursor, _KEYS_PER_CALL):
                case [b"LOOKED", cursor, *faults]:
                    self._cursor = cursor
                    found += [
                        Fault(code.decode(), f"job {shown(job)}", shown(detail), bool(mended))
                        for job, code, detail, mended in faults
                    ]
                case reply:
                    raise UnknownReply("maintain_repair", reply)
            if self._cursor == b"0":
                break
        return found
