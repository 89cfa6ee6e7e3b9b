"""One fetch of a member: it waits until min_bytes can be acquired, or until its time is over, and
acquires then.

Only what is acquired is delivered: the response has the batches that contain it. Records in remote
storage are read while no other fetch may acquire from the same share-partition.

Source: KIP-932; kafka.server.share.DelayedShareFetch,
org.apache.kafka.server.share.fetch.ShareFetch.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from kraftsim.core.decision import Refusal
from kraftsim.share_groups.rules_share_acquisition import (
    NOTHING_ACQUIRED,
    AbortedRange,
    AcquiredOffsets,
    AcquireMode,
    AcquireRequest,
    acquire,
)
from kraftsim.share_groups.rules_share_sessions import (
    SessionKey,
    SharedTopicPartition,
    TopicIdAndPartition,
    bytes_of_each,
)
from kraftsim.share_groups.share_partitions import LedShare, SharePartitionManager, WatchKey
from kraftsim.share_groups.share_reading import (
    SharedLogBroker,
    SharedRead,
    abort_markers_of,
    batches_of,
    part_of,
    read_shared,
)
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k78_share_fetch import AcquiredRecords, PartitionData
from protocol.records.record import MalformedBatch

Rows = dict[TopicIdAndPartition, PartitionData]
EMPTY: Final = b""


class ShareFetchRequestInSession(Struct, frozen=True, kw_only=True):
    """What a member asks for, of all partitions of its session."""

    key: SessionKey
    partitions: Sequence[SharedTopicPartition]
    min_bytes: int
    max_bytes: int
    records_max: int
    batch_size: int
    mode: AcquireMode
    reads_committed: bool


class _Acquirable(Struct):
    """A share-partition from which something may be acquired, and what was read for that."""

    led: LedShare
    offset: int
    read: SharedRead | Refusal

    @property
    def is_remote(self) -> bool:
        """Whether it has to be read from remote storage."""
        return isinstance(self.read, SharedRead) and self.read.remote_offset is not None


class DelayedShareFetch:
    """A fetch that waits. `on_done` gets the rows of the response, exactly once.

    A share-partition that fails to load does not end the wait, as in Kafka: a client that asks
    again and again has to wait in between.
    """

    def __init__(
        self,
        broker: SharedLogBroker,
        manager: SharePartitionManager,
        asked: ShareFetchRequestInSession,
        on_done: Callable[[Rows], None],
    ) -> None:
        self._broker = broker
        self._manager = manager
        self._asked = asked
        self._on_done = on_done
        self._failed: Rows = {}
        self._led: list[LedShare] = []
        self._is_done = False

    def keys(self) -> list[WatchKey]:
        """Return what to watch: the share-partitions, and the partitions themselves."""
        return [key for led in self._led for key in (led.partition.key, led.log_key)]

    def begin(self) -> bool:
        """Find the share-partitions, and return whether there is anything to wait for."""
        asked = self._asked
        if not asked.partitions or not asked.records_max or not asked.max_bytes:
            self._finish({})
            return False
        for each in asked.partitions:
            led = self._manager.get_or_load(asked.key.group_id, each, partial(self._fail, each))
            if isinstance(led, Refusal):
                self._fail(each, led)
            else:
                self._led.append(led)
        if not self._led:
            self._finish({})
        return not self._is_done

    def try_complete(self) -> bool:
        """Respond if enough can be acquired, or if something has to be reported."""
        if self._is_done:
            return True
        found = self._read_acquirable()
        if not found:
            return False
        if any(each.is_remote for each in found):
            self._begin_remote(found)
            return True
        if not self._is_enough(found):
            return False
        self._acquire(found)
        return True

    def expire(self) -> None:
        """Respond with what can be acquired."""
        if self._is_done:
            return
        found = self._read_acquirable()
        if any(each.is_remote for each in found):
            self._begin_remote(found)
        else:
            self._acquire(found)

    def _fail(self, each: SharedTopicPartition, refusal: Refusal) -> None:
        self._failed[each.id] = refused_row(each.id.partition, refusal.error, refusal.why or None)

    def _finish(self, rows: Rows) -> None:
        self._is_done = True
        self._on_done({**rows, **self._failed})

    # Reading
    # ----------------------------------------------------------------------------------------------

    def _read_acquirable(self) -> list[_Acquirable]:
        limits = self._manager.limits(self._asked.key.group_id)
        free = [
            led
            for led in self._led
            if led.partition.is_active
            and not led.is_reading
            and led.asked.id not in self._failed
            and led.partition.can_acquire(limits)
        ]
        return self._read(free, self._asked.max_bytes)

    def _read(self, free: Sequence[LedShare], bytes_max: int) -> list[_Acquirable]:
        if not free:
            return []
        asked, found = self._asked, []
        left_bytes, has_records = bytes_max, False
        sizes = bytes_of_each(bytes_max, len(free), len(free))
        for led, size in zip(free, sizes, strict=True):
            offset = led.partition.next_fetch_offset()
            read = read_shared(
                self._broker,
                led.asked,
                offset,
                min(size, left_bytes),
                bytes_min=asked.min_bytes,
                enough_offset=max(offset, led.partition.end_offset + 1) + asked.records_max,
                at_least_one=not has_records,
                reads_committed=asked.reads_committed,
            )
            found.append(_Acquirable(led, offset, read))
            if isinstance(read, SharedRead) and len(read.records):
                has_records = True
                left_bytes = max(left_bytes - len(read.records), 0)
        return found

    def _is_enough(self, found: Sequence[_Acquirable]) -> bool:
        size_bytes = 0
        for each in found:
            if isinstance(each.read, Refusal) or each.read.is_enough:
                return True
            size_bytes += each.read.size_bytes
        return size_bytes >= min(self._asked.min_bytes, self._asked.max_bytes)

    # Acquiring
    # ----------------------------------------------------------------------------------------------

    def _acquire(self, found: Sequence[_Acquirable]) -> None:
        rows: Rows = {}
        left = self._asked.records_max
        for each in found:
            led, read = each.led, each.read
            place = led.asked.id
            if isinstance(read, Refusal):
                self._on_read_failed(led, read, rows)
                continue
            try:
                acquired, records = self._acquire_of(each, read, left)
            except (MalformedBatch, MalformedMessage) as malformed:
                rows[place] = refused_row(
                    place.partition, ErrorCode.CORRUPT_MESSAGE, str(malformed)
                )
                continue
            left -= acquired.count
            rows[place] = PartitionData(
                partition_index=place.partition,
                records=records,
                acquired_records=[
                    AcquiredRecords(
                        first_offset=part.first_offset,
                        last_offset=part.last_offset,
                        delivery_count=part.delivery_count,
                    )
                    for part in acquired.ranges
                ],
            )
        self._finish(rows)

    def _acquire_of(
        self, each: _Acquirable, read: SharedRead, left: int
    ) -> tuple[AcquiredOffsets, bytes | memoryview]:
        if not len(read.records) or left <= 0:
            return NOTHING_ACQUIRED, EMPTY
        asked, partition = self._asked, each.led.partition
        batches = batches_of(read.records)
        markers = abort_markers_of(batches) if read.aborted else frozenset[int]()
        acquired = acquire(
            partition,
            AcquireRequest(
                member_id=asked.key.member_id,
                mode=asked.mode,
                batch_size=asked.batch_size,
                records_max=left,
                fetch_offset=each.offset,
                batches=batches,
                aborted=read.aborted,
                abort_markers=markers,
            ),
            self._manager.limits(asked.key.group_id),
            self._manager.now_ms(),
        )
        self._manager.after_acquisition(each.led)
        if not acquired.ranges:
            return acquired, EMPTY
        first, last = acquired.ranges[0].first_offset, acquired.ranges[-1].last_offset
        return acquired, part_of(read.records, batches, first, last)

    def _on_read_failed(self, led: LedShare, refusal: Refusal, rows: Rows) -> None:
        """The log begins later than the share-partition: move its start. Any other error is one of
        the response.
        """
        place = led.asked.id
        if refusal.error is not ErrorCode.OFFSET_OUT_OF_RANGE:
            rows[place] = refused_row(place.partition, refusal.error, refusal.why)
            return
        assert led.asked.topic is not None, "its topic was known"
        hosted = self._broker.partitions.find(led.asked.topic, place.partition)
        if hosted is not None and led.partition.on_log_start(hosted.replica.log_start_offset):
            self._manager.waiting.check(led.partition.key)
        rows[place] = PartitionData(partition_index=place.partition, records=EMPTY)

    # Remote storage
    # ----------------------------------------------------------------------------------------------

    def _begin_remote(self, found: Sequence[_Acquirable]) -> None:
        """Read what is in remote storage, then what is not, as far as the size allows."""
        remote = [each for each in found if each.is_remote]
        self._is_done = True
        for each in remote:
            each.led.is_reading = True
        self._broker.shell.tasks.spawn(self._read_remote(remote), "remote share fetch")

    async def _read_remote(self, remote: Sequence[_Acquirable]) -> None:
        tiered = self._broker.tiered
        assert tiered is not None, "a tiered log exists only if remote storage is enabled"
        asked = self._asked
        left_bytes = asked.max_bytes
        sizes = bytes_of_each(asked.max_bytes, len(remote), len(remote))
        try:
            for each, size in zip(remote, sizes, strict=True):
                assert isinstance(each.read, SharedRead), "it was not refused"
                found = await tiered.read(
                    each.read.hosted,
                    each.offset,
                    size,
                    at_least_one=True,
                    reads_committed=asked.reads_committed,
                )
                if isinstance(found, Refusal):
                    each.read = found
                elif found is not None:
                    each.read.records = found.records
                    each.read.aborted = tuple(
                        AbortedRange(part.producer_id, part.first_offset) for part in found.aborted
                    )
                    left_bytes -= len(found.records)
            others = [
                led
                for led in self._led
                if led.partition.is_active
                and not led.is_reading
                and led.partition.can_acquire(self._manager.limits(asked.key.group_id))
            ]
            local = [
                each
                for each in (self._read(others, left_bytes) if left_bytes > 0 else [])
                if not each.is_remote
            ]
            self._acquire([*remote, *local])
        finally:
            for each in remote:
                each.led.is_reading = False
                self._manager.waiting.check(each.led.partition.key)


def refused_row(partition: int, error: ErrorCode, message: str | None) -> PartitionData:
    """Return the row of a partition that cannot be fetched."""
    return PartitionData(
        partition_index=partition, error_code=error, error_message=message, records=EMPTY
    )
