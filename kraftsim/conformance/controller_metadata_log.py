"""Fetch (1) on the controller listener: the metadata log, as brokers read it.

Source: KIP-595; KafkaRaftClient.handleFetchRequest; FetchRequest.json.
"""

import time

from kraftsim.conformance.emulated_broker import cluster_id_of, throw_away_broker
from kraftsim.conformance.expect import Inapplicable, Unmet, expect, expect_equal, expect_error
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from protocol.records.batches import split_batches
from protocol.uuids import METADATA_TOPIC_ID

REQUIREMENTS = Requirements("controller", 4, "The metadata log")
HANDLE = "KafkaRaftClient.handleFetchRequest"
REPLICA_STATE_SINCE = 15
TOPIC_IDS_SINCE = 13
ENDPOINTS_SINCE = 17
FAR_EPOCH = 1_000_000_000
FAR_OFFSET = 1 << 40
READ_BYTES = 1 << 20
WAIT_MS = 400
SLACK_SECONDS = 0.05
UNKNOWN_ID = -1


class MetadataReader:
    """The id of an observer: it may fetch, and does not count for the quorum."""

    def __init__(self, target: Target, peer: Peer, version: int | None = None) -> None:
        self._peer = peer
        self.version = (
            target.newest(ApiKey.FETCH, address=target.controller_address())
            if version is None
            else version
        )
        if self.version < TOPIC_IDS_SINCE:
            raise Unmet("Fetch is not offered in a version that knows topic ids")
        self.leader_id, self.leader_epoch = self._leader()

    def request(
        self,
        offset: int = 0,
        last_epoch: int = 0,
        leader_epoch: int | None = None,
        wait_ms: int = 0,
    ) -> FetchRequest:
        """Return a Fetch request from an offset, with the last epoch as that of the preceding
        record.
        """
        row = FetchPartition(
            partition=0,
            current_leader_epoch=self.leader_epoch if leader_epoch is None else leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            partition_max_bytes=READ_BYTES,
        )
        asked = FetchRequest(
            max_wait_ms=wait_ms,
            max_bytes=READ_BYTES,
            topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[row])],
        )
        if self.version >= REPLICA_STATE_SINCE:
            asked.replica_state = ReplicaState(replica_id=UNKNOWN_ID, replica_epoch=UNKNOWN_ID)
        return asked

    def ask(self, asked: FetchRequest) -> FetchResponse:
        """Send a request and return the whole response."""
        return self._peer.ask(asked, self.version, FetchResponse)

    def partition(self, asked: FetchRequest) -> PartitionData:
        """Send a request and return the row of the one partition."""
        return partition_of(self.ask(asked))

    def end(self) -> tuple[int, int]:
        """Return the end of the log and the epoch of its last record, with a fetch far beyond the
        end.
        """
        found = self.partition(self.request(FAR_OFFSET, self.leader_epoch)).diverging_epoch
        if found.end_offset < 0:
            raise Unmet("a fetch far beyond the end of the log returns no diverging epoch")
        return found.end_offset, found.epoch

    def _leader(self) -> tuple[int, int]:
        self.leader_epoch = FAR_EPOCH
        found = self.partition(self.request()).current_leader
        if found.leader_id < 0:
            raise Inapplicable("the controller knows no leader of the quorum")
        return found.leader_id, found.leader_epoch


def partition_of(answer: FetchResponse) -> PartitionData:
    """Return the row of the one partition of a response. Raises Unmet if there are others."""
    expect_error(answer.error_code, ErrorCode.NONE, "the top-level error")
    if len(answer.responses) != 1 or len(answer.responses[0].partitions) != 1:
        raise Unmet("a response must contain one partition", "1", repr(answer.responses))
    return answer.responses[0].partitions[0]


@REQUIREMENTS.that(
    1,
    "a leader epoch above the leader's returns UNKNOWN_LEADER_EPOCH, one below it "
    "FENCED_LEADER_EPOCH",
    source=HANDLE,
)
def other_epochs(target: Target) -> None:
    with target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        ahead = reader.partition(reader.request(leader_epoch=reader.leader_epoch + 1))
        expect_error(ahead.error_code, ErrorCode.UNKNOWN_LEADER_EPOCH, "an epoch ahead")
        behind = reader.partition(reader.request(leader_epoch=reader.leader_epoch - 1))
        expect_error(behind.error_code, ErrorCode.FENCED_LEADER_EPOCH, "an epoch behind")


