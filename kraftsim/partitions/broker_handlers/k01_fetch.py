"""Fetch: returns whole batches, at once or when min_bytes are available; message sets for clients
before batches (old_readers).

Within a fetch session a request contains only changed partitions, and a response only those with
changes: `rules_fetch_sessions` keeps the rest.

Source: KIP-227, KIP-320, KIP-516, kafka.server.KafkaApis.handleFetchRequest,
kafka.server.DelayedFetch.
"""

from collections.abc import Iterable
from typing import Protocol, cast

from kraftsim.core.decision import Refusal
from kraftsim.partitions.fetch_responses import (
    FIRST_VERSION_OF_FORMAT_2,
    FIRST_VERSION_WITH_STORAGE_ERROR,
    FIRST_VERSION_WITH_TOPIC_IDS,
    FIRST_VERSION_WITH_YIELDING_LIMITS,
    FIRST_VERSION_WITH_ZSTD,
    AbortedLists,
    DownConversion,
    ReadTopic,
    SortedFetch,
    refuse_reader,
    refused_fetch,
    sort_fetch,
)
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.log_directory import PartitionKey
from kraftsim.partitions.partitions import HostingBroker
from kraftsim.partitions.replication import Replication
from kraftsim.partitions.rules_fetch_sessions import FetchContext, FetchSessions
from kraftsim.partitions.rules_follower import Diverging, ReadBounds
from kraftsim.partitions.rules_leader import RACK_AWARE_SELECTOR, nearest_replica
from kraftsim.partitions.rules_reading import decide_read
from kraftsim.partitions.throttles import ReplicationThrottles
from kraftsim.server.api_offer import ApiOffer
from kraftsim.server.call import Allows, Answer, Call, Deferred, Handler
from kraftsim.server.client_quotas import CONSUMER_BYTES, MeasuringNode, mute
from kraftsim.server.large_requests import or_refused
from kraftsim.server.purgatory import Purgatory
from kraftsim.server.serving_broker import (
    AddressBroker,
    ConfiguredBroker,
    ImageBroker,
    RunningBroker,
)
from kraftsim.tiered_storage.tiered_storage import RemoteWish, TieredBroker, fill_from_remote
from kraftsim.world.interface import Chunk, FileSlice
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

FIRST_VERSION_OF_ANY_REPLICA = 11
"""Since this version consumers may fetch from followers, up to the high watermark that these know
(KIP-392).
"""
FIRST_VERSION_WITH_REPLICA_STATE = 15
FIRST_VERSION_WITH_LEADER = 16
NO_OFFSET = -1
NO_BROKER_EPOCH = -1
EMPTY = b""


class FetchParts(Protocol):
    """What the release decides for Fetch."""

    @property
    def aborted_lists(self) -> type[AbortedLists]:
        """The aborted transactions of a response."""
        ...

    @property
    def answers_readers_behind(self) -> bool:
        """Whether a fetch beyond what the consumer may read returns at once."""
        ...

    @property
    def endpoints_for_consumers(self) -> bool:
        """Whether only consumers get the endpoints of new leaders."""
        ...

    @property
    def readers_stand_at_batches(self) -> bool:
        """Whether the position of such a fetch is the start of its batch."""
        ...


class FetchedBroker(
    HostingBroker,
    ImageBroker,
    ConfiguredBroker,
    AddressBroker,
    TieredBroker,
    MeasuringNode,
    RunningBroker,
    Protocol,
):
    """A broker that consumers and followers fetch from."""

    @property
    def parts(self) -> FetchParts:
        """The replaceable classes of the node."""
        ...

    @property
    def offer(self) -> ApiOffer:
        """The versions that it serves."""
        ...

    @property
    def fetch_sessions(self) -> FetchSessions:
        """The incremental fetch sessions (KIP-227)."""
        ...

    @property
    def fetches(self) -> Purgatory[PartitionKey]:
        """Requests that wait for records."""
        ...

    @property
    def deletions(self) -> Purgatory[PartitionKey]:
        """DeleteRecords requests that wait for followers."""
        ...

    @property
    def replication(self) -> Replication:
        """What followers have fetched."""
        ...

    @property
    def throttles(self) -> ReplicationThrottles:
        """The replication quotas."""
        ...

    def on_partition_changed(self, key: PartitionKey) -> None:
        """Re-check the requests that watch a partition."""
        ...


