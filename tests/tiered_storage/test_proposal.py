"""The proposal of empty producer snapshots, statement by statement, on brokers: the boundary after
an upgrade, and the effect of each remedy.

Producers 0 to 3 write two records each, one after the other, so that each closed segment belongs to
one of them; the snapshots behind the first two are missing, as after an upgrade from before 2.8.
Source: KAFKA-15195, KAFKA-16209, KIP-405.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from kraftsim.partitions.log import PartitionLog
from kraftsim.tiered_storage.events import (
    RebuiltFromRemote,
    RemoteCopyFailed,
    RemoteCopyFinished,
    RemoteCopyStarted,
)
from kraftsim.tiered_storage.rules_copying import EmptyAtArchive, SnapshotRemedy
from protocol.errors import ErrorCode
from protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.records.batches import RecordBatch
from tests.tiered_storage.harness import TOPIC, TieredHarness
from tools.claims.recording import Figures

PRODUCERS = (0, 1, 2, 3)
HOUR_MS = 3_600_000
UNTIERED = {"remote.storage.enable": "false", "local.retention.bytes": "2000"}


def harness_with(remedy: str, **settings: str) -> TieredHarness:
    return TieredHarness(
        settings={
            "kraftsim.tiering.remedy": remedy,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def run_to_boundary(
    harness: TieredHarness, *, ages_ms: tuple[int, ...] = (0, 0, 0, 0), **configs: str
) -> None:
    """Write, upgrade, and enable tiering immediately."""
    harness.create_topic(
        configs={**UNTIERED, **{name.replace("_", "."): value for name, value in configs.items()}}
    )
    now_ms = harness.broker(1).world.clock.wall_ms()
    for index in range(8):
        harness.produce(1, producer_id=index // 2, timestamp_ms=now_ms - ages_ms[index // 2])
    harness.produce(1, producer_id=3)
    harness.restart_without_snapshots(1, before=5)
    harness.alter(1, remote_storage_enable="true")
    harness.wait(6)


def known(harness: TieredHarness, node_id: int) -> tuple[int, ...]:
    return tuple(sorted(harness.hosted(node_id).replica.producer_state.entries))


def follow(harness: TieredHarness) -> None:
    """Add broker 2 as a follower with an empty log."""
    harness.set_replicas(1, 2)
    harness.wait(8)


def rebuilt(harness: TieredHarness) -> list[RebuiltFromRemote]:
    return [
        event
        for event in harness.of(RebuiltFromRemote, "broker-2")
        if isinstance(event, RebuiltFromRemote)
    ]


def repeats(harness: TieredHarness, node_id: int = 2) -> tuple[ErrorCode, int]:
    """Let producer 0 retry its last record, which is at offset 1."""
    return harness.produce(node_id, producer_id=0, sequence=1)


def copied_files(harness: TieredHarness, ending: str) -> list[str]:
    return sorted(key for key in harness.store.contents if key.endswith(ending))


def test_leader_and_follower_step_by_step(figures: Figures) -> None:
    """TS-20 to TS-25: the producers that the leader knows, those in its four snapshots, those that
    the follower knows, and the result of the retried record.
    """
    with harness_with("empty-at-archive") as harness:
        run_to_boundary(harness)
        assert known(harness, 1) == PRODUCERS
        copied = [
            event
            for event in harness.of(RemoteCopyFinished)
            if isinstance(event, RemoteCopyFinished)
        ]
        assert [event.producer_count for event in copied] == [0, 0, 3, 4]
        assert sorted(
            len(harness.store.contents[key]) for key in copied_files(harness, ".snapshot")
        )[:2] == [10, 10]
        assert harness.hosted(1).replica.local_start_offset == 4
        follow(harness)
        follower_knew, begins_at = known(harness, 2), harness.hosted(2).replica.local_start_offset
        assert (follower_knew, begins_at) == ((2, 3), 4)
        harness.simulation.kill("broker-1")
        harness.wait(5)
        error, offset = repeats(harness)
        assert (error, offset) == (ErrorCode.NONE, 9)
        values = [batch.producer_id for batch in harness.read_all(2)]
        assert values.count(0) == 3, "two records of producer 0, and a duplicate of one"
        figures(
            leader_knows=len(PRODUCERS),
            segments_copied=len(copied),
            producers_in_snapshots=[event.producer_count for event in copied],
            empty_bytes=sorted(
                len(harness.store.contents[key]) for key in copied_files(harness, ".snapshot")
            )[0],
            follower_knows=list(follower_knew),
            follower_begins_at=begins_at,
            repeated_at=offset,
            copies=values.count(0) - 1,
        )


@pytest.mark.parametrize(
    ("remedy", "announced"), [("shipped", True), ("shipped-before-3.7.1", False)]
)
def test_nothing_is_copied_and_nothing_expires(
    remedy: str, announced: bool, figures: Figures
) -> None:
    """TS-02: since 3.7.1 each attempt also leaves a segment in state started (KAFKA-16209);
    uncopied records stay local, whatever their age.
    """
    with harness_with(remedy) as harness:
        run_to_boundary(harness)
        harness.alter(1, retention_ms="2000")
        harness.wait(8)
        name = remedy.replace("-", "_").replace(".", "_")
        failed = [
            event for event in harness.of(RemoteCopyFailed) if isinstance(event, RemoteCopyFailed)
        ]
        started = [
            event for event in harness.of(RemoteCopyStarted) if isinstance(event, RemoteCopyStarted)
        ]
        assert {event.first_offset for event in failed} == {0} and len(failed) > 20, (
            "every half second, and always the oldest"
        )
        assert harness.store.contents == {} and len({event.segment_id for event in started}) == (
            len(failed) if announced else 0
        )
        assert harness.hosted(1).log.base_offsets == [0, 2, 4, 6, 8]
        figures(
            **{
                f"failures_{name}": len(failed),
                f"segment_ids_{name}": len({event.segment_id for event in started}),
            },
            in_the_store=len(harness.store.contents),
            segments_kept=len(harness.hosted(1).log.base_offsets),
        )


def test_held_uploads_may_never_start(figures: Figures) -> None:
    """TS-29: as shipped, uncopied segments never expire, so no wait is long enough; DeleteRecords
    ends it.
    """
    with harness_with("hold-uploads") as harness:
        run_to_boundary(harness)
        harness.alter(1, retention_ms="2000")
        harness.wait(8)
        copied_before = len(harness.store.contents)
        assert copied_before == 0 and harness.of(RemoteCopyFailed) == [], "without an error"
        wanted = DeleteRecordsTopic(
            name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=4)]
        )
        harness.alter(1, retention_ms="-1")
        harness.ask(1, DeleteRecordsRequest(topics=[wanted], timeout_ms=5000))
        harness.wait(3)
        assert len(copied_files(harness, ".log")) == 2
        figures(
            copied_in_the_wait=copied_before,
            copied_after_deletion=len(copied_files(harness, ".log")),
        )


def test_fallback_broker_checks_only_its_own_disk(figures: Figures) -> None:
    """TS-30: the leader has segments without snapshots, the broker that receives the request has
    all of them.
    """
    with harness_with("refuse-topics") as harness:
        harness.create_topic(replicas=(1, 2), configs=UNTIERED)
        for index in range(9):
            harness.produce(1, producer_id=index % 3)
        harness.restart_without_snapshots(1, before=5)
        harness.wait(3)
        leader_error, other_error = (
            harness.alter(broker_id, remote_storage_enable="true") for broker_id in (1, 2)
        )
        assert (leader_error, other_error) == (ErrorCode.INVALID_CONFIG, ErrorCode.NONE)
        if not harness.hosted(1).replica.is_leader:
            harness.simulation.kill("broker-2")
        harness.wait(8)
        assert harness.hosted(1).replica.is_leader and harness.of(RemoteCopyFailed, "broker-1")
    figures(
        leader_error=int(leader_error),
        other_error=int(other_error),
        failures_afterwards=bool(harness.of(RemoteCopyFailed, "broker-1")),
    )


def test_replay_of_younger_segments_gives_the_unexpired_producers(figures: Figures) -> None:
    """TS-14 and TS-31: of two segments one is read, with the same producers as a replay of
    everything leaves after expiry.
    """
    read = {}
    for remedy in ("replay-younger", "no-snapshots"):
        with harness_with(remedy) as harness:
            run_to_boundary(harness, ages_ms=(25 * HOUR_MS, 0, 0, 0))
            follow(harness)
            (event,) = rebuilt(harness)
            read[remedy] = event.replayed_bytes
            known_producers = known(harness, 2)
            assert known_producers == (1, 2, 3)
    assert read["no-snapshots"] == 2 * read["replay-younger"] > 0
    figures(
        bytes_young=read["replay-younger"],
        bytes_all=read["no-snapshots"],
        known=list(known_producers),
    )


def test_out_of_order_timestamps_end_a_replay_too_early(figures: Figures) -> None:
    """TS-13: it stops at the first expired segment, though an earlier one is younger: an unexpired
    producer is forgotten.
    """
    with harness_with("replay-younger") as harness:
        run_to_boundary(harness, ages_ms=(0, 25 * HOUR_MS, 0, 0))
        assert known(harness, 1) == (0, 2, 3)
        follow(harness)
        assert known(harness, 2) == (2, 3)
        figures(leader_knew=list(known(harness, 1)), follower_knew=list(known(harness, 2)))


def test_proposal_changes_one_decision(figures: Figures) -> None:
    """TS-16: what happens if a snapshot is missing when a segment is copied; the follower's part is
    as shipped.
    """
    names = [name for name in vars(SnapshotRemedy) if not name.startswith("__")]
    assert [
        name for name in names if getattr(EmptyAtArchive, name) != getattr(SnapshotRemedy, name)
    ] == [
        "name",
        "at_archive",
        "promises_equal_state",
    ]
    figures(
        decisions=len([name for name in names if name not in ("name", "promises_equal_state")]),
        changed=[
            name
            for name in names
            if getattr(EmptyAtArchive, name) != getattr(SnapshotRemedy, name)
            and name.startswith("at_")
        ],
    )


@pytest.mark.parametrize("transactional", [False, True])
def test_producers_idle_since_the_boundary_count_as_expired(
    transactional: bool, figures: Figures
) -> None:
    """TS-17: idle producers and ended transactions; the epoch that fenced a zombie is forgotten
    with them.
    """
    with harness_with("empty-at-archive") as harness:
        harness.create_topic(configs=UNTIERED)
        for _ in range(2):
            harness.produce(1, producer_id=7, transactional=transactional)
        if transactional:
            end_transaction(harness, 7)
        for index in range(8):
            harness.produce(1, producer_id=index % 2)
        harness.restart_without_snapshots(1, before=harness.hosted(1).log.base_offsets[-2] + 1)
        harness.alter(1, remote_storage_enable="true")
        harness.wait(6)
        assert known(harness, 1) == (0, 1, 7)
        follow(harness)
        assert (known(harness, 2), len(rebuilt(harness))) == ((0, 1), 1)
        figures(leader_knew=list(known(harness, 1)), follower_knew=list(known(harness, 2)))


def test_open_transaction_is_never_behind_a_boundary(figures: Figures) -> None:
    """TS-17: undecided records are not copied, so that nothing of it is forgotten."""
    with harness_with("empty-at-archive") as harness:
        harness.create_topic(configs=UNTIERED)
        harness.produce(1, producer_id=7, transactional=True)
        for index in range(8):
            harness.produce(1, producer_id=index % 2)
        harness.restart_without_snapshots(1, before=5)
        harness.alter(1, remote_storage_enable="true")
        harness.wait(6)
        assert harness.of(RemoteCopyFinished) == []
        figures(copied_with_an_open_transaction=len(harness.of(RemoteCopyFinished)))
        follow(harness)
        assert (known(harness, 2), rebuilt(harness)) == ((0, 1, 7), [])


def end_transaction(harness: TieredHarness, producer_id: int) -> None:
    topic = WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=0,
        transaction_result=True,
        topics=[topic],
        coordinator_epoch=0,
    )
    harness.ask(1, WriteTxnMarkersRequest(markers=[marker]))


@dataclass(frozen=True)
class Later:
    """The number of segments rolled since the boundary, and the producers that a follower knows."""

    rolls: int
    known: tuple[int, ...]


@pytest.mark.parametrize(
    "later",
    [Later(0, (2, 3)), Later(1, (0, 1, 2, 3)), Later(3, (0, 1, 2, 3))],
    ids=lambda later: f"{later.rolls} rolls",
)
def test_risk_ends_when_a_segment_with_a_true_snapshot_is_deleted_locally(
    later: Later, figures: Figures
) -> None:
    """TS-19: one roll after the boundary the newest deleted segment has a snapshot with all
    producers.
    """
    with harness_with("empty-at-archive") as harness:
        run_to_boundary(harness)
        for _ in range(2 * later.rolls):
            harness.produce(1, producer_id=3)
        harness.wait(6)
        follow(harness)
        assert known(harness, 2) == later.known
        figures(**{f"known_after_{later.rolls}_rolls": len(known(harness, 2))})


@pytest.mark.parametrize(
    ("remedy", "begins"), [("empty-on-read", True), ("empty-at-archive", False), ("shipped", False)]
)
def test_vanished_snapshot_is_detected_unless_it_is_created_on_read(
    remedy: str, begins: bool, figures: Figures
) -> None:
    """TS-32: after that it is unknown whether an upgrade, a plugin or a manual deletion was the
    cause.
    """
    with harness_with(remedy) as harness:
        harness.create_topic()
        for index in range(9):
            harness.produce(1, producer_id=index % 3)
        harness.wait(6)
        writers = len(known(harness, 1))
        for key in copied_files(harness, ".snapshot"):
            del harness.store.contents[key]
        follow(harness)
        assert bool(rebuilt(harness)) is begins
        assert known(harness, 2) == ((2,) if begins else ())
        figures(
            producers=writers,
            **{
                f"begins_{remedy}".replace("-", "_"): bool(rebuilt(harness)),
                f"known_{remedy}".replace("-", "_"): len(known(harness, 2)),
            },
        )


def test_clean_leadership_move_is_enough_for_a_duplicate(figures: Figures) -> None:
    """TS-18: the leader need not be lost."""
    with harness_with("empty-at-archive") as harness:
        run_to_boundary(harness)
        follow(harness)
        harness.set_replicas(2)
        harness.wait(5)
        error, repeats_at = repeats(harness)
        assert harness.hosted(2).replica.is_leader and (error, repeats_at) == (ErrorCode.NONE, 9)
        figures(repeated_at_after_a_move=repeats_at)


def test_rebuilding_the_right_snapshot_reads_the_whole_earlier_log(
    monkeypatch: pytest.MonkeyPatch, figures: Figures
) -> None:
    """TS-28: for each segment without one the log is read from its start, so that k of them cost
    k(k+1)/2; the leader's older batches per producer are lost.
    """
    read: list[tuple[int, int | None]] = []
    replay = PartitionLog.replay

    def emitted(
        log: PartitionLog,
        on_batch: Callable[[RecordBatch], object],
        *,
        first_offset: int = 0,
        end_offset: int | None = None,
    ) -> None:
        read.append((first_offset, end_offset))
        replay(log, on_batch, first_offset=first_offset, end_offset=end_offset)

    monkeypatch.setattr(PartitionLog, "replay", emitted)
    with harness_with("replay-before-upload") as harness:
        run_to_boundary(harness)
        assert [each for each in read if each in ((0, 2), (0, 4))] == [(0, 2), (0, 4)]
        copied = [
            event
            for event in harness.of(RemoteCopyFinished)
            if isinstance(event, RemoteCopyFinished)
        ]
        assert [event.producer_count for event in copied] == [1, 2, 3, 4]
        figures(
            read_from_the_beginning=[list(each) for each in read if each in ((0, 2), (0, 4))],
            right_producers=[event.producer_count for event in copied],
        )
