"""A leader loses leadership during a copy: the next leader repeats the copy, and every record is
readable, local or remote.

Source: KIP-405 (leader fencing, dangling segments), RemoteLogManager.RLMCopyTask; not compared with
Kafka, which cannot be stopped at this point.
"""

import pytest

from kraftsim.tiered_storage.events import (
    RemoteCopyFinished,
    RemoteCopyStarted,
    RemoteSegmentDeleted,
)
from kraftsim.tiered_storage.rules_copying import UNREFERENCED_EPOCHS
from kraftsim.world.simulated.objects import StoreFault
from tests.tiered_storage.harness import TieredHarness

RECORDS = 9
SEGMENTS = 4
SLOW_SECONDS = 1.5
PAUSE_SECONDS = 3.5


def in_mid_copy(harness: TieredHarness) -> None:
    """Write four closed segments that both brokers have, and stop during the copy of the second
    one.
    """
    harness.create_topic(replicas=(1, 2))
    slow = harness.store.impair(StoreFault(record_effect=lambda: None, delay_seconds=SLOW_SECONDS))
    for index in range(RECORDS):
        harness.produce(1, producer_id=index % 3)
    for _ in range(200):
        started, finished = (
            harness.of(RemoteCopyStarted, "broker-1"),
            harness.of(RemoteCopyFinished, "broker-1"),
        )
        if (len(started), len(finished)) == (2, 1):
            break
        harness.wait(0.1)
    assert (len(started), len(finished)) == (2, 1), "the second copy is in progress"
    slow()


def copied_by(harness: TieredHarness, node: str) -> list[int]:
    """Return the base offsets of the segments that a broker reports as copied."""
    return [
        event.first_offset
        for event in harness.of(RemoteCopyFinished, node)
        if isinstance(event, RemoteCopyFinished)
    ]


def all_is_well(harness: TieredHarness, leader: int) -> None:
    """The leader has four segments in the store, one local record, and returns every record to
    consumers.
    """
    replica = harness.hosted(leader).replica
    assert (replica.is_leader, replica.remote_end_offset, replica.local_start_offset) == (
        True,
        RECORDS - 2,
        RECORDS - 1,
    )
    assert [batch.base_offset for batch in harness.read_all(leader)] == list(range(RECORDS))
    # union-attr: the harness enables tiering
    catalogue = harness.broker(leader).tiered.catalogue_of(harness.hosted(leader))  # type: ignore[union-attr]
    assert catalogue is not None
    assert sorted({each.start_offset for each in catalogue.segments}) == [0, 2, 4, 6]


def test_copy_of_a_dead_leader_is_repeated_by_the_next_one() -> None:
    """The copy that the dead leader started stays in state started; its objects are orphaned, and
    no reader sees them.
    """
    with TieredHarness() as harness:
        in_mid_copy(harness)
        harness.simulation.kill("broker-1")
        harness.wait(10)
        assert copied_by(harness, "broker-1") == [0] and copied_by(harness, "broker-2") == [
            2,
            4,
            6,
        ], "finished copies are not repeated"
        all_is_well(harness, 2)
        harness.simulation.restart("broker-1")
        harness.wait(8)
        assert copied_by(harness, "broker-1") == [0], "a follower copies nothing"
        harness.simulation.kill("broker-2")
        harness.wait(6)
        all_is_well(harness, 1)
        begun = [
            (event.first_offset, event.segment_id)
            for event in harness.of(RemoteCopyStarted)
            if isinstance(event, RemoteCopyStarted)
        ]
        assert [first for first, _ in begun] == [0, 2, 2, 4, 6] and len(
            {segment_id for _, segment_id in begun}
        ) == len(begun)


def test_leader_paused_during_a_copy_completes_it_and_no_record_is_read_twice() -> None:
    """It resumes, completes the copy, and learns of the new leader: two copies of one segment are
    in the store, one is read.
    """
    with TieredHarness() as harness:
        in_mid_copy(harness)
        harness.simulation.pause("broker-1")
        harness.wait(PAUSE_SECONDS)
        assert harness.hosted(2).replica.is_leader
        harness.simulation.resume("broker-1")
        harness.wait(10)
        assert (
            set(copied_by(harness, "broker-1")) <= {0, 2}
            and copied_by(harness, "broker-2")[-1] == 6
        )
        all_is_well(harness, 2)
        assert (
            not harness.hosted(1).replica.is_leader
            and harness.hosted(1).replica.log_end_offset == RECORDS
        )


