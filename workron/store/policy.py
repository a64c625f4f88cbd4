"""The parameters of the transitions."""

from dataclasses import dataclass
from typing import Self

from workron.durations import to_ms
from workron.settings import Settings


@dataclass(frozen=True, slots=True)
class Policy:
    """The store's share of the settings; durations in milliseconds."""

    lease_ms: int = 30_000
    pass_ms: int = 1_000
    retry_ms: int = 1_000
    retry_max_ms: int = 3_600_000
    stop_ms: int = 40_000
    """Time for a command to stop, before the reaper ends its lease."""
    retention_done_ms: int = 86_400_000
    retention_failed_ms: int = 7 * 86_400_000
    max_memory_share: float = 0.8
    """Share of Redis' `maxmemory` beyond which there is no room for new work."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        return cls(
            lease_ms=to_ms(settings.lease),
            pass_ms=to_ms(settings.reap_every),
            retry_ms=to_ms(settings.retry_delay),
            retry_max_ms=to_ms(settings.retry_max_delay),
            stop_ms=to_ms(2 * settings.kill_grace + settings.lease),
            retention_done_ms=to_ms(settings.retention_done),
            retention_failed_ms=to_ms(settings.retention_failed),
            max_memory_share=settings.max_memory_share,
        )
