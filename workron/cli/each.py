"""One command for many ids: an error of one does not stop the others."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from workron.cli.exits import Exit, code_of, notice
from workron.cli.values import stdin_or
from workron.errors import ApiProblem, NotFound

_OF_ONE: Final = frozenset({404, 409, 422})
"""Errors that concern one id only: the command continues with the others."""


class Each:
    """Yields the result of `act` for each id; reports errors on stderr and in `code`."""

    def __init__(self, ids: Iterable[str], act: Callable[[str], Any]) -> None:
        self._ids = [found for ident in ids for found in stdin_or(ident)]
        self._act = act
        self.code = Exit.OK

    def __iter__(self) -> Iterator[Any]:
        for ident in self._ids:
            try:
                yield self._act(ident)
            except (ApiProblem, NotFound) as error:
                if isinstance(error, ApiProblem) and error.status not in _OF_ONE:
                    raise
                notice(str(error) if ident in str(error) else f"{ident}: {error}")
                self.code = self.code or code_of(error)
