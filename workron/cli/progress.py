"""Progress on a terminal, of what may take more than two seconds. Where stderr is no terminal, nothing is shown."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_FROM_S: Final = 1.0
"""What ends sooner shows nothing, and does not import rich."""
_EVERY_S: Final = 0.1


class Progress:
    """One line on stderr, which disappears at the end."""

    def __init__(self) -> None:
        self._next_at_s = time.monotonic() + _FROM_S if sys.stderr.isatty() else float("inf")
        self._bar: Bar | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, what: str, done: int, total: int) -> None:
        """Show what is done now, and how much of it; `total` 0: it is unknown."""
        if time.monotonic() < self._next_at_s:
            return
        self._next_at_s = time.monotonic() + _EVERY_S
        if self._bar is None:
            self._bar = _bar()
            self._bar.add_task("", amount="")
            self._bar.start()
        amount = f"{done:,} of {total:,}" if total else f"{done:,}" if done else ""
        completed = min(done, total) if total else done
        self._bar.update(
            self._bar.task_ids[0], description=what, completed=completed, total=total or None, amount=amount
        )


def _bar() -> "Bar":
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        BarColumn(bar_width=20),
        TextColumn("{task.description}", markup=False),
        TextColumn("{task.fields[amount]}", markup=False),
        TimeElapsedColumn(),
    )
    return Bar(*columns, console=Console(stderr=True), transient=True)
