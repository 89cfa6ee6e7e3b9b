"""All orders of the messages of one transactional producer, two partitions and their coordinator:
completely, with one response lost or one coordinator replaced; `make every-order` has both.

Source: KIP-98, KIP-360, KIP-890.
"""

import pytest

from tests.core.every_order.search import Broken, Searched, search
from tests.core.every_order.worlds import FOUND, LAST_GIVEN_EPOCH, Bounds, one_producer, parts_of


def _searched(bounds: Bounds, *, reduces: bool, bug: str = "") -> Searched:
    parts = parts_of("4.4", *([bug] if bug else []))
    return search(one_producer(parts, bounds), depth=200, cpu_seconds=60, reduces=reduces)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "trouble", [{"loses": "request"}, {"loses": "produce"}, {"loses": "markers"}, {"failovers": 1}]
)
def test_a_transaction_ends_once_in_every_order(
    version: int, trouble: dict[str, int | str]
) -> None:
    """One transaction with records in two partitions; the search is complete, and leaves out no
    result when it leaves out orders. That comparison is made with version 2, which is done sooner;
    `make every-order ARGS=--all-orders` searches all orders of both.
    """
    bounds: Bounds = {"version": version, "transactions": 1, **trouble}
    reduced = _searched(bounds, reduces=True)
    assert reduced.is_complete and reduced.settled > 4
    if version == 2:
        complete = _searched(bounds, reduces=False)
        assert complete.is_complete
        assert reduced.states < complete.states and reduced.moves < complete.moves
        assert reduced.settled == complete.settled


@pytest.mark.parametrize("reduces", [False, True])
@pytest.mark.parametrize("name", ["KAFKA-10080", "KAFKA-16352", "KAFKA-19999"])
def test_a_historical_bug_is_found_with_and_without_all_orders(name: str, reduces: bool) -> None:
    """The same switch as in a node, without chance."""
    case = FOUND[name]
    with pytest.raises(Broken, match=case.message):
        _searched(case.bounds, reduces=reduces, bug=name)


@pytest.mark.parametrize("name", ["KAFKA-17754", "KAFKA-20090"])
def test_a_historical_bug_of_two_transactions_is_found(name: str) -> None:
    """A late EndTxn needs a second transaction that it ends."""
    case = FOUND[name]
    bounds: Bounds = {**case.bounds, "partitions": 1}
    with pytest.raises(Broken, match=case.message):
        _searched(bounds, reduces=True, bug=name)
    found = _searched(bounds, reduces=True)
    assert found.is_complete


def test_an_answer_with_the_exhausted_producer_id_is_found() -> None:
    """The producer is refused as a stranger by its own coordinator."""
    bounds: Bounds = {"transactions": 2, "partitions": 1, "first_epoch": LAST_GIVEN_EPOCH}
    wrong = parts_of("4.4", "KAFKA-18660")
    with pytest.raises(Broken, match="INVALID_PRODUCER_ID_MAPPING, and no one has fenced it"):
        search(one_producer(wrong, bounds), depth=200, cpu_seconds=60, reduces=True)
    right = search(one_producer(parts_of("4.4"), bounds), depth=200, cpu_seconds=60, reduces=True)
    assert right.is_complete
