"""Query parameters shared by several routes."""

from typing import Annotated, Any, Final, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from workron.durations import parse_duration

_LONGEST_WAIT_S: Final = 60


def _seconds(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError):
        return parse_duration(value)


WaitSeconds = Annotated[
    float,
    BeforeValidator(_seconds),
    Field(ge=0, le=_LONGEST_WAIT_S, allow_inf_nan=False),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": _LONGEST_WAIT_S},
                {"type": "string", "pattern": r"^([0-9]{1,4}ms|[1-5]?[0-9](\.[0-9]{1,3})?s|60s|1m)$"},
            ]
        }
    ),
]


class StrictQuery(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    @classmethod
    def lists(cls) -> frozenset[str]:
        """Return the names of the parameters that may be repeated."""
        return frozenset(name for name, field in cls.model_fields.items() if get_origin(field.annotation) is list)
