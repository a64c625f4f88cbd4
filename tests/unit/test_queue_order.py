"""The order in which a worker serves its queues."""

from collections import Counter

from workers.queue_order import Turns


def test_without_weights_the_first_queue_is_always_first() -> None:
    turns = Turns(["urgent", "default", "idle"])
    assert {turns.order() for _ in range(50)} == {("urgent", "default", "idle")}


def test_queues_stand_first_as_often_as_their_weights_say() -> None:
    turns = Turns(["critical:4", "default:1"])
    assert turns.names == ("critical", "default")
    first = Counter(turns.order()[0] for _ in range(5000))
    assert 3800 < first["critical"] < 4200  # a chance of one in a billion to be beyond
    assert first["default"] > 800


def test_a_queue_without_a_weight_among_weighted_ones_has_one_of_1() -> None:
    turns = Turns(["a:1000000", "b"])
    assert sum(turns.order() == ("a", "b") for _ in range(100)) >= 99
