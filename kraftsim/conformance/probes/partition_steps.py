"""Steps for a partition leader: batches, markers, fetches, and producer state."""

from dataclasses import dataclass

from kraftsim.conformance.batches import ALL, TIMEOUT_MS, wall_ms
from kraftsim.conformance.probes.conversation import (
    ProbeConversation,
    give_up_at,
    named,
    pause_until,
)
from kraftsim.conformance.probes.transaction_steps import Identified, shown
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.k02_list_offsets import (
    CONSUMER_REPLICA_ID,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
)
from protocol.records.batches import RecordBatch, build_batch, split_batches
from protocol.records.control_records import ControlType, build_transaction_marker, control_type
from protocol.records.record import Record

NAMES_UNTIL = 12
"""The last version of Produce and Fetch with topic names."""
FETCH_VERSION = 11
LIST_VERSION = 5
READ_COMMITTED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Produce(Identified):
    """A Produce with one batch.

    `nameless` omits the transactional id from the request, `plain` the transactional bit from the
    batch.
    """

    sequence: int = 0
    version: int = 9
    partition: int = 0
    topic: str = ""
    records: int = 1
    acks: int = ALL
    nameless: bool = False
    plain: bool = False
    is_marker: bool = False

    def words(self) -> str:
        """Return the request as text."""
        kind = "marker" if self.is_marker else "plain batch" if self.plain else "batch"
        until = f" to {self.sequence + self.records - 1}" if self.records > 1 else ""
        rest = shown(
            partition=self.partition or "",
            topic=self.topic,
            acks=self.acks if self.acks != ALL else "",
        )
        return (
            f"Produce {self.version} {kind} "
            f"{self.sequence}{until}{self.client_text()}"
            f"{', no transactional id' if self.nameless else ''}{rest}"
        )

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request."""
        version = conversation.offered(ApiKey.PRODUCE, self.version)
        row = PartitionProduceData(index=self.partition, records=self._batch(conversation))
        data = TopicProduceData(partition_data=[row])
        if version <= NAMES_UNTIL:
            data.name = conversation.topic_named(self.topic)
        else:
            data.topic_id = conversation.topic_id
        name = None if self.nameless else self.transactional_id(conversation)
        asked = ProduceRequest(
            transactional_id=name, acks=self.acks, timeout_ms=TIMEOUT_MS, topic_data=[data]
        )
        answer = (
            conversation.peer.ask(asked, version, ProduceResponse)
            .responses[0]
            .partition_responses[0]
        )
        return (
            f"ok at {answer.base_offset}"
            if answer.error_code == ErrorCode.NONE
            else named(answer.error_code)
        )

    def _batch(self, conversation: ProbeConversation) -> bytes:
        producer_id, epoch = self.identity(conversation)
        if self.is_marker:
            return build_transaction_marker(
                commits=True,
                producer_id=producer_id,
                producer_epoch=epoch,
                coordinator_epoch=0,
                timestamp=wall_ms(),
            )
        values = [
            Record(timestamp=wall_ms(), value=b"record %d" % index) for index in range(self.records)
        ]
        return build_batch(
            values,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self.sequence,
            transactional=not self.plain,
        )


def produce(sequence: int = 0, **rest: object) -> Produce:
    """Return a Produce."""
    # arg-type: keyword arguments of several types
    return Produce(sequence=sequence, **rest)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerStep(Identified):
    """WriteTxnMarkers for one producer, as coordinators and the administration tool send it."""

    version: int = 1
    commits: bool = True
    coordinator_epoch: int = 0
    places: tuple[tuple[str, tuple[int, ...]], ...] = (("", (0,)),)
    transaction_version: int = 0

    def words(self) -> str:
        """Return the request as text."""
        places = (
            ""
            if self.places == (("", (0,)),)
            else " of " + ", ".join(f"{name or 'topic'} {list(rows)}" for name, rows in self.places)
        )
        rest = shown(
            coordinator_epoch=self.coordinator_epoch or "",
            transaction_version=self.transaction_version or "",
        )
        return (
            f"WriteTxnMarkers {self.version} "
            f"{'commit' if self.commits else 'abort'}{places}{self.client_text()}{rest}"
        )

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request."""
        version = conversation.offered(ApiKey.WRITE_TXN_MARKERS, self.version)
        producer_id, epoch = self.identity(conversation)
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=self.commits,
            coordinator_epoch=self.coordinator_epoch,
            topics=[
                WritableTxnMarkerTopic(
                    name=conversation.topic_named(name), partition_indexes=list(rows)
                )
                for name, rows in self.places
            ],
        )
        if version >= 2:
            marker.transaction_version = self.transaction_version
        answer = conversation.peer.ask(
            WriteTxnMarkersRequest(markers=[marker]), version, WriteTxnMarkersResponse
        )
        rows = sorted(
            (topic.name, row.partition_index, row.error_code)
            for found in answer.markers
            for topic in found.topics
            for row in topic.partitions
        )
        return ", ".join(named(code) for _, _, code in rows) or "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Fetch from offset 0 of a partition: the batches, the aborted transactions, and LSO and HW.

    With `until_stable`, once LSO is HW.
    """

    committed: bool = True
    partition: int = 0
    offset: int = 0
    until_stable: bool = False

    def words(self) -> str:
        """Return the request as text."""
        rest = shown(partition=self.partition or "", from_offset=self.offset or "")
        return (
            "Fetch "
            f"read_{'' if self.committed else 'un'}committed{rest}"
            f"{', once no transaction is open' if self.until_stable else ''}"
        )

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request."""
        version = conversation.offered(ApiKey.FETCH, FETCH_VERSION)
        row = FetchPartition(
            partition=self.partition, fetch_offset=self.offset, partition_max_bytes=1 << 20
        )
        asked = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=READ_COMMITTED if self.committed else 0,
            topics=[FetchTopic(topic=conversation.topic, partitions=[row])],
        )
        deadline = give_up_at()
        while True:
            found = conversation.peer.ask(asked, version, FetchResponse).responses[0].partitions[0]
            if (
                found.error_code
                or not self.until_stable
                or found.last_stable_offset == found.high_watermark > 0
            ):
                break
            pause_until(deadline, self.words())
        if found.error_code:
            return named(found.error_code)
        returned = [
            _batch_text(batch, conversation) for batch in split_batches(found.records or b"")
        ]
        aborted = [
            f"{conversation.letter(each.producer_id)} from {each.first_offset}"
            for each in found.aborted_transactions or ()
        ]
        skipped = "null" if found.aborted_transactions is None else ", ".join(aborted) or "none"
        ends = f"LSO {found.last_stable_offset}, HW {found.high_watermark}"
        return f"{' '.join(returned) or 'nothing'}; aborted: {skipped}; {ends}"


