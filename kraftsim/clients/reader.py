"""kraftsim's reader: a consumer by assignment, from the start of each partition to its end at the
time of the call.

Every batch's checksum is verified. It returns the records below the high watermark, or, with
read_committed, the committed ones below the last stable offset.
Source: org.apache.kafka.clients.consumer.internals.{Fetcher, OffsetFetcher}, KIP-79.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from kraftsim.clients.cluster_connections import (
    Address,
    ClientIdentity,
    ClusterConnections,
    error_of,
)
from kraftsim.clients.events import ClientStarted, ClientStopped, RecordRead
from kraftsim.clients.producer import LIBRARY
from kraftsim.clients.rules_consumer import Aborted, ReaderPositions, committed_batches
from kraftsim.clients.rules_producer_steps import TopicPartition
from kraftsim.core.record_keys import record_key
from kraftsim.server.outbound import Disconnected
from kraftsim.world.interface import World
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.k01_fetch import PartitionData as FetchedPartition
from protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.k03_metadata import MetadataResponse
from protocol.records.batches import RecordBatch, split_batches
from protocol.uuids import ZERO_UUID

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
CONSUMER_REPLICA_ID = -1
FETCH_MAX_WAIT_MS = 500
FETCH_MAX_BYTES = 52_428_800
PARTITION_FETCH_BYTES = 1_048_576
RETRY_BACKOFF_MS = 100
FULL_FETCH_EPOCH = -1
"""No fetch session: every request contains all its partitions."""
LAST_VERSION_WITH_TOPIC_NAMES = 12
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""Kafka's isolation levels."""


class ReadRecord(Struct, frozen=True, kw_only=True):
    """A record that was read. A null key or value is returned as empty."""

    topic: str
    partition: int
    offset: int
    key: str
    value: bytes


