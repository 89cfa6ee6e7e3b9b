"""Fetch: whole batches for consumers, at once or as soon as there are enough of them; message sets for those that know no batches (old_readers).

Within a fetch session a reader names only what changes and is told only what has changed: `core.partitions.fetch_sessions` knows the rest.

Source: KIP-227, KIP-320, KIP-516, kafka.server.KafkaApis.handleFetchRequest, kafka.server.DelayedFetch.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import cast

from kraftsim.core.decision import Refusal
from kraftsim.core.partitions.fetch_sessions import FetchContext
from kraftsim.core.partitions.nearest_replica import RACK_AWARE_SELECTOR, nearest_replica
from kraftsim.core.partitions.read_bounds import Diverging, ReadBounds
from kraftsim.core.partitions.reading import decide_read
from kraftsim.node.broker.broker import Broker
from kraftsim.node.broker.client_quotas import CONSUMER_BYTES
from kraftsim.node.broker.fetched_topics import FIRST_VERSION_WITH_TOPIC_IDS, ReadTopic, SortedFetch, sort_fetch
from kraftsim.node.broker.hosted_partition import HostedPartition
from kraftsim.node.broker.old_readers import (
    FIRST_VERSION_OF_FORMAT_2,
    FIRST_VERSION_WITH_STORAGE_ERROR,
    FIRST_VERSION_WITH_YIELDING_LIMITS,
    FIRST_VERSION_WITH_ZSTD,
    DownConversion,
    refuse_reader,
)
from kraftsim.node.broker.tiered_storage.remote_fetch import RemoteWish, fill_from_remote
from kraftsim.node.call import Allows, Answer, Call, Deferred, Handler
from kraftsim.node.large_requests import or_refused
from kraftsim.node.muting import mute
from kraftsim.node.refused_fetch import refused_fetch
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
"""Since this version consumers may read from any replica, as far as it knows the records to be replicated (KIP-392)."""
FIRST_VERSION_WITH_REPLICA_STATE = 15
FIRST_VERSION_WITH_LEADER = 16
NO_OFFSET = -1
NO_BROKER_EPOCH = -1
EMPTY = b""


class DelayedFetch:
    """A Fetch that waits for min_bytes, an error, or the end of max_wait_ms."""

    def __init__(self, broker: Broker, call: Call, request: FetchRequest, context: FetchContext, asked: SortedFetch) -> None:
        self.deferred = Deferred()
        self._asked_for = asked
        self._broker = broker
        self._call = call
        self._request = request
        self._context = context
        self._version = call.api_version
        self._listener = call.listener
        self._has_looked = False
        self._asked: dict[tuple[str, int], tuple[ReadTopic, FetchPartition]] = {}
        bytes_max = min(request.max_bytes, broker.config.fetch_max_bytes)
        allowed = None if follower_of(request, call.api_version)[0] >= 0 else broker.quotas.most_at_once(call, CONSUMER_BYTES)
        self._bytes_max = bytes_max if allowed is None else min(bytes_max, allowed)

    def keys(self) -> Iterable[tuple[str, int]]:
        """Return the partitions whose changes are worth a look."""
        self._asked = {(topic.name, partition.partition): (topic, partition) for topic in self._asked_for.read for partition in topic.partitions}
        return self._asked

    def try_complete(self) -> bool:
        """Answer if there is enough, or something to tell at once."""
        reader = self._reader()
        response = reader.read()
        if reader.remote is not None:
            read = self._complete_remotely(reader, response, reader.remote)
            self._broker.shell.tasks.spawn(or_refused(read, self.deferred, self._call, refused_fetch), "remote fetch")
            return True
        has_enough = reader.has_news or reader.size_bytes >= min(self._request.min_bytes, self._bytes_max) or self._request.max_wait_ms <= 0
        if not (has_enough or reader.is_elsewhere()):
            return False
        self._complete(reader, response)
        return True

    def may_matter(self, key: tuple[str, int]) -> bool:
        """Tell whether a change of this partition is worth a look at all of them: not if there is as little to tell of it as of those before."""
        asked = self._asked.get(key)
        if asked is None:
            return True
        topic, partition = asked
        reader = self._reader([ReadTopic(topic.name, topic.topic, topic.topic_id, [partition])])
        reader.read()
        return bool(reader.has_news or reader.size_bytes or reader.remote is not None or reader.is_elsewhere())

    def expire(self) -> None:
        """Answer with what there is."""
        reader = self._reader()
        self._complete(reader, reader.read())

    def _complete(self, reader: "FetchReader", response: FetchResponse) -> None:
        pause_ms = 0 if reader.is_for_follower or not self._broker.quotas.are_set else self._throttle(reader.size_bytes)
        if pause_ms:
            throttled = self._context.throttled()
            throttled.throttle_time_ms = pause_ms
            self.deferred.complete(throttled)
            return
        if reader.held_back_bytes:
            self._broker.throttles.leader.record(reader.held_back_bytes)
        conversion = reader.conversion
        if conversion is not None and conversion.takes_long:
            self._broker.shell.tasks.spawn(self._complete_converted(conversion, response), "convert for old consumers")
            return
        if conversion is not None:
            conversion.convert()
        self._finish(response)

    async def _complete_converted(self, conversion: DownConversion, response: FetchResponse) -> None:
        """Answer once a thread has converted the records."""
        await or_refused(self._broker.world.aside(conversion.convert), self.deferred, self._call, refused_fetch)
        if self.deferred.answer is None:
            self._finish(response)

    def _finish(self, response: FetchResponse) -> None:
        response.responses.extend(self._asked_for.refused)
        self.deferred.complete(self._context.finish(response))

    async def _complete_remotely(self, reader: "FetchReader", response: FetchResponse, remote: RemoteWish) -> None:
        """Answer once the remote store has been read, or remote.fetch.max.wait.ms has passed: then without anything from there."""
        reader.size_bytes += await fill_from_remote(self._broker, remote, at_least_one=not reader.size_bytes)
        self._complete(reader, response)

    def _throttle(self, size_bytes: int) -> int:
        """Return for how long the client must be silent; then it gets nothing of what was read."""
        quotas = self._broker.quotas
        pause_ms = quotas.throttle(self._call, CONSUMER_BYTES, size_bytes)
        if pause_ms:
            quotas.take_back(self._call, CONSUMER_BYTES, size_bytes)
            mute(self._call, pause_ms)
        return pause_ms

    def _reader(self, topics: list[ReadTopic] | None = None) -> "FetchReader":
        reader = FetchReader(
            self._broker,
            self._request,
            self._asked_for.read if topics is None else topics,
            self._version,
            self._listener,
            is_first_look=not self._has_looked,
            bytes_max=self._bytes_max,
        )
        self._has_looked = True
        return reader


class FetchReader:
    """One pass over the partitions of a request. `has_news`: something must be told at once, whatever its size."""

    def __init__(
        self, broker: Broker, request: FetchRequest, topics: list[ReadTopic], version: int, listener: str, *, is_first_look: bool, bytes_max: int
    ) -> None:
        self._broker = broker
        self._is_first_look = is_first_look
        self._follower_id, self._follower_epoch = follower_of(request, version)
        self._is_stale = self._follower_id >= 0 and broker.replication.is_stale(self._follower_id, self._follower_epoch)
        self._may_be_quiet = self._follower_id >= 0 and not self._is_stale and broker.deletions.is_empty
        self._listener = listener
        self._topics = topics
        self._version = version
        self._reads_committed = request.isolation_level == READ_COMMITTED
        self._bytes_left = bytes_max
        self._rack = request.rack_id
        self._leader_endpoints: dict[int, NodeEndpoint] = {}
        self.conversion = DownConversion(version) if version < FIRST_VERSION_OF_FORMAT_2 else None
        self.size_bytes = 0
        self.held_back_bytes = 0
        """How much of that is for replicas whose copying is held back to a rate (KIP-73)."""
        self.has_news = not any(topic.partitions for topic in topics)
        self.remote: RemoteWish | None = None
        """What is in the remote store only. One answer tells of one partition there; the others come with the next."""
        self._places: list[tuple[HostedPartition, ReadBounds]] = []
        """What was read from, and between which offsets; without what is held back."""

    def is_elsewhere(self) -> bool:
        """Tell whether some partition is read far from its end, so that the answer is not worth a wait.

        Either in a segment before the last that may be read; or, in some releases, behind all that may be.
        Source: DelayedFetch.tryComplete; asked of Apache Kafka 3.7.2 to 4.4.0.
        """
        answers_behind = self._broker.parts.answers_readers_behind and not self.is_for_follower
        for hosted, bounds in self._places:
            if bounds.first_offset < bounds.end_offset:
                base_offsets = hosted.log.base_offsets
                if bisect_right(base_offsets, bounds.first_offset) < bisect_right(base_offsets, bounds.end_offset - 1):
                    return True
            elif answers_behind and self._stands_at(hosted, bounds) > (bounds.last_stable_offset if self._reads_committed else bounds.high_watermark):
                return True
        return False

    def _stands_at(self, hosted: HostedPartition, bounds: ReadBounds) -> int:
        """Return where a reader stands that sees nothing: at its offset, or, in some releases, where the batch of that begins."""
        stands_at_batch = self._broker.parts.readers_stand_at_batches
        return hosted.log.batch_base(bounds.first_offset) if stands_at_batch else bounds.first_offset

    @property
    def is_for_follower(self) -> bool:
        """Whether a follower asks."""
        return self._follower_id >= 0

    def read(self) -> FetchResponse:
        """Read as much as fits, in the order of the request."""
        response = FetchResponse()
        for topic in self._topics:
            partitions = [self._read(topic.name, topic.topic_id, partition) for partition in topic.partitions]
            response.responses.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions))
        if self._leader_endpoints:
            response.node_endpoints = list(self._leader_endpoints.values())
        return response

    def _read(self, name: str, topic_id: bytes, asked: FetchPartition) -> PartitionData:
        hosted = self._broker.partitions.find(name, asked.partition)
        if hosted is None:
            return self._refused(asked, self._broker.why_not_here(name, asked.partition).error, name)
        if self._version >= FIRST_VERSION_WITH_TOPIC_IDS and hosted.topic_id != topic_id:
            return self._refused(asked, ErrorCode.INCONSISTENT_TOPIC_ID, name)
        if self._may_be_quiet and (quiet := self._quiet(hosted, asked)) is not None:
            return quiet
        if self._version < FIRST_VERSION_WITH_ZSTD and self._broker.offer.served[ApiKey.FETCH][0] < FIRST_VERSION_OF_FORMAT_2:
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
                self.has_news = True
                diverging = EpochEndOffset(epoch=bounds.leader_epoch, end_offset=bounds.end_offset)
                return self._filled(hosted, asked, None, EMPTY, diverging)
            case ReadBounds():
                nearest = self._nearest(hosted, asked)
                if nearest is not None:
                    self.has_news = True
                    sent_on = self._filled(hosted, asked, bounds, EMPTY)
                    sent_on.aborted_transactions = None
                    sent_on.preferred_read_replica = nearest
                    return sent_on
                if bounds.first_offset < hosted.replica.local_start_offset:
                    return self._remote(hosted, asked, bounds)
                try:
                    filled = self._filled(hosted, asked, bounds, self._records(hosted, asked, bounds))
                    if self._follower_id >= 0 and self._is_first_look:
                        self._note_follower(hosted, asked)
                        if bounds.first_offset == bounds.end_offset:
                            hosted.quiet_rows.keep(self._follower_id, asked, hosted.replica, filled)
                    return filled
                except OSError as failure:
                    self._broker.partitions.disk_failed(hosted.log.directory, "read", failure)
                    return self._refused(asked, ErrorCode.KAFKA_STORAGE_ERROR, name)

    def _quiet(self, hosted: HostedPartition, asked: FetchPartition) -> PartitionData | None:
        """Return what a follower was told of a partition before, if it asks for the end of the log again and all is as it was."""
        replica = hosted.replica
        row = hosted.quiet_rows.find(self._follower_id, asked, replica)
        if row is None or not self._is_first_look:
            return row
        now_ms, epoch = self._broker.world.clock.wall_ms(), self._follower_epoch
        is_same = replica.on_same_fetch(self._follower_id, asked.fetch_offset, asked.log_start_offset, now_ms=now_ms, broker_epoch=epoch)
        return row if is_same else None

    def _nearest(self, hosted: HostedPartition, asked: FetchPartition) -> int | None:
        """Return the replica that this consumer had better read from, if that is not this one (KIP-392)."""
        reign, broker = hosted.replica.reign, self._broker
        if reign is None or self.is_for_follower or not self._rack or broker.config.replica_selector_class != RACK_AWARE_SELECTOR:
            return None
        return nearest_replica(
            reign,
            own_rack=broker.config.broker_rack,
            client_rack=self._rack,
            rack_of=lambda replica_id: found.rack if (found := broker.address_of(replica_id, self._listener)) is not None else None,
            fetch_offset=asked.fetch_offset,
            now_ms=broker.world.clock.wall_ms(),
        )

    def _refuse_follower(self, hosted: HostedPartition, asked: FetchPartition) -> Refusal | None:
        if self._is_stale:
            return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self._follower_id} has been started again since epoch {self._follower_epoch}")
        return hosted.replica.refuse_follower(self._follower_id, asked.current_leader_epoch)

    def _note_follower(self, hosted: HostedPartition, asked: FetchPartition) -> None:
        """The follower has everything before what it asks for: that may move the high watermark, and let it join those in sync."""
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

    def _records(self, hosted: HostedPartition, asked: FetchPartition, bounds: ReadBounds) -> Chunk | FileSlice:
        """Read whole batches; the first one that the request gets may be larger than it allows, or a consumer would never get past it."""
        end_offset = bounds.end_offset if self._follower_id < 0 else min(bounds.end_offset, hosted.copied_end_offset)
        if end_offset <= bounds.first_offset:
            if self._follower_id < 0:
                self._places.append((hosted, bounds))
            return EMPTY
        throttle = self._broker.throttles.leader
        is_held_back = self._follower_id >= 0 and throttle.is_set and throttle.holds(hosted.topic, hosted.partition)
        if is_held_back and throttle.is_exceeded and not self._is_in_sync(hosted):
            return EMPTY
        self._places.append((hosted, bounds))
        bytes_max = min(asked.partition_max_bytes, self._bytes_left)
        records: Chunk | FileSlice
        if self.conversion is None:
            records = hosted.log.slice(bounds.first_offset, bytes_max, end_offset, at_least_one=not self.size_bytes)
        else:
            yields = self._version >= FIRST_VERSION_WITH_YIELDING_LIMITS and not self.size_bytes
            records = hosted.log.read_cut(bounds.first_offset, bytes_max, end_offset, at_least_one=yields)
        self.size_bytes += len(records)
        if is_held_back:
            self.held_back_bytes += len(records)
        self._bytes_left = max(self._bytes_left - len(records), 0)
        return records

    def _remote(self, hosted: HostedPartition, asked: FetchPartition, bounds: ReadBounds) -> PartitionData:
        """Answer with nothing for now: what is asked for is in the remote store only."""
        filled = self._filled(hosted, asked, bounds, EMPTY)
        if self.remote is None:
            bytes_max = min(asked.partition_max_bytes, self._bytes_left)
            self.remote = RemoteWish(hosted, filled, bounds.first_offset, bytes_max, self._reads_committed)
        return filled

    def _is_in_sync(self, hosted: HostedPartition) -> bool:
        reign = hosted.replica.reign
        return reign is not None and self._follower_id in reign.in_sync

    def _aborted(self, hosted: HostedPartition, asked: FetchPartition, records: Chunk | FileSlice) -> list[AbortedTransaction] | None:
        """Name the transactions whose records are to be skipped in what was read just now."""
        if not len(records):
            return []
        lists = self._broker.parts.aborted_lists()
        return lists.of(hosted, asked.fetch_offset, hosted.log.read_end_offset, has_waited=not self._is_first_look)

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
            last_stable_offset=replica.last_stable_offset if bounds is None else bounds.last_stable_offset,
            log_start_offset=replica.log_start_offset,
            aborted_transactions=self._aborted(hosted, asked, records) if self._reads_committed else None,
            records=cast(memoryview, records),  # whatever it is, it is measured and handed on to the connection
        )
        if diverging is not None:
            data.diverging_epoch = diverging
            data.aborted_transactions = None
        if self.conversion is not None:
            self.conversion.add(data, asked.fetch_offset)
        return data

    def _refused(self, asked: FetchPartition, error: ErrorCode, name: str | None = None) -> PartitionData:
        self.has_news = True
        if error is ErrorCode.KAFKA_STORAGE_ERROR and self._version < FIRST_VERSION_WITH_STORAGE_ERROR:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER  # what older readers know to go on from
        data = PartitionData(partition_index=asked.partition, error_code=error, high_watermark=NO_OFFSET, aborted_transactions=None, records=EMPTY)
        moved_away = self._broker.partitions.find(name, asked.partition) if error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE and name else None
        if moved_away is not None:
            replica = moved_away.replica
            data.high_watermark, data.log_start_offset = replica.high_watermark, replica.log_start_offset
        moved = error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
        if moved and name is not None and self._version >= FIRST_VERSION_WITH_LEADER:
            self._name_leader(name, data)
        return data

    def _name_leader(self, name: str, data: PartitionData) -> None:
        """Save the client a Metadata request: say who leads, and where to find it (KIP-951)."""
        registered = self._broker.image.partition(name, data.partition_index)
        if registered is None:
            return
        data.current_leader = LeaderIdAndEpoch(leader_id=registered.leader, leader_epoch=registered.leader_epoch)
        if self.is_for_follower and self._broker.parts.endpoints_for_consumers:
            return
        found = self._broker.address_of(registered.leader, self._listener)
        if found is not None:
            self._leader_endpoints[registered.leader] = NodeEndpoint(node_id=registered.leader, host=found.host, port=found.port, rack=found.rack)


def handle(broker: Broker, call: Call) -> Answer | Deferred:
    """Answer now, or wait until min_bytes are there.

    A session's error stands alone; UNKNOWN_SERVER_ERROR for an isolation level that is none.
    """
    return _serve(broker, call, None)


def handle_allowed(broker: Broker, call: Call, allows: Allows) -> Answer | Deferred:
    """The same for a client with an identity: TOPIC_AUTHORIZATION_FAILED for every partition of a topic that `allows` denies.

    All partitions of the session are checked at each Fetch, whether the request names them or not and whichever client opened the session. A Fetch
    that waits is not checked again: as in Kafka (DelayedFetch) it is answered with what arrives within max_wait_ms.
    """
    return _serve(broker, call, allows)


def _serve(broker: Broker, call: Call, allows: Allows | None) -> Answer | Deferred:
    request = call.body
    assert isinstance(request, FetchRequest), "dispatch decodes by API key"
    is_follower = follower_of(request, call.api_version)[0] >= 0
    now_ms = broker.world.clock.monotonic_ms()
    context = broker.fetch_sessions.begin(request, call.api_version, is_follower=is_follower, now_ms=now_ms)
    if isinstance(context, ErrorCode):
        return FetchResponse(error_code=context)
    asked = sort_fetch(broker.image, context.topics, call.api_version, allows, is_follower=is_follower)
    if asked.read and request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return refused_fetch(call, ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka looks at it once there is a partition to read
    fetch = DelayedFetch(broker, call, request, context, asked)
    stay = broker.fetches.admit(fetch, fetch.keys(), request.max_wait_ms, fetch.may_matter)
    if stay is not None:
        fetch.deferred.when_abandoned(lambda: broker.fetches.leave(stay))
    return fetch.deferred


def follower_of(request: FetchRequest, version: int) -> tuple[int, int]:
    """Return the id and the broker epoch of the follower that asks; -1 where a consumer does."""
    if version >= FIRST_VERSION_WITH_REPLICA_STATE:
        return request.replica_state.replica_id, request.replica_state.replica_epoch
    return request.replica_id, NO_BROKER_EPOCH


HANDLER = Handler(key=ApiKey.FETCH, handle=handle, refuse=refused_fetch, handle_allowed=handle_allowed)
