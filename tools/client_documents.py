"""The client's types of the API's answers, made from the models of the OpenAPI document.

The client may not import pydantic: `workron --help` would take longer.
"""

from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from api import schemas
from api.schemas import access, actions, jobs, system

_DOCUMENTS: Final[dict[type[BaseModel], str]] = {
    jobs.DependencyState: "DependencyDoc",
    jobs.Array: "ArrayDoc",
    jobs.Task: "TaskDoc",
    jobs.Concurrency: "ConcurrencyDoc",
    jobs.Retry: "RetryDoc",
    jobs.Unique: "UniqueDoc",
    jobs.Job: "JobDoc",
    jobs.Explanation: "ExplanationDoc",
    actions.ActionFilter: "ActionFilterDoc",
    actions.Destination: "DestinationDoc",
    actions.BulkAction: "ActionDoc",
    schemas.Workflow: "WorkflowDoc",
    schemas.Rate: "RateDoc",
    schemas.Queue: "QueueDoc",
    schemas.NextRun: "NextRunDoc",
    schemas.ScheduleRun: "ScheduleRunDoc",
    schemas.ScheduleSummary: "ScheduleSummaryDoc",
    schemas.ScheduleState: "ScheduleDoc",
    schemas.Worker: "WorkerDoc",
    access.ApiKey: "KeyDoc",
    access.MadeKey: "MadeKeyDoc",
    access.Entry: "AuditDoc",
    system.Server: "ServerDoc",
    system.Reaper: "ReaperDoc",
    system.History: "HistoryDoc",
    system.Health: "HealthDoc",
}
"""Model → name of the client's type; each after the models that it contains."""
_HEAD: Final = '''\
"""The types of the HTTP API's JSON documents, for clients. `make generate` writes this file from `api/schemas`.

Times are RFC 3339 in UTC, durations are in seconds.
"""

from typing import Any, TypedDict
'''


def module(_before: str) -> str:
    return _HEAD + "".join(_class(model, name) for model, name in _DOCUMENTS.items())


def _class(model: type[BaseModel], name: str) -> str:
    base = next((each for each in model.__mro__[1:] if each in _DOCUMENTS), None)
    own = [each for each in model.model_fields if base is None or each not in base.model_fields]
    doc = f'    """{model.__doc__}"""\n\n' if model.__doc__ else ""
    fields = "".join(f"    {each}: {_text(model.model_fields[each].annotation)}\n" for each in own)
    return f"\n\nclass {name}({_DOCUMENTS[base] if base else 'TypedDict'}):\n{doc}{fields}"


def _text(kind: Any) -> str:
    """Return a type as the client sees it: enums and literals are strings."""
    if get_origin(kind) is Annotated:
        return _text(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        texts = dict.fromkeys(map(_text, get_args(kind)))
        return "Any" if "Any" in texts else " | ".join(texts)
    if get_origin(kind) in (list, dict):
        return f"{get_origin(kind).__name__}[{', '.join(map(_text, get_args(kind)))}]"
    if get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        return "str"
    if kind in (Any, NoneType):
        return "Any" if kind is Any else "None"
    return _DOCUMENTS.get(kind) or str(kind.__name__)
