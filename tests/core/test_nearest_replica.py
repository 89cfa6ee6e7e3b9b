"""KIP-392: the preferred read replica of a consumer."""

import pytest

from kraftsim.partitions.rules_leader import (
    LeaderAndIsrState,
    LeaderRules,
    LeaderState,
    nearest_replica,
)

RACKS = {1: "a", 2: "b", 3: "b", 4: "c", 5: "b"}


def leader_state() -> LeaderState:
    """Broker 1 leads; 2, 3 and 4 are in sync, 5 is not; 3 has more records than 2."""
    leader_and_isr = LeaderAndIsrState(
        leader_epoch=0, partition_epoch=0, replicas=(1, 2, 3, 4, 5), isr=(1, 2, 3, 4)
    )
    rules = LeaderRules(lag_max_ms=30_000, min_in_sync=1, waits_for_min_in_sync=True)
    made = LeaderState(
        1, leader_and_isr, log_end_offset=100, now_ms=0, rules=rules, eligible=lambda *_: True
    )
    for replica_id, end_offset in ((2, 90), (3, 95), (4, 100), (5, 100)):
        made.followers[replica_id].on_fetch(
            end_offset, 10, leader_end_offset=100, now_ms=replica_id, broker_epoch=1
        )
    return made


@pytest.mark.parametrize(
    ("client_rack", "fetch_offset", "nearest"),
    [
        ("", 50, None),
        ("a", 50, None),
        ("b", 50, 3),
        ("b", 95, 3),
        ("b", 96, None),
        ("b", 9, None),
        ("c", 100, 4),
        ("d", 50, None),
    ],
)
def test_consumer_is_sent_to_an_up_to_date_follower_in_its_rack(
    client_rack: str, fetch_offset: int, nearest: int | None
) -> None:
    """The leader serves its own rack, no rack, an unknown rack, and offsets that no follower in the
    rack has.
    """
    found = nearest_replica(
        leader_state(),
        own_rack="a",
        client_rack=client_rack,
        rack_of=RACKS.get,
        fetch_offset=fetch_offset,
        now_ms=10,
    )
    assert found == nearest


def test_of_two_equal_followers_the_last_caught_up_is_preferred() -> None:
    """Then the one with the higher id."""
    made = leader_state()
    made.followers[2].on_fetch(100, 10, leader_end_offset=100, now_ms=20, broker_epoch=1)
    made.followers[3].on_fetch(100, 10, leader_end_offset=100, now_ms=15, broker_epoch=1)
    assert (
        nearest_replica(
            made, own_rack="a", client_rack="b", rack_of=RACKS.get, fetch_offset=50, now_ms=30
        )
        == 2
    )
    made.followers[3].on_fetch(100, 10, leader_end_offset=100, now_ms=20, broker_epoch=1)
    assert (
        nearest_replica(
            made, own_rack="a", client_rack="b", rack_of=RACKS.get, fetch_offset=50, now_ms=30
        )
        == 3
    )
