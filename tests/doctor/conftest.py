"""Fixtures for tests of the doctor."""

import pytest


@pytest.fixture(autouse=True)
def _looks_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look goes over all keys of the server, also those that other tests have left."""
    monkeypatch.setattr("workron.doctor.spot_check._CALLS", 100_000)
