"""The base of all models in the OpenAPI document: a string below a field describes it.

Pydantic can do this too, but parses the source of each model as it is imported: a sixth of an API's start. Here the
sources are parsed when the document is built. Validators are built at their first use.
"""

import ast
import functools
import inspect
import sys
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue


class Documented(BaseModel):
    """A model with a description of each of its fields below it."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in _descriptions(cls).items():
            shown = cls.model_fields[name].alias or name
            if text is not None and shown in properties:
                properties[shown].setdefault("description", text)
        return schema


def _descriptions(model: type[BaseModel]) -> Mapping[str, str | None]:
    """Return the text below each field of a model, or of the base that declares the field."""
    found: dict[str, str | None] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, Documented):
            found |= _texts(base.__module__).get(base.__qualname__, {})
    return {name: found[name] for name in found.keys() & model.model_fields.keys()}


@functools.cache
def _texts(module: str) -> Mapping[str, Mapping[str, str | None]]:
    """Return the text below each field that is declared in a module, by class."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:  # installed without sources
        return {}
    return {each.name: dict(_fields(each)) for each in tree.body if isinstance(each, ast.ClassDef)}


def _fields(model: ast.ClassDef) -> Iterator[tuple[str, str | None]]:
    for field, below in zip_longest(model.body, model.body[1:]):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            yield field.target.id, _text(below)


def _text(statement: ast.stmt | None) -> str | None:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return inspect.cleandoc(str(statement.value.value))
    return None
