"""A client of the HTTP API; it needs no Redis."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workron.client.client import Client as Client


def __getattr__(name: str) -> Any:
    """Import it on first use: it has imports that not all callers need."""
    if name == "Client":
        from workron.client.client import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
