"""The bugs that the simulation builds in name text of the product: a rename there is noticed without a simulation."""

import pytest

from tests.simulation.mutants import PLANTS, PLANTS_IN_OUTAGES, planted
from workron.redis.scripts import Script


@pytest.mark.parametrize("plant", [*PLANTS, *PLANTS_IN_OUTAGES])
def test_a_bug_that_is_built_in_fits_and_its_scripts_can_be_loaded(plant: str) -> None:
    with planted(plant):
        assert Script.load("attempt_finish", shebang=False).source
