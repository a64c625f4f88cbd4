"""Fixtures for tests of the store."""

import pytest


@pytest.fixture(autouse=True)
def _arrays_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What there is to do for an array is done at once, however slow the machine, and not left to the next pass."""
    monkeypatch.setattr("workron.store.arrays._IN_A_REQUEST_S", 60)
    monkeypatch.setattr("workron.store.operator_actions._IN_A_REQUEST_S", 60)


@pytest.fixture(autouse=True)
def _passes_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass does all that there is to do, however slow the machine."""
    monkeypatch.setattr("workron.store.maintenance.PROMOTED_S", 60)
    monkeypatch.setattr("workron.store.retention.SWEEP_S", 60)


@pytest.fixture(autouse=True)
def _looks_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look goes over all keys of the server, also those that other tests have left."""
    monkeypatch.setattr("workron.doctor.spot_check._CALLS", 100_000)
