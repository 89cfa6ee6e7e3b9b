"""A leader that is in the middle of a copy leads no more: who leads then copies anew, and every record is read, wherever it lies.

Source: KIP-405 (leader fencing, dangling segments), RemoteLogManager.RLMCopyTask; asked of nobody: Kafka has no such moment to stop at.
"""

from kraftsim.events.tiered_storage import RemoteCopyFinished, RemoteCopyStarted
from kraftsim.world.simulated.objects import Ailment
from tests.tiered_storage.lab import TieredLab

RECORDS = 9
SEGMENTS = 4
SLOW_SECONDS = 1.5
PAUSE_SECONDS = 3.5


def in_mid_copy(lab: TieredLab) -> None:
    """Write four closed segments that both brokers have, and stop in the middle of the copy of the second one."""
    lab.create_topic(replicas=(1, 2))
    slow = lab.store.ail(Ailment(bite=lambda: None, delay_seconds=SLOW_SECONDS))
    for index in range(RECORDS):
        lab.produce(1, producer_id=index % 3)
    for _ in range(200):
        started, finished = lab.of(RemoteCopyStarted, "broker-1"), lab.of(RemoteCopyFinished, "broker-1")
        if (len(started), len(finished)) == (2, 1):
            break
        lab.wait(0.1)
    assert (len(started), len(finished)) == (2, 1), "the second copy is under way"
    slow()


def copied_by(lab: TieredLab, node: str) -> list[int]:
    """Return the first offsets of the segments that a broker says it has copied."""
    return [event.first_offset for event in lab.of(RemoteCopyFinished, node) if isinstance(event, RemoteCopyFinished)]


def all_is_well(lab: TieredLab, leader: int) -> None:
    """Whoever leads has four segments in the store, one record here, and gives every record to readers."""
    replica = lab.hosted(leader).replica
    assert (replica.is_leader, replica.copied_offset, replica.local_start_offset) == (True, RECORDS - 2, RECORDS - 1)
    assert [batch.base_offset for batch in lab.read_all(leader)] == list(range(RECORDS))
    catalogue = lab.broker(leader).tiered.catalogue_of(lab.hosted(leader))  # type: ignore[union-attr]
    assert catalogue is not None
    assert sorted({each.start_offset for each in catalogue.segments}) == [0, 2, 4, 6]


def test_the_copy_of_a_leader_that_dies_is_made_anew_by_the_next_one() -> None:
    """What the dead one announced stays announced; its objects are nobody's, and no reader sees them."""
    with TieredLab() as lab:
        in_mid_copy(lab)
        lab.simulation.kill("broker-1")
        lab.wait(10)
        assert copied_by(lab, "broker-1") == [0] and copied_by(lab, "broker-2") == [2, 4, 6], "what was finished is not copied twice"
        all_is_well(lab, 2)
        lab.simulation.restart("broker-1")
        lab.wait(8)
        assert copied_by(lab, "broker-1") == [0], "as a follower it copies nothing"
        lab.simulation.kill("broker-2")
        lab.wait(6)
        all_is_well(lab, 1)
        begun = [(event.first_offset, event.segment_id) for event in lab.of(RemoteCopyStarted) if isinstance(event, RemoteCopyStarted)]
        assert [first for first, _ in begun] == [0, 2, 2, 4, 6] and len({segment_id for _, segment_id in begun}) == len(begun)


def test_a_leader_that_slept_in_mid_copy_ends_its_copy_and_no_record_is_read_twice() -> None:
    """It wakes up, finishes what it has begun, and learns that somebody else leads: two copies of one segment are in the store, one is read."""
    with TieredLab() as lab:
        in_mid_copy(lab)
        lab.simulation.pause("broker-1")
        lab.wait(PAUSE_SECONDS)
        assert lab.hosted(2).replica.is_leader
        lab.simulation.resume("broker-1")
        lab.wait(10)
        assert set(copied_by(lab, "broker-1")) <= {0, 2} and copied_by(lab, "broker-2")[-1] == 6
        all_is_well(lab, 2)
        assert not lab.hosted(1).replica.is_leader and lab.hosted(1).replica.log_end_offset == RECORDS