@REQUIREMENTS.that(2, "every response contains the leader and its epoch", source=HANDLE)
def names_the_leader(target: Target) -> None:
    with target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        for what, asked in {
            "records": reader.request(),
            "an epoch behind": reader.request(leader_epoch=reader.leader_epoch - 1),
        }.items():
            leader = reader.partition(asked).current_leader
            expect_equal(
                (leader.leader_id, leader.leader_epoch),
                (reader.leader_id, reader.leader_epoch),
                f"leader and epoch, asked for {what}",
            )


@REQUIREMENTS.that(
    3,
    "since version 17 the response contains the leader's endpoint",
    source="KIP-853; FetchResponse.json",
    since="3.9",
)
def names_the_endpoint(target: Target) -> None:
    with target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        expect(
            reader.version >= ENDPOINTS_SINCE,
            f"the controller offers Fetch up to version {reader.version}",
        )
        answer = reader.ask(reader.request())
        expect_equal(
            [row.node_id for row in answer.node_endpoints],
            [reader.leader_id],
            "nodes with endpoints",
        )
        expect(answer.node_endpoints[0].port > 0, "the leader has no port")


@REQUIREMENTS.that(
    4,
    "the log can be read from its start in whole batches, in every version with topic ids",
    source="KIP-595; MemoryRecords",
)
def reads_batches(target: Target) -> None:
    for version in target.versions(
        ApiKey.FETCH, since=TOPIC_IDS_SINCE, address=target.controller_address()
    ):
        with target.controller_peer() as peer:
            reader = MetadataReader(target, peer, version)
            data = reader.partition(reader.request())
        expect_error(data.error_code, ErrorCode.NONE, f"version {version}")
        if data.snapshot_id.end_offset >= 0:
            raise Inapplicable("the beginning of the log is in a snapshot")
        batches = list(split_batches(data.records or b""))
        expect(bool(batches), f"version {version}: no batch at the beginning of the log")
        expect(
            all(batch.crc_is_valid() for batch in batches),
            f"version {version}: a batch with a wrong checksum",
        )
        offsets = [(batch.base_offset, batch.next_offset) for batch in batches]
        expect_equal(
            [first for first, _ in offsets[1:]],
            [end for _, end in offsets[:-1]],
            f"version {version}: where batches begin",
        )
        expect_equal(offsets[0][0], 0, f"version {version}: the first offset")


@REQUIREMENTS.that(
    5, "the log begins with a LeaderChange control record", source="KIP-595: LeaderChangeMessage"
)
def begins_with_a_leader_change(target: Target) -> None:
    with target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        data = reader.partition(reader.request())
    if data.snapshot_id.end_offset >= 0:
        raise Inapplicable("the beginning of the log is in a snapshot")
    batches = list(split_batches(data.records or b""))
    expect(bool(batches), "no batch at the beginning of the log")
    first = batches[0]
    expect(first.is_control, "the first batch is no control batch")
    expect(
        first.partition_leader_epoch >= 1,
        f"the first batch is of epoch {first.partition_leader_epoch}",
    )


@REQUIREMENTS.that(
    6, "the response contains the high watermark and the log start offset", source=HANDLE
)
def returns_offsets(target: Target) -> None:
    with target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        data = reader.partition(reader.request())
        end = reader.end()[0]
    expect(
        0 < data.high_watermark <= end,
        f"a high watermark of {data.high_watermark} in a log that ends at {end}",
    )
    expect(
        0 <= data.log_start_offset <= data.high_watermark, f"a beginning of {data.log_start_offset}"
    )


@REQUIREMENTS.that(
    7,
    "a fetch beyond the end of the log returns the last epoch and its end offset as the "
    "diverging epoch",
    source="KIP-595: diverging epochs",
)
def beyond_the_end(target: Target) -> None:
    with target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        data = reader.partition(reader.request(FAR_OFFSET, reader.leader_epoch))
    expect_error(data.error_code, ErrorCode.NONE, "an offset beyond the end")
    expect_equal(data.diverging_epoch.epoch, reader.leader_epoch, "the diverging epoch")
    expect(
        0 < data.diverging_epoch.end_offset < FAR_OFFSET,
        f"the logs diverge at {data.diverging_epoch.end_offset}",
    )
    expect_equal(len(data.records or b""), 0, "bytes of records")


