"""Pytest plugin: what the tests start finds its modules compiled, also where nothing may be written beside them.

Without, each of the thousand processes that the tests start would compile all its modules anew: half of its time.
"""

import os

import pytest


def pytest_configure(config: pytest.Config) -> None:
    cache = getattr(config, "cache", None)  # none with `-p no:cacheprovider`
    if cache is not None and os.environ.pop("PYTHONDONTWRITEBYTECODE", "") and "PYTHONPYCACHEPREFIX" not in os.environ:
        os.environ["PYTHONPYCACHEPREFIX"] = str(cache.mkdir("compiled"))
