"""The scheduler's state in Redis, and all operations on it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workron.store.store import Store as Store


def __getattr__(name: str) -> Any:
    """Import it on first use: it has imports that not all callers need."""
    if name == "Store":
        from workron.store.store import Store

        return Store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
