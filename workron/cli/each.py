"""One command for many ids: each has its turn, whatever became of the others."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from workron.cli.exits import Exit, code_of, notice
from workron.cli.options import expand_ids
from workron.errors import ApiProblem, NotFound

_OF_ONE: Final = frozenset({404, 409, 422})
"""Answers that concern one id: the others named in the same command still have their turn."""


class Each:
    """What `act` answers for each id; one that can't be acted on is told on stderr, and `code` then says so."""

    def __init__(self, ids: Iterable[str], act: Callable[[str], Any]) -> None:
        self._ids = expand_ids(ids)
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
