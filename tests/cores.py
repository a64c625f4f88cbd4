"""What a busy machine adds to measured times: the time for which others had the cores."""

from pathlib import Path


def used_s(process: int) -> float:
    """Return for how long the main thread of a process has had a core."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9


def waited_s(process: int | str = "thread-self") -> float:
    """Return for how long this thread, or a process that may have ended, has been ready to run without a core."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
