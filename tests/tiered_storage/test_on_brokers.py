"""Brokers copy closed segments to a remote store, keep the youngest, and serve all of them
(KIP-405).
"""

import asyncio

from kraftsim.server.events_connections import ConnectionOpened
from kraftsim.tiered_storage.events import (
    RebuiltFromRemote,
    RemoteCopyFailed,
    RemoteCopyFinished,
    RemoteSegmentDeleted,
)
from kraftsim.tiered_storage.rules_segments import TopicIdPartition
from kraftsim.world.simulated.objects import StoreFault
from protocol.errors import ErrorCode
from protocol.messages.k02_list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
)
from protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
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

COPY_SECONDS = 8


def offsets(batches: list[RecordBatch]) -> list[int]:
    """Return the first offset of each batch."""
    return [batch.base_offset for batch in batches]


def test_closed_segments_are_copied_and_read_from_the_store() -> None:
    """Local segments are deleted once copied; consumers see the whole log, followers are redirected
    behind the remote-only offsets.
    """
    with TieredHarness(brokers=1) as harness:
        harness.create_topic()
        for index in range(9):
            harness.produce(1, producer_id=index % 3)
        harness.wait(COPY_SECONDS)
        replica = harness.hosted(1).replica
        assert (
            replica.log_start_offset,
            replica.local_start_offset,
            replica.remote_end_offset,
        ) == (0, 8, 7)
        assert len([key for key in harness.store.contents if key.endswith(".log")]) == 4
        assert offsets(harness.read_all(1)) == list(range(9))
        assert [
            harness.list_offset(1, kind).offset
            for kind in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED_TIMESTAMP)
        ] == [0, 8, 7]
        row = harness.fetch(1, 0, replica_id=1)
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it is not a follower"
        written_ms = [batch.max_timestamp for batch in harness.read_all(1)]
        assert [harness.list_offset(1, each).offset for each in written_ms] == list(range(9))


def test_segment_events_that_are_published_at_once_share_a_connection() -> None:
    """Each used to close the connection that another one had just opened, again and again."""
    with TieredHarness(brokers=1) as harness:
        harness.create_topic()
        harness.wait(2)
        tiered = harness.broker(1).tiered
        assert tiered is not None
        owners = [
            TopicIdPartition(topic_id=bytes([number]) * 16, partition=0, topic="t")
            for number in range(4)
        ]
        opened_before = len(harness.of(ConnectionOpened, "broker-1"))

        async def publish() -> None:
            await asyncio.gather(*(tiered.metadata.publish(each, b"ignored") for each in owners))

        work = harness.simulation.spawn("broker-1", publish())
        harness.simulation.run_until(work, limit_s=5)
        opened = harness.of(ConnectionOpened, "broker-1")[opened_before:]
        assert len(opened) == 2, "one connection, seen from both ends"


def test_total_retention_deletes_remote_segments() -> None:
    """The log start offset advances, and earlier segments are deleted from the store."""
    with TieredHarness(brokers=1) as harness:
        harness.create_topic(configs={"local.retention.bytes": "0", "retention.bytes": "2000"})
        for _ in range(12):
            harness.produce(1)
        harness.wait(COPY_SECONDS)
        replica = harness.hosted(1).replica
        assert (
            replica.log_start_offset > 0
            and harness.list_offset(1, EARLIEST_TIMESTAMP).offset == replica.log_start_offset
        )
        gone = [
            event
            for event in harness.of(RemoteSegmentDeleted)
            if isinstance(event, RemoteSegmentDeleted)
        ]
        assert gone and {event.reason for event in gone} == {"retention.bytes"}
        assert offsets(harness.read_all(1, replica.log_start_offset))[0] == replica.log_start_offset
        assert harness.fetch(1, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_deleted_records_and_topics_leave_nothing_in_the_store() -> None:
    """DeleteRecords removes whole remote segments, DeleteTopics all of them."""
    with TieredHarness(brokers=1) as harness:
        harness.create_topic()
        for _ in range(9):
            harness.produce(1)
        harness.wait(COPY_SECONDS)
        wanted = DeleteRecordsTopic(
            name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=5)]
        )
        harness.ask(1, DeleteRecordsRequest(topics=[wanted], timeout_ms=5000))
        harness.wait(3)
        assert len([key for key in harness.store.contents if key.endswith(".log")]) == 2
        assert offsets(harness.read_all(1, 5)) == [5, 6, 7, 8]
        harness.ask(
            1, DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=5000), 6
        )
        harness.wait(4)
        assert harness.store.contents == {}


