"""How a consumer reads its partitions: their leaders, their start offsets, and their records from a
position on.

Without fetch sessions: every request contains all its partitions.
Source: org.apache.kafka.clients.consumer.internals.{Fetcher, OffsetFetcher}.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kraftsim.clients.cluster_connections import ClusterConnections, error_of
from kraftsim.clients.reader import (
    CONSUMER_REPLICA_ID,
    EARLIEST_TIMESTAMP,
    FETCH_MAX_BYTES,
    FULL_FETCH_EPOCH,
    LAST_VERSION_WITH_TOPIC_NAMES,
    PARTITION_FETCH_BYTES,
    READ_COMMITTED,
)
from kraftsim.clients.reader import ReadRecord as ReadRecord
from kraftsim.clients.rules_consumer import Aborted, committed_batches
from kraftsim.clients.rules_producer_steps import TopicPartition
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.records.batches import RecordBatch, split_batches
from protocol.uuids import ZERO_UUID


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
