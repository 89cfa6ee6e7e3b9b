"""Fetch (1) on the controller's listener: the metadata log, as brokers read it.

Source: KIP-595; KafkaRaftClient.handleFetchRequest; FetchRequest.json.
"""

import time

from kraftsim.conformance.expect import Inapplicable, Unmet, expect, expect_equal, expect_error
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.throw_away import cluster_id_of, throw_away_broker
from protocol.api_keys import ApiKey
from protocol.batches import split_batches
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData, ReplicaState
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
NOBODY = -1


class MetadataReader:
    """An observer of the quorum that is nobody: it may read, and it counts for nothing."""

    def __init__(self, target: Target, peer: Peer, version: int | None = None) -> None:
        self._peer = peer
        self.version = target.newest(ApiKey.FETCH, address=target.controller_address()) if version is None else version
        if self.version < TOPIC_IDS_SINCE:
            raise Unmet("Fetch is not offered in a version that knows topic ids")
        self.leader_id, self.leader_epoch = self._leader()

    def request(self, offset: int = 0, last_epoch: int = 0, leader_epoch: int | None = None, wait_ms: int = 0) -> FetchRequest:
        """Return a question for the log from an offset on, whose record before is of the last epoch."""
        row = FetchPartition(
            partition=0,
            current_leader_epoch=self.leader_epoch if leader_epoch is None else leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            partition_max_bytes=READ_BYTES,
        )
        asked = FetchRequest(max_wait_ms=wait_ms, max_bytes=READ_BYTES, topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[row])])
        if self.version >= REPLICA_STATE_SINCE:
            asked.replica_state = ReplicaState(replica_id=NOBODY, replica_epoch=NOBODY)
        return asked

    def ask(self, asked: FetchRequest) -> FetchResponse:
        """Send a question and return the whole answer."""
        return self._peer.ask(asked, self.version, FetchResponse)

    def partition(self, asked: FetchRequest) -> PartitionData:
        """Send a question and return what is said of the one partition."""
        return partition_of(self.ask(asked))

    def end(self) -> tuple[int, int]:
        """Return the end of the log and the epoch of its last record, by asking for far more."""
        found = self.partition(self.request(FAR_OFFSET, self.leader_epoch)).diverging_epoch
        if found.end_offset < 0:
            raise Unmet("a reader far behind the end is not told where the log ends")
        return found.end_offset, found.epoch

    def _leader(self) -> tuple[int, int]:
        self.leader_epoch = FAR_EPOCH
        found = self.partition(self.request()).current_leader
        if found.leader_id < 0:
            raise Inapplicable("the controller knows no leader of the quorum")
        return found.leader_id, found.leader_epoch


def partition_of(answer: FetchResponse) -> PartitionData:
    """Return what an answer says of the one partition. Raises Unmet if it says something else."""
    expect_error(answer.error_code, ErrorCode.NONE, "the answer as a whole")
    if len(answer.responses) != 1 or len(answer.responses[0].partitions) != 1:
        raise Unmet("an answer must speak of one partition", "1", repr(answer.responses))
    return answer.responses[0].partitions[0]


@REQUIREMENTS.that(1, "a leader epoch ahead of the leader's is refused with error 75, one behind it with error 74", source=HANDLE)
def other_epochs(target: Target) -> None:
    with target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        ahead = reader.partition(reader.request(leader_epoch=reader.leader_epoch + 1))
        expect_error(ahead.error_code, ErrorCode.UNKNOWN_LEADER_EPOCH, "an epoch ahead")
        behind = reader.partition(reader.request(leader_epoch=reader.leader_epoch - 1))
        expect_error(behind.error_code, ErrorCode.FENCED_LEADER_EPOCH, "an epoch behind")


@REQUIREMENTS.that(2, "every answer names the leader and its epoch", source=HANDLE)
def names_the_leader(target: Target) -> None:
    with target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        for what, asked in {"records": reader.request(), "an epoch behind": reader.request(leader_epoch=reader.leader_epoch - 1)}.items():
            leader = reader.partition(asked).current_leader
            expect_equal((leader.leader_id, leader.leader_epoch), (reader.leader_id, reader.leader_epoch), f"leader and epoch, asked for {what}")


@REQUIREMENTS.that(3, "since version 17 the answer tells where the leader listens", source="KIP-853; FetchResponse.json", since="3.9")
def names_the_endpoint(target: Target) -> None:
    with target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        expect(reader.version >= ENDPOINTS_SINCE, f"the controller offers Fetch up to version {reader.version}")
        answer = reader.ask(reader.request())
        expect_equal([row.node_id for row in answer.node_endpoints], [reader.leader_id], "nodes whose addresses are told")
        expect(answer.node_endpoints[0].port > 0, "the leader has no port")