class ReaderClient:
    """A consumer by assignment. `read_all` repeatedly, then `close`."""

    def __init__(
        self,
        world: World,
        *,
        bootstrap: Sequence[Address],
        client_id: str,
        frame_events: bool = False,
        read_committed: bool = False,
    ) -> None:
        self.client_id = client_id
        self._isolation_level = READ_COMMITTED if read_committed else READ_UNCOMMITTED
        self._world = world
        self._connections = ClusterConnections(
            world,
            ClientIdentity(
                client_id=client_id, bootstrap=tuple(bootstrap), frame_events=frame_events
            ),
        )
        self._leaders: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, bytes] = {}
        world.emit(ClientStarted(client_id=client_id, library=LIBRARY))

    async def read_all(self, topic: str, partitions: Sequence[int]) -> list[ReadRecord]:
        """Return every record from the start of each partition to its end at the time of the call,
        partition by partition in offset order.

        Retries retriable errors without limit. Raises MalformedMessage for a batch with a wrong
        checksum.
        """
        positions = ReaderPositions([TopicPartition(topic, partition) for partition in partitions])
        read: dict[TopicPartition, list[ReadRecord]] = {
            TopicPartition(topic, partition): [] for partition in partitions
        }
        while not positions.is_done:
            try:
                await self._refresh(topic)
                await self._find_ends(positions)
                is_complete = await self._fetch_round(positions, read)
            except OSError:
                is_complete = False
            if not is_complete:
                await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
        self._world.flush_events()
        return [record for records in read.values() for record in records]

    async def close(self) -> None:
        """Stop the client."""
        self._connections.close()
        self._world.emit(ClientStopped(client_id=self.client_id, reason="closed"))
        self._world.flush_events()

    async def _refresh(self, topic: str) -> None:
        answer: MetadataResponse = await self._connections.metadata([topic])
        self._leaders = {}
        for described in answer.topics:
            self._topic_ids[described.name or ""] = described.topic_id
            for partition in described.partitions:
                if partition.leader_id >= 0:
                    self._leaders[
                        TopicPartition(described.name or "", partition.partition_index)
                    ] = partition.leader_id

    # Start and end offsets
    # ----------------------------------------------------------------------------------------------

    async def _find_ends(self, positions: ReaderPositions) -> None:
        for where, offset in await self._list_offsets(
            positions.without_end_offset(), LATEST_TIMESTAMP
        ):
            positions.end_at(where, offset)
        for where, offset in await self._list_offsets(
            positions.without_first_offset(), EARLIEST_TIMESTAMP
        ):
            positions.set_start(where, offset)

    async def _list_offsets(
        self, partitions: list[TopicPartition], timestamp: int
    ) -> list[tuple[TopicPartition, int]]:
        by_broker: dict[int, list[TopicPartition]] = {}
        for where in partitions:
            if where in self._leaders:
                by_broker.setdefault(self._leaders[where], []).append(where)
        found: list[tuple[TopicPartition, int]] = []
        for broker_id, led in by_broker.items():
            connection = await self._connections.to_broker(broker_id)
            answer: ListOffsetsResponse = await connection.request(
                _list_offsets_request(led, timestamp, self._isolation_level)
            )
            for topic in answer.topics:
                for partition in topic.partitions:
                    if partition.error_code == ErrorCode.NONE and partition.offset >= 0:
                        found.append(
                            (
                                TopicPartition(topic.name, partition.partition_index),
                                partition.offset,
                            )
                        )
        return found

    # Fetching
    # ----------------------------------------------------------------------------------------------

    async def _fetch_round(
        self, positions: ReaderPositions, read: dict[TopicPartition, list[ReadRecord]]
    ) -> bool:
        """Fetch from all leaders until their partitions are complete; return whether there was no
        error.

        After one the metadata is refreshed.
        """
        is_complete = not positions.without_end_offset() and not positions.without_first_offset()
        unfinished = positions.unfinished(self._leaders)
        for broker_id in unfinished:
            connection = await self._connections.to_broker(broker_id)
            version = connection.version_for(ApiKey.FETCH)
            if ZERO_UUID in self._topic_ids.values():  # a cluster without topic ids
                version = min(version, LAST_VERSION_WITH_TOPIC_NAMES)
            while left := positions.unfinished(self._leaders).get(broker_id, []):
                request = self._fetch_request(left, positions, version)
                answer: FetchResponse = await connection.request(request, api_version=version)
                if answer.error_code != ErrorCode.NONE:
                    raise Disconnected(f"Fetch returned {error_of(answer.error_code).name}")
                if not self._take_all(answer, positions, read):
                    is_complete = False
                    break
        return is_complete and positions.is_done

    def _fetch_request(
        self, partitions: list[TopicPartition], positions: ReaderPositions, version: int
    ) -> FetchRequest:
        topics: dict[str, FetchTopic] = {}
        for where in partitions:
            topic = topics.get(where.topic)
            if topic is None:
                topic = topics[where.topic] = FetchTopic()
                if version > LAST_VERSION_WITH_TOPIC_NAMES:
                    topic.topic_id = self._topic_ids[where.topic]
                else:
                    topic.topic = where.topic
            topic.partitions.append(
                FetchPartition(
                    partition=where.partition,
                    fetch_offset=positions.next_offset(where),
                    partition_max_bytes=PARTITION_FETCH_BYTES,
                )
            )
        return FetchRequest(
            replica_id=CONSUMER_REPLICA_ID,
            max_wait_ms=FETCH_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_MAX_BYTES,
            session_epoch=FULL_FETCH_EPOCH,
            isolation_level=self._isolation_level,
            topics=list(topics.values()),
        )

    def _take_all(
        self,
        answer: FetchResponse,
        positions: ReaderPositions,
        read: dict[TopicPartition, list[ReadRecord]],
    ) -> bool:
        """Process a response; return whether no partition has an error."""
        all_served = True
        for topic in answer.responses:
            name = self._name_of(topic)
            for partition in topic.partitions:
                where = TopicPartition(name, partition.partition_index)
                error = error_of(partition.error_code)
                if error is ErrorCode.NONE:
                    self._take(where, partition, positions, read[where])
                    continue
                all_served = False
                if error is ErrorCode.OFFSET_OUT_OF_RANGE:
                    positions.start_over(where)
                    read[where].clear()
        return all_served

    def _name_of(self, topic: FetchableTopicResponse) -> str:
        if topic.topic:
            return topic.topic
        for name, topic_id in self._topic_ids.items():
            if topic_id == topic.topic_id:
                return name
        raise Disconnected("a Fetch response contains a topic that was not requested")

    def _take(
        self,
        where: TopicPartition,
        partition: FetchedPartition,
        positions: ReaderPositions,
        read: list[ReadRecord],
    ) -> None:
        first_offset = next_offset = positions.next_offset(where)
        batches = list(split_batches(partition.records or b""))
        for batch in batches:
            if not batch.crc_is_valid():
                raise MalformedMessage(
                    int(ApiKey.FETCH),
                    None,
                    f"{where.topic}-{where.partition}",
                    f"wrong CRC in the batch at {batch.base_offset}",
                )
            next_offset = max(next_offset, batch.next_offset)
        aborted = [
            Aborted(each.producer_id, each.first_offset)
            for each in partition.aborted_transactions or ()
        ]
        for batch in committed_batches(batches, aborted):
            self._take_batch(where, batch, first_offset, read)
        if next_offset == first_offset:
            is_committed = self._isolation_level == READ_COMMITTED
            positions.found_nothing(
                where, partition.last_stable_offset if is_committed else partition.high_watermark
            )
        positions.advance(where, next_offset)

    def _take_batch(
        self, where: TopicPartition, batch: RecordBatch, first_offset: int, read: list[ReadRecord]
    ) -> None:
        """Add the records from first_offset on: a response starts with the whole batch that
        contains the offset.
        """
        for record in batch.records():
            if record.offset < first_offset:
                continue
            key = (record.key or b"").decode(errors="backslashreplace")
            read.append(
                ReadRecord(
                    topic=where.topic,
                    partition=where.partition,
                    offset=record.offset,
                    key=key,
                    value=bytes(record.value or b""),
                )
            )
            self._world.emit(
                RecordRead(
                    client_id=self.client_id,
                    topic=where.topic,
                    partition=where.partition,
                    record_key=record_key(record.key, record.value),
                    offset=record.offset,
                    is_read_committed=self._isolation_level == READ_COMMITTED,
                )
            )