def _batch_text(batch: RecordBatch, conversation: ProbeConversation) -> str:
    """Return a batch as who[first-last], a commit marker as who!offset, an abort marker as
    who~offset.
    """
    client_name = conversation.letter(batch.producer_id) if batch.producer_id >= 0 else "-"
    if not batch.is_control:
        return f"{client_name}[{batch.base_offset}-{batch.last_offset}]"
    kind = control_type(next(iter(batch.records())).key)
    return f"{client_name}{'!' if kind is ControlType.COMMIT else '~'}{batch.base_offset}"


@dataclass(frozen=True, slots=True)
class ListOffset:
    """ListOffsets with a special timestamp: -1 latest, -2 earliest, -3 the record with the largest
    timestamp.
    """

    timestamp: int = -1
    committed: bool = False
    version: int = LIST_VERSION
    partition: int = 0

    def words(self) -> str:
        """Return the request as text."""
        return (
            f"ListOffsets {self.version} of {self.timestamp}, "
            f"read_{'' if self.committed else 'un'}committed"
            f"{shown(partition=self.partition or '')}"
        )

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request."""
        version = conversation.offered(ApiKey.LIST_OFFSETS, self.version)
        row = ListOffsetsPartition(partition_index=self.partition, timestamp=self.timestamp)
        topics = [ListOffsetsTopic(name=conversation.topic, partitions=[row])]
        asked = ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            isolation_level=READ_COMMITTED if self.committed else 0,
            topics=topics,
        )
        found = conversation.peer.ask(asked, version, ListOffsetsResponse).topics[0].partitions[0]
        return (
            f"ok, {found.offset}" if found.error_code == ErrorCode.NONE else named(found.error_code)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeProducers:
    """DescribeProducers of a partition; with `until_ended`, once there is no open transaction."""

    partition: int = 0
    topic: str = ""
    until_ended: bool = False

    def words(self) -> str:
        """Return the request as text."""
        return (
            f"DescribeProducers{shown(partition=self.partition or '', topic=self.topic)}"
            f"{', once no transaction is open' if self.until_ended else ''}"
        )

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request."""
        version = conversation.offered(ApiKey.DESCRIBE_PRODUCERS, 0)
        topics = [
            DescribeProducersTopic(
                name=conversation.topic_named(self.topic), partition_indexes=[self.partition]
            )
        ]
        deadline = give_up_at()
        while True:
            found = (
                conversation.peer.ask(
                    DescribeProducersRequest(topics=topics), version, DescribeProducersResponse
                )
                .topics[0]
                .partitions[0]
            )
            if not self.until_ended or all(
                row.current_txn_start_offset < 0 for row in found.active_producers
            ):
                break
            pause_until(deadline, self.words())
        rows = [
            f"{conversation.letter(row.producer_id)} epoch {row.producer_epoch}, last sequence "
            f"{row.last_sequence}, coordinator epoch {row.coordinator_epoch}, open since "
            f"{row.current_txn_start_offset}"
            for row in found.active_producers
        ]
        return named(found.error_code) if found.error_code else "; ".join(sorted(rows)) or "nobody"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureStep:
    """The finalized level of a feature, as ApiVersions returns it."""

    name: str
    version: int = 3

    def words(self) -> str:
        """Return the request as text."""
        return f"ApiVersions {self.version}: {self.name}"

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request."""
        version = conversation.offered(ApiKey.API_VERSIONS, self.version)
        answer = conversation.peer.ask(
            ApiVersionsRequest(client_software_name="kraftsim", client_software_version="1"),
            version,
            ApiVersionsResponse,
        )
        supported = [
            f"{row.min_version} to {row.max_version}"
            for row in answer.supported_features
            if row.name == self.name
        ]
        finalized = [
            str(row.max_version_level) for row in answer.finalized_features if row.name == self.name
        ]
        return (
            f"supported {', '.join(supported) or 'not'}, finalized {', '.join(finalized) or 'not'}"
        )