def test_unclean_leader_deletes_segments_of_epochs_missing_from_its_log() -> None:
    """It was elected with an empty log: its epochs do not lead back to earlier copies, and
    retention would skip them for ever.

    Source: KIP-405, RLMExpirationTask.deleteLogSegmentsDueToLeaderEpochCacheTruncation.
    """
    with TieredHarness(brokers=3) as harness:
        harness.create_topic(replicas=(1, 2), configs={"unclean.leader.election.enable": "true"})
        harness.simulation.kill("broker-2")
        harness.wait(4)
        for index in range(RECORDS):
            harness.produce(1, producer_id=index % 3)
        harness.wait(4)
        all_is_well(harness, 1)
        copied = {
            event.segment_id
            for event in harness.of(RemoteCopyFinished, "broker-1")
            if isinstance(event, RemoteCopyFinished)
        }
        harness.simulation.kill("broker-1")
        harness.wait(4)
        harness.simulation.restart("broker-2")
        harness.wait(6)
        replica = harness.hosted(2).replica
        assert (replica.is_leader, replica.log_start_offset, replica.log_end_offset) == (
            True,
            0,
            0,
        ), "it leads with an empty log"
        deleted = [
            event
            for event in harness.of(RemoteSegmentDeleted)
            if isinstance(event, RemoteSegmentDeleted)
        ]
        assert {event.segment_id for event in deleted} == copied and len(copied) == SEGMENTS
        assert {event.reason for event in deleted} == {UNREFERENCED_EPOCHS}
        harness.sequences.clear()
        for index in range(RECORDS):
            harness.produce(2, producer_id=index % 3)
        harness.wait(4)
        all_is_well(harness, 2)
        harness.simulation.restart("broker-1")
        harness.wait(6)
        harness.simulation.kill("broker-2")
        harness.wait(6)
        all_is_well(harness, 1)


@pytest.mark.parametrize("is_tiered", [True, False], ids=["tiered", "deleted"])
@pytest.mark.parametrize(("ends", "continues"), [("kill", "restart"), ("pause", "resume")])
def test_follower_whose_log_starts_behind_the_divergence_restarts_its_log(
    ends: str, continues: str, is_tiered: bool
) -> None:
    """An unclean leader's log differs from offset 0 on: a follower that has only later offsets must
    drop them, and replicate everything.

    Source: UnifiedLog.truncateTo, which restarts the log at an offset before its first segment.
    """
    kept = {} if is_tiered else {"remote.storage.enable": "false", "retention.bytes": "1"}
    with TieredHarness(brokers=3) as harness:
        harness.create_topic(
            replicas=(1, 2), configs={"unclean.leader.election.enable": "true", **kept}
        )
        harness.simulation.kill("broker-2")
        harness.wait(4)
        for _ in range(RECORDS):
            harness.produce(1)
        harness.wait(4)
        assert harness.hosted(1).replica.local_start_offset == RECORDS - 1, (
            "whole segments were deleted, locally or entirely"
        )
        getattr(harness.simulation, ends)("broker-1")
        harness.wait(4)
        harness.simulation.restart("broker-2")
        harness.wait(4)
        assert harness.hosted(2).replica.is_leader
        if not is_tiered:
            harness.alter(2, retention_bytes="-1")
        for _ in range(RECORDS):
            harness.produce(2)
        harness.wait(4)
        getattr(harness.simulation, continues)("broker-1")
        harness.wait(8)
        harness.simulation.kill("broker-1")
        harness.wait(4)
        harness.simulation.restart("broker-1")
        harness.wait(4)
        harness.simulation.kill("broker-2")
        harness.wait(6)
        replica = harness.hosted(1).replica
        assert (replica.is_leader, replica.log_start_offset, replica.log_end_offset) == (
            True,
            0,
            RECORDS,
        )
        assert [batch.base_offset for batch in harness.read_all(1)] == list(range(RECORDS))
