"""Texts that Python and Lua both read or write: one function per direction here, and its twin in Lua."""

from enum import StrEnum


class Hook(StrEnum):
    """A lifecycle hook: a word in a job's field `hooks`; `lua/lib/core.lua` has the order in which they run."""

    UNIQUE = "unique"
    WORKFLOW = "workflow"
    TIMERS = "timers"
    ARRAY = "array"
    TASK = "task"
    CONCURRENCY = "concurrency"
