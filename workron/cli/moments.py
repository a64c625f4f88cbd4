"""Times as text: ages, durations, local time."""

from datetime import UTC, datetime
from typing import Final

from workron.client.documents import JobDoc

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))


def parse(moment: str) -> datetime:
    """Return the time of an RFC 3339 text."""
    return datetime.fromisoformat(moment)


def length(seconds: float) -> str:
    """Return a duration in at most two units: `42ms`, `1.5s`, `12s`, `3m20s`, `2h05m`, `4d02h`."""
    if seconds < 0.9995:
        return f"{max(seconds, 0) * 1000:.0f}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3_600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3_600}h{whole % 3_600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3_600:02}h"


def age(moment: str | None) -> str:
    """Return the age in one unit: `5s`, `3m`, `2h`, `4d`; with a leading + if it is in the future."""
    if moment is None:
        return ""
    seconds = round((datetime.now(UTC) - parse(moment)).total_seconds())
    sign, seconds = ("+", -seconds) if seconds < 0 else ("", seconds)
    return sign + next((f"{seconds // size}{unit}" for size, unit in _UNITS if seconds >= size), f"{seconds}s")


def clock(moment: str) -> str:
    """Return local date and time, followed by the age."""
    ago = age(moment)
    relative = f"in {ago[1:]}" if ago.startswith("+") else f"{ago} ago"
    return f"{parse(moment).astimezone():%Y-%m-%d %H:%M:%S} ({relative})"


def took(job: JobDoc) -> str:
    """Return how long the last attempt ran, or has been running."""
    if job["started_at"] is None or (job["finished_at"] is None and job["status"] != "running"):
        return ""
    end = parse(job["finished_at"]) if job["finished_at"] else datetime.now(UTC)
    return length((end - parse(job["started_at"])).total_seconds())
