"""WriteTxnMarkers: write transaction markers to partitions that this broker leads, and respond once
all in-sync replicas have them.

Partitions are independent. A marker is written whether or not its producer has an open transaction
there, so that a coordinator can retry without knowing its progress. Markers in `__consumer_offsets`
complete the pending offset commits of the transaction.

Source: KIP-98, kafka.server.KafkaApis.handleWriteTxnMarkersRequest; verified against Apache Kafka
3.9.1.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final, Protocol

from kraftsim.core.decision import Refusal
from kraftsim.groups.coordinator_log import CoordinatorLog
from kraftsim.groups.group_coordinator import GroupsBroker
from kraftsim.metadata.rules_topic_names import GROUP_METADATA
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.log_directory import PartitionKey
from kraftsim.partitions.partitions import HostingBroker
from kraftsim.partitions.rules_append import AppendDecision
from kraftsim.producer_state.rules_manager import EndMarker
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.large_requests import or_refused
from kraftsim.server.purgatory import Purgatory
from kraftsim.server.serving_broker import ConfiguredBroker, RunningBroker
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k27_write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.records.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.records.record import Compression

NO_TRANSACTION_VERSION = -1
"""A marker with this version fails; any other unknown version is accepted (verified against Apache
Kafka 4.4.0).
"""
MARKERS_PER_SLICE: Final = 200
"""Each marker is a batch appended to one partition, at 60 us."""


class MarkedBroker(HostingBroker, GroupsBroker, ConfiguredBroker, RunningBroker, Protocol):
    """A broker that writes transaction markers."""

    @property
    def produces(self) -> Purgatory[PartitionKey]:
        """Requests that wait for the in-sync replicas."""
        ...

    @property
    def fetches(self) -> Purgatory[PartitionKey]:
        """Requests that wait for records."""
        ...


class MarkerWork:
    """One request: the result of each partition, by producer, and how many are still to be
    replicated.
    """

    def __init__(self, broker: MarkedBroker) -> None:
        self.deferred = Deferred()
        self._broker = broker
        self._now_ms = broker.world.clock.wall_ms()
        self._log = CoordinatorLog(
            broker.partitions,
            broker.produces,
            broker.fetches,
            broker.world.clock,
            timeout_ms=broker.config.request_timeout_ms,
            compression=Compression.NONE,
        )
        self._errors: dict[int, dict[PartitionKey, ErrorCode]] = {}
        """By producer id: two markers of one producer share a response row; for a partition that
        both name the later result is returned.
        """
        self._open = 1

    def run(self, request: WriteTxnMarkersRequest) -> bool:
        """Append every marker to each of its partitions; return False at a marker without producer
        id or epoch for a hosted partition.

        Apache Kafka fails there, too: the markers before it are written, and the response is -1 for
        all partitions.
        """
        for marker, key in _markers(request):
            if not self._write(marker, key):
                return False
        self._close_one()
        return True

    async def run_in_slices(self, call: Call, request: WriteTxnMarkersRequest) -> None:
        """The same, with some partitions in each iteration of the event loop."""
        for index, (marker, key) in enumerate(_markers(request)):
            if not self._write(marker, key):
                self.deferred.complete(refuse(call, ErrorCode.UNKNOWN_SERVER_ERROR))
                return
            if index % MARKERS_PER_SLICE == MARKERS_PER_SLICE - 1:
                await self._broker.shell.turns.next()
        self._close_one()

    def _write(self, marker: EndMarker, key: PartitionKey) -> bool:
        hosted = self._broker.partitions.find(*key)
        if hosted is None:
            self._answer(marker, key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return True
        lacks_producer = (
            marker.producer_id == NO_PRODUCER_ID or marker.producer_epoch == NO_PRODUCER_EPOCH
        )
        if lacks_producer or marker.transaction_version == NO_TRANSACTION_VERSION:
            return False
        try:
            outcome = hosted.append_marker(marker, self._now_ms)
        except OSError as failure:
            self._broker.partitions.disk_failed(hosted.log.directory, "write", failure)
            outcome = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
        if isinstance(outcome, Refusal):
            self._answer(marker, key, outcome.error)
            return True
        self._open += 1
        self._broker.fetches.check(key)
        self._log.when_replicated(
            hosted, outcome.last_offset + 1, partial(self._on_replicated, marker, hosted, outcome)
        )
        return True

    def _on_replicated(
        self, marker: EndMarker, hosted: HostedPartition, decision: AppendDecision, error: ErrorCode
    ) -> None:
        key = (hosted.topic, hosted.partition)
        self._answer(marker, key, error)
        if error is ErrorCode.NONE and hosted.topic == GROUP_METADATA:
            self._broker.groups.on_marker(
                hosted.partition,
                marker.producer_id,
                marker.producer_epoch,
                marker.is_commit,
                decision.last_offset,
            )
        self._close_one()

    def _answer(self, marker: EndMarker, key: PartitionKey, error: ErrorCode) -> None:
        self._errors.setdefault(marker.producer_id, {})[key] = error

    def _close_one(self) -> None:
        self._open -= 1
        if not self._open:
            self.deferred.complete(_response(self._errors))


def _markers(request: WriteTxnMarkersRequest) -> Iterator[tuple[EndMarker, PartitionKey]]:
    """Yield each marker with each of its partitions; a partition named twice is yielded once.

    Apache Kafka 3.9.1 has a map of them, too, but never responds to such a request, because it
    counts duplicates.
    """
    for written in request.markers:
        marker = EndMarker(
            producer_id=written.producer_id,
            producer_epoch=written.producer_epoch,
            coordinator_epoch=written.coordinator_epoch,
            is_commit=written.transaction_result,
            transaction_version=written.transaction_version,
        )
        named = {
            (topic.name, partition): None
            for topic in written.topics
            for partition in topic.partition_indexes
        }
        for key in named:
            yield marker, key


def _names_many(request: WriteTxnMarkersRequest) -> bool:
    """Return whether there are more markers than fit one iteration: four bytes of a request name a
    partition.
    """
    return (
        sum(len(topic.partition_indexes) for marker in request.markers for topic in marker.topics)
        > MARKERS_PER_SLICE
    )


def handle(broker: MarkedBroker, call: Call) -> Answer | Deferred:
    """Return NONE for each partition once its marker is replicated, or an error."""
    request = call.body
    assert isinstance(request, WriteTxnMarkersRequest), "dispatch decodes by API key"
    work = MarkerWork(broker)
    if call.is_large or _names_many(request):
        broker.shell.tasks.spawn(
            or_refused(work.run_in_slices(call, request), work.deferred, call, refuse),
            "write-markers-in-slices",
        )
        return work.deferred
    return work.deferred if work.run(request) else refuse(call, ErrorCode.UNKNOWN_SERVER_ERROR)


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for every partition."""
    request = call.body
    assert isinstance(request, WriteTxnMarkersRequest), "dispatch decodes by API key"
    errors: dict[int, dict[PartitionKey, ErrorCode]] = {}
    for marker in request.markers:
        rows = errors.setdefault(marker.producer_id, {})
        rows.update(
            {
                (topic.name, partition): error
                for topic in marker.topics
                for partition in topic.partition_indexes
            }
        )
    return _response(errors)


def _response(errors: dict[int, dict[PartitionKey, ErrorCode]]) -> WriteTxnMarkersResponse:
    response = WriteTxnMarkersResponse()
    for producer_id, partitions in errors.items():
        topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
        for (topic, partition), error in partitions.items():
            topics.setdefault(topic, []).append(
                WritableTxnMarkerPartitionResult(partition_index=partition, error_code=error)
            )
        rows = [
            WritableTxnMarkerTopicResult(name=name, partitions=rows)
            for name, rows in topics.items()
        ]
        response.markers.append(WritableTxnMarkerResult(producer_id=producer_id, topics=rows))
    return response


HANDLER = Handler(key=ApiKey.WRITE_TXN_MARKERS, handle=handle, refuse=refuse)
