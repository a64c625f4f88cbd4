"""`python wrong_clock.py OFFSET_S python -m workron …`: that, on a machine whose clock is wrong by so many seconds.

The clocks that only count (monotonic, boottime) are right, as they are on such a machine.
"""

import datetime
import sys
import time


def make_wrong(offset_s: float) -> None:
    """Have everything that is imported from now on see another time of day."""
    right_ns, right_datetime, right_clock = time.time_ns, datetime.datetime, time.clock_gettime

    class WrongDatetime(right_datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return right_datetime.now(tz) + datetime.timedelta(seconds=offset_s)

    def clock_gettime(clock: int) -> float:
        return right_clock(clock) + (offset_s if clock == time.CLOCK_REALTIME else 0)

    time.time_ns = lambda: right_ns() + int(offset_s * 1e9)
    time.time = lambda: time.time_ns() / 1e9
    time.clock_gettime = clock_gettime
    datetime.datetime = WrongDatetime  # type: ignore[misc]


if __name__ == "__main__":
    make_wrong(float(sys.argv[1]))
    del sys.argv[1:5]
    from workron.__main__ import main

    main()
