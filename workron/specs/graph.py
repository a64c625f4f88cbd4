"""The dependency graph of a workflow, and its topological order: every job after its parents."""

from collections.abc import Iterator, Sequence
from typing import Final

from workron.errors import DependencyCycle, InvalidRequest

_NEW: Final = 0
_OPEN: Final = 1
_PLACED: Final = 2


def number_names(names: Sequence[str | None]) -> dict[str, int]:
    """Return the position of each name; raise InvalidRequest for a duplicate name, skip jobs without a name."""
    positions: dict[str, int] = {}
    for position, name in enumerate(names):
        if name is None:
            continue
        if name in positions:
            raise InvalidRequest(f"two jobs of this workflow have the name {name!r}", field="jobs")
        positions[name] = position
    return positions


def topological_order(parents: Sequence[Sequence[int]], labels: Sequence[str]) -> list[int]:
    """Return all positions, each after its `parents`; positions that need not move keep their order.

    Depth first without recursion, O(jobs + edges). Raises `DependencyCycle` with the labels of the first cycle
    found, each waiting for the next.
    """
    order: list[int] = []
    state = bytearray(len(parents))
    for root, above in enumerate(parents):
        if state[root] != _NEW:
            continue
        if all(state[parent] == _PLACED for parent in above):  # most jobs stand behind their parents already
            state[root] = _PLACED
            order.append(root)
        else:
            _place(root, parents, labels, state, order)
    return order


def _place(
    root: int, parents: Sequence[Sequence[int]], labels: Sequence[str], state: bytearray, order: list[int]
) -> None:
    """Append `root` to `order`, after those of its ancestors that are not in it yet."""
    path = [root]
    unvisited: list[Iterator[int]] = [iter(parents[root])]
    state[root] = _OPEN
    while path:
        parent = next((p for p in unvisited[-1] if state[p] != _PLACED), None)
        if parent is None:
            state[path[-1]] = _PLACED
            order.append(path.pop())
            unvisited.pop()
        elif state[parent] == _OPEN:
            raise DependencyCycle([labels[member] for member in path[path.index(parent) :]])
        else:
            state[parent] = _OPEN
            path.append(parent)
            unvisited.append(iter(parents[parent]))
