"""A leader loses leadership during a copy: the next leader repeats the copy, and every record is readable, local or
remote.

Source: KIP-405 (leader fencing, dangling segments), RemoteLogManager.RLMCopyTask; not compared with Kafka, which cannot
be stopped at this point.
"""

import pytest

from kraftsim.core.tiered_storage.remote_retention import FORGOTTEN_EPOCHS
from kraftsim.events.tiered_storage import RemoteCopyFinished, RemoteCopyStarted, RemoteSegmentDeleted
from kraftsim.world.simulated.objects import Ailment
from tests.tiered_storage.lab import TieredLab

RECORDS = 9
SEGMENTS = 4
SLOW_SECONDS = 1.5
PAUSE_SECONDS = 3.5


def in_mid_copy(lab: TieredLab) -> None:
    """Write four closed segments that both brokers have, and stop during the copy of the second one."""
    lab.create_topic(replicas=(1, 2))
    slow = lab.store.ail(Ailment(bite=lambda: None, delay_seconds=SLOW_SECONDS))
    for index in range(RECORDS):
        lab.produce(1, producer_id=index % 3)
    for _ in range(200):
        started, finished = lab.of(RemoteCopyStarted, "broker-1"), lab.of(RemoteCopyFinished, "broker-1")
        if (len(started), len(finished)) == (2, 1):
            break
        lab.wait(0.1)
    assert (len(started), len(finished)) == (2, 1), "the second copy is in progress"
    slow()


def copied_by(lab: TieredLab, node: str) -> list[int]:
    """Return the base offsets of the segments that a broker reports as copied."""
    return [event.first_offset for event in lab.of(RemoteCopyFinished, node) if isinstance(event, RemoteCopyFinished)]


def all_is_well(lab: TieredLab, leader: int) -> None:
    """The leader has four segments in the store, one local record, and returns every record to consumers."""
    replica = lab.hosted(leader).replica
    assert (replica.is_leader, replica.copied_offset, replica.local_start_offset) == (True, RECORDS - 2, RECORDS - 1)
    assert [batch.base_offset for batch in lab.read_all(leader)] == list(range(RECORDS))
    catalogue = lab.broker(leader).tiered.catalogue_of(lab.hosted(leader))  # type: ignore[union-attr]
    assert catalogue is not None
    assert sorted({each.start_offset for each in catalogue.segments}) == [0, 2, 4, 6]


def test_copy_of_a_dead_leader_is_repeated_by_the_next_one() -> None:
    """The copy that the dead leader started stays in state started; its objects are orphaned, and no reader sees them."""
    with TieredLab() as lab:
        in_mid_copy(lab)
        lab.simulation.kill("broker-1")
        lab.wait(10)
        assert copied_by(lab, "broker-1") == [0] and copied_by(lab, "broker-2") == [2, 4, 6], "finished copies are not repeated"
        all_is_well(lab, 2)
        lab.simulation.restart("broker-1")
        lab.wait(8)
        assert copied_by(lab, "broker-1") == [0], "a follower copies nothing"
        lab.simulation.kill("broker-2")
        lab.wait(6)
        all_is_well(lab, 1)
        begun = [(event.first_offset, event.segment_id) for event in lab.of(RemoteCopyStarted) if isinstance(event, RemoteCopyStarted)]
        assert [first for first, _ in begun] == [0, 2, 2, 4, 6] and len({segment_id for _, segment_id in begun}) == len(begun)


def test_leader_paused_during_a_copy_completes_it_and_no_record_is_read_twice() -> None:
    """It resumes, completes the copy, and learns of the new leader: two copies of one segment are in the store, one is read."""
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


def test_unclean_leader_deletes_segments_of_epochs_missing_from_its_log() -> None:
    """It was elected with an empty log: its epochs do not lead back to earlier copies, and retention would skip them
    for ever.

    Source: KIP-405, RLMExpirationTask.deleteLogSegmentsDueToLeaderEpochCacheTruncation.
    """
    with TieredLab(brokers=3) as lab:
        lab.create_topic(replicas=(1, 2), configs={"unclean.leader.election.enable": "true"})
        lab.simulation.kill("broker-2")
        lab.wait(4)
        for index in range(RECORDS):
            lab.produce(1, producer_id=index % 3)
        lab.wait(4)
        all_is_well(lab, 1)
        copied = {event.segment_id for event in lab.of(RemoteCopyFinished, "broker-1") if isinstance(event, RemoteCopyFinished)}
        lab.simulation.kill("broker-1")
        lab.wait(4)
        lab.simulation.restart("broker-2")
        lab.wait(6)
        replica = lab.hosted(2).replica
        assert (replica.is_leader, replica.log_start_offset, replica.log_end_offset) == (True, 0, 0), "it leads with an empty log"
        deleted = [event for event in lab.of(RemoteSegmentDeleted) if isinstance(event, RemoteSegmentDeleted)]
        assert {event.segment_id for event in deleted} == copied and len(copied) == SEGMENTS
        assert {event.reason for event in deleted} == {FORGOTTEN_EPOCHS}
        lab.sequences.clear()
        for index in range(RECORDS):
            lab.produce(2, producer_id=index % 3)
        lab.wait(4)
        all_is_well(lab, 2)
        lab.simulation.restart("broker-1")
        lab.wait(6)
        lab.simulation.kill("broker-2")
        lab.wait(6)
        all_is_well(lab, 1)


@pytest.mark.parametrize("is_tiered", [True, False], ids=["tiered", "deleted"])
@pytest.mark.parametrize(("ends", "continues"), [("kill", "restart"), ("pause", "resume")])
def test_follower_whose_log_starts_behind_the_divergence_restarts_its_log(ends: str, continues: str, is_tiered: bool) -> None:
    """An unclean leader's log differs from offset 0 on: a follower that has only later offsets must drop them, and
    replicate everything.

    Source: UnifiedLog.truncateTo, which restarts the log at an offset before its first segment.
    """
    kept = {} if is_tiered else {"remote.storage.enable": "false", "retention.bytes": "1"}
    with TieredLab(brokers=3) as lab:
        lab.create_topic(replicas=(1, 2), configs={"unclean.leader.election.enable": "true", **kept})
        lab.simulation.kill("broker-2")
        lab.wait(4)
        for _ in range(RECORDS):
            lab.produce(1)
        lab.wait(4)
        assert lab.hosted(1).replica.local_start_offset == RECORDS - 1, "whole segments were deleted, locally or entirely"
        getattr(lab.simulation, ends)("broker-1")
        lab.wait(4)
        lab.simulation.restart("broker-2")
        lab.wait(4)
        assert lab.hosted(2).replica.is_leader
        if not is_tiered:
            lab.alter(2, retention_bytes="-1")
        for _ in range(RECORDS):
            lab.produce(2)
        lab.wait(4)
        getattr(lab.simulation, continues)("broker-1")
        lab.wait(8)
        lab.simulation.kill("broker-1")
        lab.wait(4)
        lab.simulation.restart("broker-1")
        lab.wait(4)
        lab.simulation.kill("broker-2")
        lab.wait(6)
        replica = lab.hosted(1).replica
        assert (replica.is_leader, replica.log_start_offset, replica.log_end_offset) == (True, 0, RECORDS)
        assert [batch.base_offset for batch in lab.read_all(1)] == list(range(RECORDS))
