"""What an API key is made with."""

from typing import Annotated, Final

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from workron.models import NewKey, Scope
from workron.specs.fields import Body, QueueName, SomeSeconds

_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9_.@+\-]{0,63}$"


class NewApiKey(Body):
    """A key to be made."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "ci", "scopes": ["submit", "read"], "queues": ["builds"], "ttl": "90d"},
                {"name": "host-7", "scopes": ["work"]},
            ]
        }
    )

    name: Annotated[str, StringConstraints(pattern=_NAME)]
    """What people call it; no two keys have the same name."""
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(Scope))]
    """`read` jobs, `submit` and steer them, `work` on them; `admin` includes all that, queues, workers and keys."""
    queues: Annotated[list[QueueName], Field(min_length=1, max_length=100)] | None = None
    """The only queues that it may see and touch; null: all. Not for `admin`."""
    ttl: SomeSeconds | None = None
    """After this time it is good no longer: seconds, or like `12h`, `90d`; null: it is good until it is revoked."""

    @model_validator(mode="after")
    def _admin_has_all_queues(self) -> "NewApiKey":
        if self.queues is not None and Scope.ADMIN in self.scopes:
            raise ValueError("a key with the scope admin can't be limited to queues: it could create another key")
        return self

    def to_new_key(self) -> NewKey:
        queues = None if self.queues is None else frozenset(self.queues)
        ttl_ms = None if self.ttl is None else max(1, round(self.ttl * 1000))
        return NewKey(self.name, frozenset(self.scopes), queues, ttl_ms)
