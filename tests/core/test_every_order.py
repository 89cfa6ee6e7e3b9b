"""All orders of deliveries, losses, timeouts and crashes, as far as a few seconds reach; `make
every-order` goes further.
"""

import pytest

from kraftsim.producer_ids.rules_allocation import ProducerIdControl
from protocol.metadata.controller import ProducerIdsRecord
from tests.core.every_order.allocation import Allocation
from tests.core.every_order.election import Election
from tests.core.every_order.search import Broken, after, search


@pytest.mark.parametrize(
    "waits",
    [False, pytest.param(True, marks=pytest.mark.interop)],  # long
)
def test_no_order_of_events_allocates_a_producer_id_twice(waits: bool) -> None:
    """Two brokers, lost responses, restarts, and controller failovers with or without uncommitted
    records.
    """
    found = search(lambda: Allocation(waits=waits), depth=8, cpu_seconds=8)
    assert found.depth >= 7 and found.states > 3000


@pytest.mark.parametrize("has_pre_vote", [False, True])
def test_no_order_of_events_elects_two_leaders_or_revokes_a_vote(has_pre_vote: bool) -> None:
    """Three voters; a voter that loses power keeps its vote."""
    found = search(lambda: Election(has_pre_vote=has_pre_vote), depth=5, cpu_seconds=10)
    assert found.depth >= 4 and found.states > 500


def test_an_election_is_within_reach_of_the_search() -> None:
    """Two deliveries after a timeout there is a leader: the search covers whole elections."""
    world = after(Election, ("time-out 1", "deliver 1>2", "deliver 2>1"))
    assert isinstance(world, Election) and world.leaders == {1: 1}


class ForgetsWhatItGave(ProducerIdControl):
    """A control that ignores every second record."""

    def replay(self, record: ProducerIdsRecord) -> None:
        if record.next_producer_id % 2000:
            super().replay(record)


def test_a_block_allocated_twice_is_found() -> None:
    with pytest.raises(Broken, match=r"allocated|below the committed"):
        search(lambda: Allocation(control=ForgetsWhatItGave, troubles=0), depth=12, cpu_seconds=20)