class DelayedFetch:
    """A Fetch that waits for min_bytes, an error, or max_wait_ms."""

    def __init__(
        self,
        broker: FetchedBroker,
        call: Call,
        request: FetchRequest,
        context: FetchContext,
        asked: SortedFetch,
    ) -> None:
        self.deferred = Deferred()
        self._sorted = asked
        self._broker = broker
        self._call = call
        self._request = request
        self._context = context
        self._version = call.api_version
        self._listener = call.listener
        self._has_read = False
        self._asked: dict[tuple[str, int], tuple[ReadTopic, FetchPartition]] = {}
        bytes_max = min(request.max_bytes, broker.config.fetch_max_bytes)
        allowed = (
            None
            if follower_of(request, call.api_version)[0] >= 0
            else broker.quotas.most_at_once(call, CONSUMER_BYTES)
        )
        self._bytes_max = bytes_max if allowed is None else min(bytes_max, allowed)

    def keys(self) -> Iterable[tuple[str, int]]:
        """Return the partitions to watch."""
        self._asked = {
            (topic.name, partition.partition): (topic, partition)
            for topic in self._sorted.read
            for partition in topic.partitions
        }
        return self._asked

    def try_complete(self) -> bool:
        """Respond if there are enough bytes, or anything that must be reported at once."""
        reader = self._reader()
        response = reader.read()
        if reader.remote is not None:
            read = self._complete_remotely(reader, response, reader.remote)
            self._broker.shell.tasks.spawn(
                or_refused(read, self.deferred, self._call, refused_fetch), "remote fetch"
            )
            return True
        has_enough = (
            reader.must_respond
            or reader.size_bytes >= min(self._request.min_bytes, self._bytes_max)
            or self._request.max_wait_ms <= 0
        )
        if not (has_enough or reader.is_far_from_end()):
            return False
        self._complete(reader, response)
        return True

    def may_matter(self, key: tuple[str, int]) -> bool:
        """Return whether a change of this partition can complete the request; False if a read of it
        alone still returns nothing.
        """
        asked = self._asked.get(key)
        if asked is None:
            return True
        topic, partition = asked
        reader = self._reader([ReadTopic(topic.name, topic.topic, topic.topic_id, [partition])])
        reader.read()
        return bool(
            reader.must_respond
            or reader.size_bytes
            or reader.remote is not None
            or reader.is_far_from_end()
        )

    def expire(self) -> None:
        """Respond with what is available."""
        reader = self._reader()
        self._complete(reader, reader.read())

    def _complete(self, reader: "FetchReader", response: FetchResponse) -> None:
        pause_ms = (
            0
            if reader.is_for_follower or not self._broker.quotas.are_set
            else self._throttle(reader.size_bytes)
        )
        if pause_ms:
            throttled = self._context.throttled()
            throttled.throttle_time_ms = pause_ms
            self.deferred.complete(throttled)
            return
        if reader.throttled_bytes:
            self._broker.throttles.leader.record(reader.throttled_bytes)
        conversion = reader.conversion
        if conversion is not None and conversion.takes_long:
            self._broker.shell.tasks.spawn(
                self._complete_converted(conversion, response), "convert for old consumers"
            )
            return
        if conversion is not None:
            conversion.convert()
        self._finish(response)

    async def _complete_converted(
        self, conversion: DownConversion, response: FetchResponse
    ) -> None:
        """Respond once a thread has converted the records."""
        await or_refused(
            self._broker.world.aside(conversion.convert), self.deferred, self._call, refused_fetch
        )
        if self.deferred.answer is None:
            self._finish(response)

    def _finish(self, response: FetchResponse) -> None:
        response.responses.extend(self._sorted.refused)
        self.deferred.complete(self._context.finish(response))

    async def _complete_remotely(
        self, reader: "FetchReader", response: FetchResponse, remote: RemoteWish
    ) -> None:
        """Respond once remote storage has been read; after remote.fetch.max.wait.ms without its
        records.
        """
        reader.size_bytes += await fill_from_remote(
            self._broker, remote, at_least_one=not reader.size_bytes
        )
        self._complete(reader, response)

    def _throttle(self, size_bytes: int) -> int:
        """Return the throttle time; if it is above 0, the response has no records."""
        quotas = self._broker.quotas
        pause_ms = quotas.throttle(self._call, CONSUMER_BYTES, size_bytes)
        if pause_ms:
            quotas.unrecord(self._call, CONSUMER_BYTES, size_bytes)
            mute(self._call, pause_ms)
        return pause_ms

    def _reader(self, topics: list[ReadTopic] | None = None) -> "FetchReader":
        reader = FetchReader(
            self._broker,
            self._request,
            self._sorted.read if topics is None else topics,
            self._version,
            self._listener,
            is_first_read=not self._has_read,
            bytes_max=self._bytes_max,
        )
        self._has_read = True
        return reader