def test_follower_begins_behind_remote_only_offsets(figures: Figures) -> None:
    """It loads the leader epochs and the producer snapshot from the store, and can become leader
    afterwards.
    """
    with TieredHarness() as harness:
        harness.create_topic()
        for index in range(9):
            harness.produce(1, producer_id=index % 3)
        harness.wait(COPY_SECONDS)
        harness.set_replicas(1, 2)
        harness.wait(6)
        rebuilt = harness.of(RebuiltFromRemote, "broker-2")
        assert len(rebuilt) == 1
        leader, follower = harness.hosted(1), harness.hosted(2)
        assert follower.log.epochs.starts == leader.log.epochs.starts
        assert follower.replica.local_start_offset == 8 and follower.replica.log_start_offset == 0
        known = {
            each.producer_id: each.last_sequence
            for each in leader.replica.producer_state.entries.values()
        }
        assert {
            each.producer_id: each.last_sequence
            for each in follower.replica.producer_state.entries.values()
        } == known
        harness.simulation.kill("broker-1")
        harness.wait(5)
        assert harness.produce(2, producer_id=0, sequence=2) == (ErrorCode.NONE, 6), (
            "producer 0's last batch is recognised as a duplicate"
        )
        assert offsets(harness.read_all(2)) == list(range(9))
        assert harness.list_offset(2, LATEST_TIMESTAMP).offset == 9
    figures(producers_on_both=len(known))


def test_remotely_aborted_transactions_are_listed() -> None:
    """The transaction index is copied with its segment; records above the last stable offset are
    not copied.
    """
    with TieredHarness(brokers=1) as harness:
        harness.create_topic()
        harness.produce(1, producer_id=7, transactional=True)
        for _ in range(3):
            harness.produce(1)
        harness.wait(3)
        assert harness.store.contents == {}, "a transaction is open from the first offset on"
        topic = WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])
        marker = WritableTxnMarker(
            producer_id=7,
            producer_epoch=0,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=0,
        )
        harness.ask(1, WriteTxnMarkersRequest(markers=[marker]))
        for _ in range(4):
            harness.produce(1)
        harness.wait(COPY_SECONDS)
        assert harness.hosted(1).replica.local_start_offset > 4
        row = harness.fetch(1, 0, committed=True)
        assert [
            (each.producer_id, each.first_offset) for each in row.aborted_transactions or ()
        ] == [(7, 0)]
        assert (harness.fetch(1, 6, committed=True).aborted_transactions or []) == []


def test_failed_copy_is_deleted_and_retried() -> None:
    """The started event is followed by a deletion; no object of the attempt remains (since 3.9,
    KAFKA-17062).
    """
    with TieredHarness(brokers=1) as harness:
        harness.create_topic()
        harness.wait(2)
        heal = harness.store.impair(StoreFault(record_effect=lambda: None, fails_at=".timeindex"))
        for _ in range(3):
            harness.produce(1)
        harness.wait(4)
        assert harness.of(RemoteCopyFailed) and not harness.of(RemoteCopyFinished)
        heal()
        harness.wait(4)
        assert len(harness.of(RemoteCopyFinished)) == 1 and offsets(harness.read_all(1)) == [
            0,
            1,
            2,
        ]
        assert len([key for key in harness.store.contents if key.endswith(".log")]) == 1


def test_slow_store_does_not_delay_fetches_beyond_their_wait() -> None:
    """remote.fetch.max.wait.ms; the response is empty, and the next one may have records
    (KIP-1018).
    """
    with TieredHarness(brokers=1) as harness:
        harness.create_topic()
        for _ in range(9):
            harness.produce(1)
        harness.wait(COPY_SECONDS)
        heal = harness.store.impair(StoreFault(record_effect=lambda: None, delay_seconds=2))
        began_ns = harness.simulation.now_ns
        row = harness.fetch(1, 0)
        assert (
            row.error_code == 0
            and not row.records
            and (harness.simulation.now_ns - began_ns) / 1e9 < 1
        )
        heal()
        assert harness.fetch(1, 0).records


def test_topic_with_disabled_tiering_begins_at_its_local_start() -> None:
    """remote.storage.enable=false requires remote.log.delete.on.disable=true (KIP-950)."""
    with TieredHarness(brokers=1) as harness:
        harness.create_topic()
        for _ in range(9):
            harness.produce(1)
        harness.wait(COPY_SECONDS)
        assert harness.alter(1, remote_storage_enable="false") is ErrorCode.INVALID_CONFIG
        assert (
            harness.alter(1, remote_storage_enable="false", remote_log_delete_on_disable="true")
            is ErrorCode.NONE
        )
        harness.wait(4)
        assert harness.store.contents == {} and harness.hosted(1).replica.log_start_offset == 8


def test_restarted_broker_knows_the_log_start_offset() -> None:
    """log-start-offset-checkpoint has the start of the whole log; the local log begins at its first
    file.
    """
    with TieredHarness(brokers=1) as harness:
        harness.create_topic()
        for index in range(9):
            harness.produce(1, producer_id=index % 3)
        harness.wait(COPY_SECONDS)
        harness.restart_without_snapshots(1, before=0)
        replica = harness.hosted(1).replica
        assert (replica.log_start_offset, replica.local_start_offset) == (0, 8)
        assert offsets(harness.read_all(1)) == list(range(9))
        assert sorted(replica.producer_state.entries) == [0, 1, 2]
