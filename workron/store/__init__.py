"""The scheduler's state in Redis: what can be asked of it and done to it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workron.store.store import Store as Store


def __getattr__(name: str) -> Any:
    """Import it when it is asked for: not everyone here needs all that it imports."""
    if name == "Store":
        from workron.store.store import Store

        return Store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