class FetchReader:
    """One read of the partitions of a request.

    `must_respond`: the response must be sent at once, whatever its size.
    """

    def __init__(
        self,
        broker: FetchedBroker,
        request: FetchRequest,
        topics: list[ReadTopic],
        version: int,
        listener: str,
        *,
        is_first_read: bool,
        bytes_max: int,
    ) -> None:
        self._broker = broker
        self._is_first_read = is_first_read
        self._follower_id, self._follower_epoch = follower_of(request, version)
        self._is_stale = self._follower_id >= 0 and broker.replication.is_stale(
            self._follower_id, self._follower_epoch
        )
        self._may_be_unchanged = (
            self._follower_id >= 0 and not self._is_stale and broker.deletions.is_empty
        )
        self._listener = listener
        self._topics = topics
        self._version = version
        self._reads_committed = request.isolation_level == READ_COMMITTED
        self._bytes_left = bytes_max
        self._rack = request.rack_id
        self._leader_endpoints: dict[int, NodeEndpoint] = {}
        self.conversion = DownConversion(version) if version < FIRST_VERSION_OF_FORMAT_2 else None
        self.size_bytes = 0
        self.throttled_bytes = 0
        """The part of it for throttled replicas (KIP-73)."""
        self.must_respond = not any(topic.partitions for topic in topics)
        self.remote: RemoteWish | None = None
        """Offsets that are in remote storage only.

        A response reads one such partition; the others follow in the next one.
        """
        self._reads: list[tuple[HostedPartition, ReadBounds]] = []
        """The partitions that were read, with the bounds; throttled replicas are excluded."""

    def is_far_from_end(self) -> bool:
        """Return whether some partition is read far from its end, so that the response is sent
        without waiting.

        Either in a segment before the last readable one, or, in some releases, beyond the readable
        end.
        Source: DelayedFetch.tryComplete; verified against Apache Kafka 3.7.2 to 4.4.0.
        """
        answers_behind = self._broker.parts.answers_readers_behind and not self.is_for_follower
        for hosted, bounds in self._reads:
            if bounds.first_offset < bounds.end_offset:
                if hosted.log.spans_segments(bounds.first_offset, bounds.end_offset):
                    return True
            elif answers_behind and self._position(hosted, bounds) > (
                bounds.last_stable_offset if self._reads_committed else bounds.high_watermark
            ):
                return True
        return False

    def _position(self, hosted: HostedPartition, bounds: ReadBounds) -> int:
        """Return the position of a consumer that gets no records: its fetch offset, or, in some
        releases, the base offset of its batch.
        """
        stands_at_batch = self._broker.parts.readers_stand_at_batches
        return (
            hosted.log.batch_base(bounds.first_offset) if stands_at_batch else bounds.first_offset
        )

    @property
    def is_for_follower(self) -> bool:
        """Whether the client is a follower."""
        return self._follower_id >= 0

    def read(self) -> FetchResponse:
        """Read up to the size limit, in the order of the request."""
        response = FetchResponse()
        for topic in self._topics:
            partitions = [
                self._read(topic.name, topic.topic_id, partition) for partition in topic.partitions
            ]
            response.responses.append(
                FetchableTopicResponse(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=partitions
                )
            )
        if self._leader_endpoints:
            response.node_endpoints = list(self._leader_endpoints.values())
        return response

    def _read(self, name: str, topic_id: bytes, asked: FetchPartition) -> PartitionData:
        hosted = self._broker.partitions.find(name, asked.partition)
        if hosted is None:
            return self._refused(
                asked, self._broker.not_hosted_error(name, asked.partition).error, name
            )
        if self._version >= FIRST_VERSION_WITH_TOPIC_IDS and hosted.topic_id != topic_id:
            return self._refused(asked, ErrorCode.INCONSISTENT_TOPIC_ID, name)
        if self._may_be_unchanged and (quiet := self._unchanged_row(hosted, asked)) is not None:
            return quiet
        if (
            self._version < FIRST_VERSION_WITH_ZSTD
            and self._broker.offer.served[ApiKey.FETCH][0] < FIRST_VERSION_OF_FORMAT_2
        ):
            why = refuse_reader(hosted, self._version)
            if why is not None:
                return self._refused(asked, why)
        if self._follower_id >= 0:
            refusal = self._refuse_follower(hosted, asked)
            if refusal is not None:
                return self._refused(asked, refusal.error, name)
        bounds = decide_read(
            hosted.replica,
            asked.fetch_offset,
            current_leader_epoch=asked.current_leader_epoch,
            last_fetched_epoch=asked.last_fetched_epoch,
            reads_committed=self._reads_committed,
            is_follower=self._follower_id >= 0,
            needs_leader=self._follower_id >= 0 or self._version < FIRST_VERSION_OF_ANY_REPLICA,
        )
        match bounds:
            case Refusal():
                return self._refused(asked, bounds.error, name)
            case Diverging():
                self.must_respond = True
                diverging = EpochEndOffset(epoch=bounds.leader_epoch, end_offset=bounds.end_offset)
                return self._filled(hosted, asked, None, EMPTY, diverging)
            case ReadBounds():
                nearest = self._nearest(hosted, asked)
                if nearest is not None:
                    self.must_respond = True
                    sent_on = self._filled(hosted, asked, bounds, EMPTY)
                    sent_on.aborted_transactions = None
                    sent_on.preferred_read_replica = nearest
                    return sent_on
                if bounds.first_offset < hosted.replica.local_start_offset:
                    return self._remote(hosted, asked, bounds)
                try:
                    filled = self._filled(
                        hosted, asked, bounds, self._records(hosted, asked, bounds)
                    )
                    if self._follower_id >= 0 and self._is_first_read:
                        self._on_follower_fetch(hosted, asked)
                        if bounds.first_offset == bounds.end_offset:
                            hosted.unchanged_rows.keep(
                                self._follower_id, asked, hosted.replica, filled
                            )
                    return filled
                except OSError as failure:
                    self._broker.partitions.disk_failed(hosted.log.directory, "read", failure)
                    return self._refused(asked, ErrorCode.KAFKA_STORAGE_ERROR, name)

    def _unchanged_row(
        self, hosted: HostedPartition, asked: FetchPartition
    ) -> PartitionData | None:
        """Return the cached row of a partition if the follower fetches from the log end offset
        again and nothing has changed.
        """
        replica = hosted.replica
        row = hosted.unchanged_rows.find(self._follower_id, asked, replica)
        if row is None or not self._is_first_read:
            return row
        now_ms, epoch = self._broker.world.clock.wall_ms(), self._follower_epoch
        is_same = replica.on_same_fetch(
            self._follower_id,
            asked.fetch_offset,
            asked.log_start_offset,
            now_ms=now_ms,
            broker_epoch=epoch,
        )
        return row if is_same else None

    def _nearest(self, hosted: HostedPartition, asked: FetchPartition) -> int | None:
        """Return the preferred read replica of this consumer, if it is not this broker
        (KIP-392).
        """
        leader_state, broker = hosted.replica.leader_state, self._broker
        if (
            leader_state is None
            or self.is_for_follower
            or not self._rack
            or broker.config.replica_selector_class != RACK_AWARE_SELECTOR
        ):
            return None
        return nearest_replica(
            leader_state,
            own_rack=broker.config.broker_rack,
            client_rack=self._rack,
            rack_of=lambda replica_id: (
                found.rack
                if (found := broker.address_of(replica_id, self._listener)) is not None
                else None
            ),
            fetch_offset=asked.fetch_offset,
            now_ms=broker.world.clock.wall_ms(),
        )

    def _refuse_follower(self, hosted: HostedPartition, asked: FetchPartition) -> Refusal | None:
        if self._is_stale:
            return Refusal(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self._follower_id} has restarted since broker epoch "
                f"{self._follower_epoch}",
            )
        return hosted.replica.refuse_follower(self._follower_id, asked.current_leader_epoch)

    def _on_follower_fetch(self, hosted: HostedPartition, asked: FetchPartition) -> None:
        """The follower has everything below its fetch offset: that may advance the high watermark
        or expand the ISR.
        """
        fetched = hosted.replica.on_follower_fetch(
            self._follower_id,
            asked.fetch_offset,
            asked.log_start_offset,
            now_ms=self._broker.world.clock.wall_ms(),
            broker_epoch=self._follower_epoch,
        )
        self._broker.replication.ask(hosted, fetched.proposal)
        key = (hosted.topic, hosted.partition)
        if fetched.has_moved:
            self._broker.on_partition_changed(key)
        else:
            self._broker.deletions.check(key)

    def _records(
        self, hosted: HostedPartition, asked: FetchPartition, bounds: ReadBounds
    ) -> Chunk | FileSlice:
        """Read whole batches; the first one of the request may exceed the limit, or the consumer
        could make no progress.
        """
        end_offset = (
            bounds.end_offset
            if self._follower_id < 0
            else min(bounds.end_offset, hosted.follower_end_offset)
        )
        if end_offset <= bounds.first_offset:
            if self._follower_id < 0:
                self._reads.append((hosted, bounds))
            return EMPTY
        throttle = self._broker.throttles.leader
        is_held_back = (
            self._follower_id >= 0
            and throttle.is_set
            and throttle.holds(hosted.topic, hosted.partition)
        )
        if is_held_back and throttle.is_exceeded and not self._is_in_sync(hosted):
            return EMPTY
        self._reads.append((hosted, bounds))
        bytes_max = min(asked.partition_max_bytes, self._bytes_left)
        records: Chunk | FileSlice
        if self.conversion is None:
            records = hosted.log.slice(
                bounds.first_offset, bytes_max, end_offset, at_least_one=not self.size_bytes
            )
        else:
            yields = self._version >= FIRST_VERSION_WITH_YIELDING_LIMITS and not self.size_bytes
            records = hosted.log.read_truncated(
                bounds.first_offset, bytes_max, end_offset, at_least_one=yields
            )
        self.size_bytes += len(records)
        if is_held_back:
            self.throttled_bytes += len(records)
        self._bytes_left = max(self._bytes_left - len(records), 0)
        return records

    def _remote(
        self, hosted: HostedPartition, asked: FetchPartition, bounds: ReadBounds
    ) -> PartitionData:
        """Return an empty row for now: the fetch offset is in remote storage only."""
        filled = self._filled(hosted, asked, bounds, EMPTY)
        if self.remote is None:
            bytes_max = min(asked.partition_max_bytes, self._bytes_left)
            self.remote = RemoteWish(
                hosted, filled, bounds.first_offset, bytes_max, self._reads_committed
            )
        return filled

    def _is_in_sync(self, hosted: HostedPartition) -> bool:
        leader_state = hosted.replica.leader_state
        return leader_state is not None and self._follower_id in leader_state.in_sync

    def _aborted(
        self, hosted: HostedPartition, asked: FetchPartition, records: Chunk | FileSlice
    ) -> list[AbortedTransaction] | None:
        """Return the aborted transactions of the range that was read."""
        if not len(records):
            return []
        lists = self._broker.parts.aborted_lists()
        return lists.of(
            hosted,
            asked.fetch_offset,
            hosted.log.read_end_offset,
            has_waited=not self._is_first_read,
        )

    def _filled(
        self,
        hosted: HostedPartition,
        asked: FetchPartition,
        bounds: ReadBounds | None,
        records: Chunk | FileSlice,
        diverging: EpochEndOffset | None = None,
    ) -> PartitionData:
        replica = hosted.replica
        data = PartitionData(
            partition_index=asked.partition,
            high_watermark=replica.high_watermark if bounds is None else bounds.high_watermark,
            last_stable_offset=replica.last_stable_offset
            if bounds is None
            else bounds.last_stable_offset,
            log_start_offset=replica.log_start_offset,
            aborted_transactions=self._aborted(hosted, asked, records)
            if self._reads_committed
            else None,
            records=cast(
                memoryview, records
            ),  # either type: it has a length, and the connection can send it
        )
        if diverging is not None:
            data.diverging_epoch = diverging
            data.aborted_transactions = None
        if self.conversion is not None:
            self.conversion.add(data, asked.fetch_offset)
        return data

    def _refused(
        self, asked: FetchPartition, error: ErrorCode, name: str | None = None
    ) -> PartitionData:
        self.must_respond = True
        if (
            error is ErrorCode.KAFKA_STORAGE_ERROR
            and self._version < FIRST_VERSION_WITH_STORAGE_ERROR
        ):
            error = (
                ErrorCode.NOT_LEADER_OR_FOLLOWER
            )  # older clients do not know KAFKA_STORAGE_ERROR
        data = PartitionData(
            partition_index=asked.partition,
            error_code=error,
            high_watermark=NO_OFFSET,
            aborted_transactions=None,
            records=EMPTY,
        )
        moved_away = (
            self._broker.partitions.find(name, asked.partition)
            if error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE and name
            else None
        )
        if moved_away is not None:
            replica = moved_away.replica
            data.high_watermark, data.log_start_offset = (
                replica.high_watermark,
                replica.log_start_offset,
            )
        moved = error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
        if moved and name is not None and self._version >= FIRST_VERSION_WITH_LEADER:
            self._name_leader(name, data)
        return data

    def _name_leader(self, name: str, data: PartitionData) -> None:
        """Save the client a Metadata request: add the current leader and its endpoint to the
        response (KIP-951).
        """
        registered = self._broker.image.partition(name, data.partition_index)
        if registered is None:
            return
        data.current_leader = LeaderIdAndEpoch(
            leader_id=registered.leader, leader_epoch=registered.leader_epoch
        )
        if self.is_for_follower and self._broker.parts.endpoints_for_consumers:
            return
        found = self._broker.address_of(registered.leader, self._listener)
        if found is not None:
            self._leader_endpoints[registered.leader] = NodeEndpoint(
                node_id=registered.leader, host=found.host, port=found.port, rack=found.rack
            )


