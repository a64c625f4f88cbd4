"""Worker and reaper processes on a real server, as `tests/e2e` has them."""

import pytest

from tests.e2e.conftest import bench, processes

__all__ = ["bench", "processes"]


@pytest.fixture
def url(valkey_url: str) -> str:  # one kind of server will do: what is bad here is the machine
    return valkey_url
