"""Fixtures for tests of the store."""

import pytest


@pytest.fixture(autouse=True)
def _arrays_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What there is to do for an array is done at once, however slow the machine, and not left to the next pass."""
    monkeypatch.setattr("workron.arrays._IN_A_REQUEST_S", 60)
    monkeypatch.setattr("workron.upkeep.ARRAY_S", 60)