def handle(broker: FetchedBroker, call: Call) -> Answer | Deferred:
    """Respond at once, or wait until min_bytes are available.

    A session error fails the whole request; an invalid isolation level gives UNKNOWN_SERVER_ERROR.
    """
    return _serve(broker, call, None)


def handle_allowed(broker: FetchedBroker, call: Call, allows: Allows) -> Answer | Deferred:
    """The same for an authenticated client: TOPIC_AUTHORIZATION_FAILED for every partition of a
    topic that `allows` denies.

    Each Fetch checks all partitions of the session, whether or not the request contains them and
    whichever client created the session. A waiting Fetch is not checked again: as in Kafka
    (DelayedFetch) it returns what arrives within max_wait_ms.
    """
    return _serve(broker, call, allows)


def _serve(broker: FetchedBroker, call: Call, allows: Allows | None) -> Answer | Deferred:
    request = call.body
    assert isinstance(request, FetchRequest), "dispatch decodes by API key"
    is_follower = follower_of(request, call.api_version)[0] >= 0
    now_ms = broker.world.clock.monotonic_ms()
    context = broker.fetch_sessions.begin(
        request, call.api_version, is_follower=is_follower, now_ms=now_ms
    )
    if isinstance(context, ErrorCode):
        return FetchResponse(error_code=context)
    asked = sort_fetch(
        broker.image, context.topics, call.api_version, allows, is_follower=is_follower
    )
    if asked.read and request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return refused_fetch(
            call, ErrorCode.UNKNOWN_SERVER_ERROR
        )  # Kafka validates it once there is a partition to read
    fetch = DelayedFetch(broker, call, request, context, asked)
    operation = broker.fetches.try_complete_else_watch(
        fetch, fetch.keys(), request.max_wait_ms, fetch.may_matter
    )
    if operation is not None:
        fetch.deferred.when_abandoned(lambda: broker.fetches.leave(operation))
    return fetch.deferred


def follower_of(request: FetchRequest, version: int) -> tuple[int, int]:
    """Return the replica id and broker epoch of a follower's request; -1 for a consumer."""
    if version >= FIRST_VERSION_WITH_REPLICA_STATE:
        return request.replica_state.replica_id, request.replica_state.replica_epoch
    return request.replica_id, NO_BROKER_EPOCH


HANDLER = Handler(
    key=ApiKey.FETCH, handle=handle, refuse=refused_fetch, handle_allowed=handle_allowed
)