@REQUIREMENTS.that(
    8,
    "a fetch with a non-existent last epoch returns the diverging epoch or the snapshot to load",
    source="KIP-595; KIP-630",
)
def diverging(target: Target) -> None:
    with target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        data = reader.partition(reader.request(3, last_epoch=0))
    expect_error(data.error_code, ErrorCode.NONE, "a diverging log")
    expect_equal(len(data.records or b""), 0, "bytes of records")
    if data.snapshot_id.end_offset >= 0:
        expect_equal(
            data.snapshot_id.epoch >= 1, True, "whether the snapshot is of an epoch that was there"
        )
    else:
        expect_equal(
            (data.diverging_epoch.epoch, data.diverging_epoch.end_offset),
            (0, 0),
            "epoch and end of what both have",
        )


@REQUIREMENTS.that(
    9,
    "a negative offset, epoch or wait time, and a last epoch above the leader's are rejected "
    "with INVALID_REQUEST",
    source=HANDLE,
)
def senseless_questions(target: Target) -> None:
    with target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        rows = {
            "an offset of -1": reader.request(-1),
            "a last epoch of -1": reader.request(0, -1),
            "a last epoch above the leader's": reader.request(5, reader.leader_epoch + 1),
            "a wait of -1 ms": reader.request(wait_ms=-1),
            "a leader epoch of -1": reader.request(leader_epoch=-1),
        }
        for what, asked in rows.items():
            expect_error(reader.partition(asked).error_code, ErrorCode.INVALID_REQUEST, what)


@REQUIREMENTS.that(
    10,
    "another topic, another partition, two of them or none are rejected with INVALID_REQUEST",
    source="RaftUtil.hasValidTopicPartition",
)
def other_partitions(target: Target) -> None:
    with target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        rows = {
            what: reader.request()
            for what in ("another topic", "another partition", "two partitions", "no partition")
        }
        rows["another topic"].topics[0].topic_id = bytes(15) + b"\x07"
        rows["another partition"].topics[0].partitions[0].partition = 1
        rows["two partitions"].topics[0].partitions *= 2
        rows["no partition"].topics = []
        for what, asked in rows.items():
            expect_error(reader.ask(asked).error_code, ErrorCode.INVALID_REQUEST, what)


@REQUIREMENTS.that(
    11,
    "another cluster id is rejected with INCONSISTENT_CLUSTER_ID, and the cluster's own is "
    "accepted",
    source="KafkaRaftClient.hasValidClusterId",
)
def cluster_ids(target: Target) -> None:
    with target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        asked = reader.request()
        asked.cluster_id = "another-cluster-of-ours"
        expect_error(
            reader.ask(asked).error_code, ErrorCode.INCONSISTENT_CLUSTER_ID, "another cluster's id"
        )
        asked.cluster_id = cluster_id_of(target)
        expect_error(reader.partition(asked).error_code, ErrorCode.NONE, "the cluster's own id")


@REQUIREMENTS.that(
    12,
    "a fetch that waits at the end of the log completes as soon as a record is appended",
    source="KafkaRaftClient: the fetch purgatory",
)
def wakes_at_the_end(target: Target) -> None:
    with throw_away_broker(target) as broker, target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        end, epoch = reader.end()
        asked = reader.request(end, epoch, wait_ms=10_000)
        correlation_id = peer.send(asked, reader.version)
        started = time.monotonic()
        broker.registered()
        data = partition_of(peer.receive(asked, reader.version, correlation_id, FetchResponse))
        expect(time.monotonic() - started < 5.0, "the reader was not woken by a new record")
        expect_error(data.error_code, ErrorCode.NONE, "the answer to a reader at the end")
        expect_equal(data.diverging_epoch.end_offset, -1, "where the logs diverge")


@REQUIREMENTS.that(
    13,
    "the response contains at least one whole batch, whatever the limit of bytes",
    source="KIP-74; KIP-1219; KafkaMetadataLog.read",
)
def one_batch_at_least(target: Target) -> None:
    with target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        asked = reader.request()
        asked.max_bytes = asked.topics[0].partitions[0].partition_max_bytes = 1
        data = reader.partition(asked)
        if data.snapshot_id.end_offset >= 0:
            raise Inapplicable("the beginning of the log is in a snapshot")
        batches = list(split_batches(data.records or b""))
        expect(bool(batches), "no batch for a limit of one byte")
        expect_equal(
            sum(batch.size_bytes for batch in batches),
            len(data.records or b""),
            "bytes of whole batches",
        )
        expect_equal(batches[0].base_offset, 0, "the first offset")