def _list_offsets_request(
    partitions: list[TopicPartition], timestamp: int, isolation_level: int
) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for where in partitions:
        topic = topics.setdefault(where.topic, ListOffsetsTopic(name=where.topic))
        topic.partitions.append(
            ListOffsetsPartition(partition_index=where.partition, timestamp=timestamp)
        )
    return ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID,
        isolation_level=isolation_level,
        topics=list(topics.values()),
    )


# --------------------------------------------------------------------------------------------------
# How a consumer reads its partitions: their leaders, their start offsets, and their records from a
# position on
#
# Without fetch sessions: every request contains all its partitions.
# Source: org.apache.kafka.clients.consumer.internals.{Fetcher, OffsetFetcher}.


class Fetched(NamedTuple):
    """The result of one partition: records and the next position, or an error."""

    where: TopicPartition
    error_code: ErrorCode
    next_offset: int
    records: tuple[ReadRecord, ...] = ()


class PartitionFetching:
    """Keeps the leaders of the partitions of some topics, and reads committed records.

    Partitions without a leader are skipped.
    """

    def __init__(self, connections: ClusterConnections, max_wait_ms: int) -> None:
        self._connections = connections
        self._max_wait_ms = max_wait_ms
        self._leaders: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, bytes] = {}
        self.is_stale = True

    async def refresh(self, topics: tuple[str, ...]) -> None:
        """Refresh the leaders. Raises OSError."""
        answer = await self._connections.metadata(topics)
        for described in answer.topics:
            self._topic_ids[described.name or ""] = described.topic_id
            for partition in described.partitions:
                self._leaders[TopicPartition(described.name or "", partition.partition_index)] = (
                    partition.leader_id
                )
        self.is_stale = False

    def led(self, positions: Mapping[TopicPartition, int]) -> dict[int, dict[TopicPartition, int]]:
        """Return the positions grouped by the leaders of their partitions."""
        found: dict[int, dict[TopicPartition, int]] = {}
        for where, offset in positions.items():
            leader = self._leaders.get(where, -1)
            if leader >= 0:
                found.setdefault(leader, {})[where] = offset
            else:
                self.is_stale = True
        return found

    def topic_id(self, topic: str) -> bytes:
        """Return the id of a topic of the last refresh."""
        return self._topic_ids[topic]

    def topic_name(self, topic_id: bytes) -> str:
        """Return the name of a topic of the last refresh, empty for an unknown id."""
        return next((name for name, each in self._topic_ids.items() if each == topic_id), "")

    async def first_offset(self, where: TopicPartition) -> int | None:
        """Return the log start offset of a partition; None if its leader returns an error.

        Raises OSError.
        """
        leader = self._leaders.get(where, -1)
        if leader < 0:
            self.is_stale = True
            return None
        connection = await self._connections.to_broker(leader)
        asked = ListOffsetsPartition(partition_index=where.partition, timestamp=EARLIEST_TIMESTAMP)
        request = ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            topics=[ListOffsetsTopic(name=where.topic, partitions=[asked])],
        )
        answer = await connection.request(request)
        assert isinstance(answer, ListOffsetsResponse), "the response of ListOffsets"
        found = answer.topics[0].partitions[0]
        if found.error_code != ErrorCode.NONE:
            self.is_stale = True
            return None
        return found.offset

    async def fetch(self, broker_id: int, positions: Mapping[TopicPartition, int]) -> list[Fetched]:
        """Fetch partitions from their leader.

        Raises OSError, and MalformedMessage for a wrong checksum.
        """
        try:
            connection = await self._connections.to_broker(broker_id)
            version = connection.version_for(ApiKey.FETCH)
            if ZERO_UUID in self._topic_ids.values():  # a cluster without topic ids
                version = min(version, LAST_VERSION_WITH_TOPIC_NAMES)
            answer = await connection.request(
                self._request(positions, version), api_version=version
            )
        except OSError:
            self.is_stale = True
            raise
        assert isinstance(answer, FetchResponse), "the response of Fetch"
        names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        found = []
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for partition in topic.partitions:
                where = TopicPartition(name, partition.partition_index)
                if where in positions:
                    found.append(self._fetched(where, positions[where], partition))
        return found

    def _request(self, positions: Mapping[TopicPartition, int], version: int) -> FetchRequest:
        topics: dict[str, FetchTopic] = {}
        for where, offset in positions.items():
            topic = topics.get(where.topic)
            if topic is None:
                is_named = version <= LAST_VERSION_WITH_TOPIC_NAMES
                topic = topics[where.topic] = (
                    FetchTopic(topic=where.topic)
                    if is_named
                    else FetchTopic(topic_id=self._topic_ids[where.topic])
                )
            topic.partitions.append(
                FetchPartition(
                    partition=where.partition,
                    fetch_offset=offset,
                    partition_max_bytes=PARTITION_FETCH_BYTES,
                )
            )
        return FetchRequest(
            replica_id=CONSUMER_REPLICA_ID,
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=FETCH_MAX_BYTES,
            isolation_level=READ_COMMITTED,
            session_epoch=FULL_FETCH_EPOCH,
            topics=list(topics.values()),
        )

    def _fetched(
        self, where: TopicPartition, first_offset: int, partition: PartitionData
    ) -> Fetched:
        error = error_of(partition.error_code)
        if error is not ErrorCode.NONE:
            self.is_stale = True
            return Fetched(where, error, first_offset)
        batches = list(split_batches(partition.records or b""))
        for batch in batches:
            if not batch.crc_is_valid():
                raise MalformedMessage(
                    int(ApiKey.FETCH),
                    None,
                    f"{where.topic}-{where.partition}",
                    f"wrong CRC in the batch at {batch.base_offset}",
                )
        aborted = [
            Aborted(each.producer_id, each.first_offset)
            for each in partition.aborted_transactions or ()
        ]
        records = [
            each
            for batch in committed_batches(batches, aborted)
            for each in _records(where, batch, first_offset)
        ]
        next_offset = max([first_offset, *(batch.next_offset for batch in batches)])
        return Fetched(where, error, next_offset, tuple(records))


def _records(where: TopicPartition, batch: RecordBatch, first_offset: int) -> list[ReadRecord]:
    """Return the records from first_offset on: a response starts with the whole batch that contains
    the offset.
    """
    return [
        ReadRecord(
            topic=where.topic,
            partition=where.partition,
            offset=record.offset,
            key=(record.key or b"").decode(errors="backslashreplace"),
            value=bytes(record.value or b""),
        )
        for record in batch.records()
        if record.offset >= first_offset
    ]