@REQUIREMENTS.that(4, "the log is read from its beginning in whole batches, in every version that knows topic ids", source="KIP-595; MemoryRecords")
def reads_batches(target: Target) -> None:
    for version in target.versions(ApiKey.FETCH, since=TOPIC_IDS_SINCE, address=target.controller_address()):
        with target.controller_peer() as peer:
            reader = MetadataReader(target, peer, version)
            data = reader.partition(reader.request())
        expect_error(data.error_code, ErrorCode.NONE, f"version {version}")
        if data.snapshot_id.end_offset >= 0:
            raise Inapplicable("the beginning of the log is in a snapshot")
        batches = list(split_batches(data.records or b""))
        expect(bool(batches), f"version {version}: no batch at the beginning of the log")
        expect(all(batch.crc_is_valid() for batch in batches), f"version {version}: a batch with a wrong checksum")
        offsets = [(batch.base_offset, batch.next_offset) for batch in batches]
        expect_equal([first for first, _ in offsets[1:]], [end for _, end in offsets[:-1]], f"version {version}: where batches begin")
        expect_equal(offsets[0][0], 0, f"version {version}: the first offset")


@REQUIREMENTS.that(5, "the log begins with a batch of the quorum itself: a leader change", source="KIP-595: LeaderChangeMessage")
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
    expect(first.partition_leader_epoch >= 1, f"the first batch is of epoch {first.partition_leader_epoch}")


@REQUIREMENTS.that(6, "the answer tells the high watermark and where the log begins", source=HANDLE)
def tells_the_marks(target: Target) -> None:
    with target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        data = reader.partition(reader.request())
        end = reader.end()[0]
    expect(0 < data.high_watermark <= end, f"a high watermark of {data.high_watermark} in a log that ends at {end}")
    expect(0 <= data.log_start_offset <= data.high_watermark, f"a beginning of {data.log_start_offset}")


@REQUIREMENTS.that(7, "who has read further than the log goes is told the last epoch and its end", source="KIP-595: diverging epochs")
def beyond_the_end(target: Target) -> None:
    with target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        data = reader.partition(reader.request(FAR_OFFSET, reader.leader_epoch))
    expect_error(data.error_code, ErrorCode.NONE, "an offset beyond the end")
    expect_equal(data.diverging_epoch.epoch, reader.leader_epoch, "the epoch in which the logs part")
    expect(0 < data.diverging_epoch.end_offset < FAR_OFFSET, f"the logs part at {data.diverging_epoch.end_offset}")
    expect_equal(len(data.records or b""), 0, "bytes of records")


@REQUIREMENTS.that(8, "who reads on from an epoch that never was there is told where to cut, or which snapshot to load", source="KIP-595; KIP-630")
def diverging(target: Target) -> None:
    with target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        data = reader.partition(reader.request(3, last_epoch=0))
    expect_error(data.error_code, ErrorCode.NONE, "a log that parts")
    expect_equal(len(data.records or b""), 0, "bytes of records")
    if data.snapshot_id.end_offset >= 0:
        expect_equal(data.snapshot_id.epoch >= 1, True, "whether the snapshot is of an epoch that was there")
    else:
        expect_equal((data.diverging_epoch.epoch, data.diverging_epoch.end_offset), (0, 0), "epoch and end of what both have")


@REQUIREMENTS.that(9, "a negative offset, epoch or time to wait, and a last epoch above the leader's are refused with error 42", source=HANDLE)
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


@REQUIREMENTS.that(10, "another topic, another partition, two of them or none are refused with error 42", source="RaftUtil.hasValidTopicPartition")
def other_partitions(target: Target) -> None:
    with target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        rows = {what: reader.request() for what in ("another topic", "another partition", "two partitions", "no partition")}
        rows["another topic"].topics[0].topic_id = bytes(15) + b"\x07"
        rows["another partition"].topics[0].partitions[0].partition = 1
        rows["two partitions"].topics[0].partitions *= 2
        rows["no partition"].topics = []
        for what, asked in rows.items():
            expect_error(reader.ask(asked).error_code, ErrorCode.INVALID_REQUEST, what)


@REQUIREMENTS.that(11, "another cluster's id is refused with error 104, and the cluster's own is taken", source="KafkaRaftClient.hasValidClusterId")
def cluster_ids(target: Target) -> None:
    with target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        asked = reader.request()
        asked.cluster_id = "another-cluster-of-ours"
        expect_error(reader.ask(asked).error_code, ErrorCode.INCONSISTENT_CLUSTER_ID, "another cluster's id")
        asked.cluster_id = cluster_id_of(target)
        expect_error(reader.partition(asked).error_code, ErrorCode.NONE, "the cluster's own id")


@REQUIREMENTS.that(12, "a record that is written while a reader waits at the end is answered at once", source="KafkaRaftClient: the fetch purgatory")
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
        expect_equal(data.diverging_epoch.end_offset, -1, "where the logs part")


@REQUIREMENTS.that(13, "however few bytes are asked for, the answer is whole batches, one at least", source="KIP-74; KIP-1219; KafkaMetadataLog.read")
def one_batch_at_least(target: Target) -> None:
    with target.controller_peer() as peer:
        reader = MetadataReader(target, peer)
        asked = reader.request()
        asked.max_bytes = asked.topics[0].partitions[0].partition_max_bytes = 1
        data = reader.partition(asked)
        if data.snapshot_id.end_offset >= 0:
            raise Inapplicable("the beginning of the log is in a snapshot")
        batches = list(split_batches(data.records or b""))
        expect(bool(batches), "no batch for who asks for one byte")
        expect_equal(sum(batch.size_bytes for batch in batches), len(data.records or b""), "bytes of whole batches")
        expect_equal(batches[0].base_offset, 0, "the first offset")
