"""The tree of errors in the docstring of `workron.errors` is the tree of its classes."""

import re

from workron import errors


def drawn() -> dict[str, str]:
    """Return the parent of each class, as the docstring draws them."""
    parents, above = {}, {}
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"    ([│ ]*)(?:[├└]── )?(\w+)", line):
            depth = len(found[1]) // 4 + (1 if "── " in line else 0)
            above[depth] = found[2]
            if depth:
                parents[found[2]] = above[depth - 1]
    return parents


def test_the_docstring_shows_every_error_under_its_parent() -> None:
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.WorkronError)]
    assert drawn() == {one.__name__: one.__bases__[0].__name__ for one in classes if one is not errors.WorkronError}


def test_only_an_error_of_no_other_kind_is_an_outage() -> None:
    assert errors.is_outage(errors.StoreUnavailable("away"))
    assert errors.is_outage(errors.ApiAway("away"))
    others = (errors.StoreBroken("x"), errors.StoreFull("x"), errors.TooManyReads(), errors.ApiRefuses("x"), None)
    assert [errors.is_outage(one) for one in others] == [False] * 5
