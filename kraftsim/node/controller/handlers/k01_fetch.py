"""Fetch (1) on a controller: followers and observers of the quorum read the metadata log.

A request waits until there is something to say: records, a log that diverges, or a high watermark that this replica has not been told of. (Kafka of
this release does not wake a waiting Fetch for the high watermark alone; KIP-1166 does so later. Here an observer, which may act only on what is
committed, is woken by the commit instead of the append, so that one answer carries both: docs/deviations.md.)
Source: org.apache.kafka.raft.KafkaRaftClient.handleFetchRequest, KIP-595.
"""

from typing import TYPE_CHECKING

from kraftsim.node.call import Answer, Call, Deferred, Encoded, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from protocol.requests import response_chunks
from protocol.uuids import METADATA_TOPIC_ID

if TYPE_CHECKING:
    from kraftsim.node.controller.controller import Controller

FIRST_VERSION_WITH_TOPIC_ID = 13
FIRST_VERSION_WITH_REPLICA_STATE = 15
FIRST_VERSION_WITH_ENDPOINTS = 17
NO_HIGH_WATERMARK = -1
NOTHING = b""
SIZE_AND_CORRELATION_ID_BYTES = 8


class LastAnswer:
    """The last answer to a Fetch that waited, as bytes: brokers that wait for the same record are told the same, and it is built once for all."""

    __slots__ = ("_answer", "_told")

    def __init__(self) -> None:
        self._told: tuple[int | None, ...] = ()
        self._answer = Encoded(b"")

    def give(self, controller: "Controller", version: int, fetch_offset: int) -> Encoded:
        """Return what there is from an offset on. Nothing else of the controller goes into it that may change while it is active."""
        log = controller.log
        told = (version, fetch_offset, log.log_end_offset, log.high_watermark, log.log_start_offset)
        if told != self._told:
            data = _partition_data(controller)
            data.records = log.read(fetch_offset)
            frame = b"".join(response_chunks(ApiKey.FETCH, version, 0, _response(controller, version, data)))
            self._told, self._answer = told, Encoded(frame[SIZE_AND_CORRELATION_ID_BYTES:])
        return self._answer


class WaitingFetch:
    """A Fetch that has nothing to be told yet; lives in the controller's purgatory."""

    __slots__ = ("_controller", "_is_last_answer", "_partition", "_replica_id", "_version", "later")

    def __init__(self, controller: "Controller", version: int, replica_id: int, partition: FetchPartition) -> None:
        self._controller = controller
        self._version = version
        self._replica_id = replica_id
        self._partition = partition
        self.later = Deferred()

    def try_complete(self) -> bool:
        """Answer if there is something new for this replica."""
        log = self._controller.log
        has_records = log.log_end_offset > self._partition.fetch_offset
        if not has_records and not self._controller.replicas.has_news(self._replica_id, log.high_watermark):
            return False
        self.later.complete(self._answer())
        return True

    def expire(self) -> None:
        """Answer that there is nothing new."""
        self.later.complete(self._answer())

    def _answer(self) -> Encoded:
        controller = self._controller
        controller.replicas.tell(self._replica_id, controller.log.high_watermark)
        return controller.last_fetch_answer.give(controller, self._version, self._partition.fetch_offset)


def handle(controller: "Controller", call: Call) -> Answer | Deferred:
    """Answer at once with an error, a divergence, or records; otherwise wait for max_wait_ms."""
    request = call.body
    assert isinstance(request, FetchRequest), "dispatch decodes by API key"
    version = call.api_version
    if request.cluster_id is not None and request.cluster_id != controller.config.cluster_id:
        return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    partition = _metadata_partition(request)
    if partition is None:
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    error = _refusal(controller, request, partition)
    if error is not ErrorCode.NONE:
        return _response(controller, version, _partition_data(controller, error))
    diverging = controller.log.diverging_epoch(partition.fetch_offset, partition.last_fetched_epoch)
    if diverging is not None:
        data = _partition_data(controller)
        data.diverging_epoch = EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
        return _response(controller, version, data)
    replica_id = request.replica_state.replica_id if version >= FIRST_VERSION_WITH_REPLICA_STATE else request.replica_id
    return _wait(controller, WaitingFetch(controller, version, replica_id, partition), request.max_wait_ms)


def _wait(controller: "Controller", waiting: WaitingFetch, max_wait_ms: int) -> Answer | Deferred:
    if max_wait_ms == 0:
        if not waiting.try_complete():
            waiting.expire()
        return waiting.later
    stay = controller.waiting_fetches.admit(waiting, (COMMITTED,), max_wait_ms)
    if stay is not None:
        waiting.later.when_abandoned(lambda: controller.waiting_fetches.leave(stay))
    return waiting.later


def _metadata_partition(request: FetchRequest) -> FetchPartition | None:
    """Return the one partition that can be fetched here; None if anything else was asked for. Before v13 topics have no id: refused, too."""
    if len(request.topics) != 1 or request.topics[0].topic_id != METADATA_TOPIC_ID:
        return None
    partitions = request.topics[0].partitions
    return partitions[0] if len(partitions) == 1 and partitions[0].partition == 0 else None


def _refusal(controller: "Controller", request: FetchRequest, partition: FetchPartition) -> ErrorCode:
    """Look at the request in Kafka's order: what makes no sense, then what is of another epoch."""
    is_sensible = request.max_wait_ms >= 0 and partition.fetch_offset >= 0 and partition.last_fetched_epoch >= 0
    if not is_sensible or partition.last_fetched_epoch > partition.current_leader_epoch:
        return ErrorCode.INVALID_REQUEST
    leader_epoch = controller.log.leader_epoch
    if partition.current_leader_epoch < leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if partition.current_leader_epoch > leader_epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE


def _partition_data(controller: "Controller", error: ErrorCode = ErrorCode.NONE) -> PartitionData:
    """Return an answer without records; whatever it says, it names the leader and where the log stands."""
    high_watermark = controller.log.high_watermark if error is ErrorCode.NONE else None
    return PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=NO_HIGH_WATERMARK if high_watermark is None else high_watermark,
        log_start_offset=controller.log.log_start_offset,
        current_leader=LeaderIdAndEpoch(leader_id=controller.config.node_id, leader_epoch=controller.log.leader_epoch),
        aborted_transactions=[],
        records=NOTHING,
    )


def _response(controller: "Controller", version: int, data: PartitionData) -> FetchResponse:
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[data])])
    if version >= FIRST_VERSION_WITH_ENDPOINTS:
        here = controller.advertised
        response.node_endpoints = [NodeEndpoint(node_id=controller.config.node_id, host=here.host, port=here.port)]
    return response


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return FetchResponse(error_code=error)


COMMITTED = "committed"
"""What waiting fetches watch: the high watermark."""
HANDLER: "Handler[Controller]" = Handler(key=ApiKey.FETCH, handle=handle, refuse=_refuse)
