"""The body of a request for a new API key."""

from typing import Annotated, Final

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from workron.durations import to_ms
from workron.models import NewKey, Scope
from workron.specs.fields import Body, QueueName, SomeSeconds

_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9_.@+\-]{0,63}$"


class NewApiKey(Body):
    """A new API key."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "ci", "scopes": ["submit", "read"], "queues": ["builds"], "ttl": "90d"},
                {"name": "host-7", "scopes": ["work"]},
            ]
        }
    )

    name: Annotated[str, StringConstraints(pattern=_NAME)]
    """Unique name of the key."""
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(Scope))]
    """`read` jobs, `submit` and manage them, `work` on them; `admin` includes these, queues, workers and keys."""
    queues: Annotated[list[QueueName], Field(min_length=1, max_length=100)] | None = None
    """Queues to which the key is restricted; null: all queues. Not allowed for `admin`."""
    ttl: SomeSeconds | None = None
    """Lifetime of the key: seconds, or like `12h`, `90d`; null: until it is revoked."""

    @model_validator(mode="after")
    def _admin_has_all_queues(self) -> "NewApiKey":
        if self.queues is not None and Scope.ADMIN in self.scopes:
            raise ValueError("a key with the scope admin can't be limited to queues: it could create another key")
        return self

    def to_new_key(self) -> NewKey:
        queues = None if self.queues is None else frozenset(self.queues)
        ttl_ms = to_ms(self.ttl)
        return NewKey(self.name, frozenset(self.scopes), queues, ttl_ms)
