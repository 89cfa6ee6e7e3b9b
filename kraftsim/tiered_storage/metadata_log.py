"""A broker's client of `__remote_log_metadata`: publishes its own segment events, and reads those
of all brokers.

Requests go to the leaders of the topic's partitions, this broker included. An event takes effect
once it has been read back, so that a segment known here is known to every broker that has read as
far. Each start reads the topic from its beginning.
Source: org.apache.kafka.server.log.remote.metadata.storage.{TopicBasedRemoteLogMetadataManager,
ConsumerTask, ProducerManager}.
"""

import asyncio
from collections.abc import Callable, Mapping

from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.server.outbound import PeerConnection, VersionRange
from kraftsim.server.shell import NodeShell
from kraftsim.tiered_storage.remote_store import METADATA_TOPIC
from kraftsim.tiered_storage.rules_segments import (
    RemoteSegment,
    SegmentCatalogue,
    SegmentUpdate,
    TopicIdPartition,
    metadata_partition,
    parse_metadata,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.records.batches import build_batch, split_batches
from protocol.records.record import Record

ACKS_ALL = -1
LAST_VERSION_WITH_TOPIC_NAMES = 12
FETCH_WAIT_MS = 500
FETCH_BYTES = 1 << 20
BACKOFF_SECONDS = 0.2
OwnerKey = tuple[bytes, int]


class RemoteMetadataLog:
    """Publishes and reads segment events.

    `create_topic` is called while the metadata topic does not exist.
    """

    def __init__(
        self,
        shell: NodeShell,
        image: Callable[[], MetadataImage],
        *,
        own_versions: Mapping[int, VersionRange],
        create_topic: Callable[[], None],
    ) -> None:
        self._shell = shell
        self._image = image
        self._own_versions = own_versions
        self._create_topic = create_topic
        self._assigned: dict[int, None] = {}
        """The partitions of the metadata topic that this broker reads."""
        self._catalogues: dict[OwnerKey, SegmentCatalogue] = {}
        self._next_offsets: dict[int, int] = {}
        self._caught_up: dict[int, None] = {}
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._readers: dict[int, None] = {}
        self._connections: dict[tuple[str, int], PeerConnection] = {}
        self._turns: dict[tuple[str, int], asyncio.Lock] = {}
        """One task connects to a broker, and the others wait for it: several publish at once."""

    # State
    # ----------------------------------------------------------------------------------------------

    def catalogue(self, owner: TopicIdPartition) -> SegmentCatalogue | None:
        """Return the known remote segments of a partition; None until its metadata partition has
        been read to the end.
        """
        number = self._number_of(owner)
        if number is None:
            return None
        if number not in self._assigned:
            self._assigned[number] = None
            self.start_readers()
        if number not in self._caught_up:
            return None
        return self._catalogues.setdefault((owner.topic_id, owner.partition), SegmentCatalogue())

    def start_readers(self) -> None:
        """Start readers for the current leaders of the partitions to read."""
        if self._image().topic(METADATA_TOPIC) is None:
            self._create_topic()
            return
        for leader_id in dict.fromkeys(map(self._leader_of, self._assigned)):
            if leader_id >= 0 and leader_id not in self._readers:
                self._readers[leader_id] = None
                self._shell.tasks.spawn(
                    self._read_from(leader_id), f"remote log metadata of broker {leader_id}"
                )

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._connections.values()):
            connection.close()

    def abort(self) -> None:
        """Close every connection at once, like a killed process."""
        for connection in self._connections.values():
            connection.abort()

    # Writing
    # ----------------------------------------------------------------------------------------------

    async def publish(self, owner: TopicIdPartition, value: bytes) -> None:
        """Append an event, and return when it has been read back.

        Raises OSError; whether it is in the log is unknown then.
        """
        async with asyncio.timeout(self._shell.config.request_timeout_ms / 1000):
            await self._publish(owner, value)

    async def _publish(self, owner: TopicIdPartition, value: bytes) -> None:
        while True:
            number = self._number_of(owner)
            offset = None if number is None else await self._append(number, value)
            if number is not None and offset is not None:
                self._assigned[number] = None
                self.start_readers()
                await self._read_back(number, offset)
                return
            self.start_readers()
            await asyncio.sleep(BACKOFF_SECONDS)

    async def _append(self, number: int, value: bytes) -> int | None:
        """Append to a partition of the metadata topic, and return the offset; None if that failed
        and may be retried.
        """
        now_ms = self._shell.world.clock.wall_ms()
        batch = build_batch([Record(0, now_ms, None, value, ())])
        request = ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=self._shell.config.request_timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=METADATA_TOPIC,
                    partition_data=[PartitionProduceData(index=number, records=batch)],
                )
            ],
        )
        leader_id, connection = self._leader_of(number), None
        try:
            connection = await self._connected("writer", leader_id)
            version = min(connection.version_for(ApiKey.PRODUCE), LAST_VERSION_WITH_TOPIC_NAMES)
            answer = await connection.request(request, api_version=version)
        except OSError:
            self._leave("writer", leader_id, connection)
            return None
        assert isinstance(answer, ProduceResponse), "the response of Produce"
        row = answer.responses[0].partition_responses[0]
        return row.base_offset if row.error_code == ErrorCode.NONE else None

    async def _read_back(self, number: int, offset: int) -> None:
        if self._next_offsets.get(number, 0) > offset:
            return
        read: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((number, offset, read))
        await read

    # Reading
    # ----------------------------------------------------------------------------------------------

    async def _read_from(self, leader_id: int) -> None:
        """Read the assigned partitions that one broker leads, as long as there are any."""
        while numbers := [
            number for number in self._assigned if self._leader_of(number) == leader_id
        ]:
            connection = None
            try:
                connection = await self._connected("reader", leader_id)
                await self._fetch(connection, numbers)
            except OSError:
                self._leave("reader", leader_id, connection)
                await asyncio.sleep(BACKOFF_SECONDS)
        del self._readers[leader_id]

    async def _fetch(self, connection: PeerConnection, numbers: list[int]) -> None:
        topic = self._image().topic(METADATA_TOPIC)
        if topic is None:
            raise ConnectionError("the metadata topic does not exist")
        asked = [
            FetchPartition(
                partition=number,
                fetch_offset=self._next_offsets.get(number, 0),
                partition_max_bytes=FETCH_BYTES,
            )
            for number in numbers
        ]
        answer = await connection.request(
            FetchRequest(
                max_wait_ms=FETCH_WAIT_MS
                if all(number in self._caught_up for number in numbers)
                else 0,
                min_bytes=1,
                max_bytes=FETCH_BYTES,
                topics=[
                    FetchTopic(topic=METADATA_TOPIC, topic_id=topic.topic_id, partitions=asked)
                ],
            )
        )
        assert isinstance(answer, FetchResponse), "the response of Fetch"
        rows = [row for each in answer.responses for row in each.partitions]
        if not rows or any(row.error_code for row in rows):
            await asyncio.sleep(BACKOFF_SECONDS)
        for row in rows:
            self._take(row)

    def _take(self, row: PartitionData) -> None:
        number = row.partition_index
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._next_offsets[number] = max(row.log_start_offset, 0)
        if row.error_code:
            return
        next_offset = self._next_offsets.get(number, 0)
        for batch in split_batches(row.records or b""):
            if batch.next_offset > next_offset and not batch.is_control:
                for record in batch.records():
                    if record.offset >= next_offset and record.value is not None:
                        self._apply(record.value)
            next_offset = max(next_offset, batch.next_offset)
        self._next_offsets[number] = next_offset
        if next_offset >= row.high_watermark:
            self._caught_up[number] = None
        waiting, self._waiters = self._waiters, []
        for each in waiting:
            if each[0] == number and each[1] < next_offset:
                if not each[2].done():
                    each[2].set_result(None)
            else:
                self._waiters.append(each)

    def _apply(self, value: bytes) -> None:
        try:
            event = parse_metadata(value)
        except MalformedMessage:
            return  # not a valid remote log metadata record
        if event is None:
            return
        catalogue = self._catalogues.setdefault(
            (event.owner.topic_id, event.owner.partition), SegmentCatalogue()
        )
        match event:
            case RemoteSegment():
                catalogue.apply_started(event)
            case SegmentUpdate():
                catalogue.apply_update(event)

    # Look-up
    # ----------------------------------------------------------------------------------------------

    def _number_of(self, owner: TopicIdPartition) -> int | None:
        topic = self._image().topic(METADATA_TOPIC)
        return None if topic is None else metadata_partition(owner, len(topic.partitions))

    def _leader_of(self, number: int) -> int:
        registered = self._image().partition(METADATA_TOPIC, number)
        return -1 if registered is None else registered.leader

    async def _connected(self, purpose: str, broker_id: int) -> PeerConnection:
        async with self._turns.setdefault((purpose, broker_id), asyncio.Lock()):
            registered = self._image().broker(broker_id)
            found = (
                None
                if registered is None or registered.fenced
                else registered.listener(self._listener)
            )
            if found is None:
                raise ConnectionError(f"broker {broker_id} is not known to be alive")
            known = self._connections.get((purpose, broker_id))
            if known is not None:
                if known.is_open and (known.host, known.port) == (found.host, found.port):
                    return known
                self._leave(purpose, broker_id, known)
            return await self._connect(purpose, broker_id, found.host, found.port)

    async def _connect(self, purpose: str, broker_id: int, host: str, port: int) -> PeerConnection:
        config = self._shell.config
        connection = self._connections[purpose, broker_id] = PeerConnection(
            host,
            port,
            client_id=f"broker-{config.node_id}-remote-log-metadata-{purpose}",
            world=self._shell.world,
            request_timeout_ms=config.request_timeout_ms,
            own_versions=dict(self._own_versions),
            frame_events=config.frame_events,
            number=self._shell.next_connection_number(),
            local_host=config.outgoing_host,
            security=self._shell.security.to_brokers,
        )
        try:
            await connection.connect()
        except OSError:
            self._leave(purpose, broker_id, connection)
            raise
        return connection

    @property
    def _listener(self) -> str:
        config = self._shell.config
        return config.remote_log_metadata_manager_listener_name or config.inter_broker_listener_name

    def _leave(self, purpose: str, broker_id: int, connection: PeerConnection | None) -> None:
        """Close a connection; another one that has replaced it stays open."""
        if connection is None:
            return
        if self._connections.get((purpose, broker_id)) is connection:
            del self._connections[purpose, broker_id]
        connection.close()
