"""FetchResponse v12, by hand: records without copies, and rarely used tagged structures."""

from struct import Struct
from struct import error as struct_error

from protocol.codec.shared_defaults import shared_default
from protocol.codec.slow import longer_varint, tag_spans, varint, write_tags
from protocol.malformed import MalformedMessage
from protocol.messages.k01_fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)
from protocol.schema import Message
from tools.bench.by_hand.parts import ZERO_UUID, end_of, new, sized, tags_of, text_at

unpack_int_and_byte = Struct(">iB").unpack_from
pack_int_and_byte = Struct(">iB").pack
pack_int = Struct(">i").pack


unpack_fetch = Struct(">ihiB").unpack_from
unpack_fetched = Struct(">ihqqqB").unpack_from
unpack_aborted = Struct(">qqB").unpack_from
pack_fetch = Struct(">ihi").pack
pack_fetched = Struct(">ihqqq").pack
pack_aborted = Struct(">qq").pack
NO_EPOCH, NO_LEADER, NO_SNAPSHOT = (
    shared_default(EpochEndOffset),
    shared_default(LeaderIdAndEpoch),
    shared_default(SnapshotId),
)


def decode(buffer: bytes, position: int = 0) -> tuple[FetchResponse, int]:
    """Read a FetchResponse v12."""
    it = new(FetchResponse)
    try:
        view = memoryview(buffer)
        it.throttle_time_ms, it.error_code, it.session_id, count = unpack_fetch(buffer, position)
        position += 11
        if count > 127:
            count, position = longer_varint(count, buffer, position)
        if not count:
            raise ValueError("null responses")
        it.responses = topics = []
        for _ in range(1, count):
            topic, position = topic_at(buffer, view, position)
            topics.append(topic)
        it.node_endpoints = []
        return it, end_of(it, buffer, position)
    except (struct_error, IndexError, ValueError) as error:
        raise MalformedMessage(1, 12, "", str(error)) from error


def topic_at(buffer: bytes, view: memoryview, position: int) -> tuple[FetchableTopicResponse, int]:
    """Read a topic."""
    topic = new(FetchableTopicResponse)
    topic.topic, position = text_at(buffer, position)
    topic.topic_id = ZERO_UUID
    count = buffer[position]
    position += 1
    if count > 127:
        count, position = longer_varint(count, buffer, position)
    if not count:
        raise ValueError("null partitions")
    topic.partitions = partitions = []
    for _ in range(1, count):
        one = new(PartitionData)
        (
            one.partition_index,
            one.error_code,
            one.high_watermark,
            one.last_stable_offset,
            one.log_start_offset,
            count,
        ) = unpack_fetched(buffer, position)
        position += 31
        if count == 1:
            one.aborted_transactions = []
        elif count:
            one.aborted_transactions, position = aborted_at(count, buffer, position)
        else:
            one.aborted_transactions = None
        one.preferred_read_replica, size = unpack_int_and_byte(buffer, position)
        position += 5
        if size > 127:
            second = buffer[position]
            if second < 128:
                size += (second << 7) - 128
                position += 1
            else:
                size, position = longer_varint(size, buffer, position)
        if size:
            end = position + size - 1
            one.records = view[position:end]
            position = end
        else:
            one.records = None
        one.diverging_epoch = NO_EPOCH
        one.current_leader = NO_LEADER
        one.snapshot_id = NO_SNAPSHOT
        tags = buffer[position]
        position += 1
        one._tags = None
        if tags:
            position = partition_tags(one, tags, buffer, position)
        partitions.append(one)
    position = end_of(topic, buffer, position)
    return topic, position


def aborted_at(count: int, buffer: bytes, position: int) -> tuple[list[AbortedTransaction], int]:
    """Read a list of aborted transactions."""
    if count > 127:
        count, position = longer_varint(count, buffer, position)
    aborted = []
    for _ in range(1, count):
        one = new(AbortedTransaction)
        one.producer_id, one.first_offset, _ = unpack_aborted(buffer, position)
        position = end_of(one, buffer, position + 16)
        aborted.append(one)
    return aborted, position


def partition_tags(one: Message, tags: int, buffer: bytes, position: int) -> int:
    """Read the tagged fields of a partition."""
    spans, end = tag_spans(tags, buffer, position)
    if 0 in spans:
        one.diverging_epoch = epoch = EpochEndOffset()
        epoch.epoch, epoch.end_offset = Struct(">iq").unpack_from(buffer, spans[0][0])
        end_of(epoch, buffer, spans[0][0] + 12)
    if 1 in spans:
        one.current_leader = leader = LeaderIdAndEpoch()
        leader.leader_id, leader.leader_epoch = Struct(">ii").unpack_from(buffer, spans[1][0])
        end_of(leader, buffer, spans[1][0] + 8)
    if 2 in spans:
        one.snapshot_id = snapshot = SnapshotId()
        snapshot.end_offset, snapshot.epoch = Struct(">qi").unpack_from(buffer, spans[2][0])
        end_of(snapshot, buffer, spans[2][0] + 12)
    one._tags = {tag: buffer[start:stop] for tag, (start, stop) in spans.items() if tag > 2} or None
    return end


def encode(it: Message) -> bytes:
    """Write a FetchResponse v12."""
    try:
        if it.node_endpoints:
            raise ValueError("a field is set that version 12 lacks")
        chunks = [
            pack_fetch(it.throttle_time_ms, it.error_code, it.session_id),
            varint(len(it.responses) + 1),
        ]
        append = chunks.append
        for topic in it.responses:
            append(sized(topic.topic))
            append(varint(len(topic.partitions) + 1))
            for one in topic.partitions:
                append(
                    pack_fetched(
                        one.partition_index,
                        one.error_code,
                        one.high_watermark,
                        one.last_stable_offset,
                        one.log_start_offset,
                    )
                )
                aborted = one.aborted_transactions
                if aborted is None:
                    append(b"\x00")
                else:
                    append(varint(len(aborted) + 1))
                    for transaction in aborted:
                        append(pack_aborted(transaction.producer_id, transaction.first_offset))
                        append(b"\x00" if transaction._tags is None else tags_of(transaction))
                content = one.records
                if content is None:
                    append(pack_int_and_byte(one.preferred_read_replica, 0))
                else:
                    append(pack_int(one.preferred_read_replica))
                    append(varint(len(content) + 1))
                    append(content)
                is_plain = (
                    one.diverging_epoch is NO_EPOCH
                    and one.current_leader is NO_LEADER
                    and one.snapshot_id is NO_SNAPSHOT
                )
                append(b"\x00" if is_plain and one._tags is None else partition_tags_of(one))
            append(b"\x00" if topic._tags is None else tags_of(topic))
        append(b"\x00" if it._tags is None else tags_of(it))
        return b"".join(chunks)
    except (struct_error, AttributeError, TypeError, ValueError) as error:
        raise MalformedMessage(1, 12, "", str(error)) from error


def partition_tags_of(one: Message) -> bytes:
    """Write the tagged fields of a partition."""
    tags: dict[int, bytes] = dict(one._tags or {})
    if one.diverging_epoch != NO_EPOCH:
        tags[0] = Struct(">iqx").pack(one.diverging_epoch.epoch, one.diverging_epoch.end_offset)
    if one.current_leader != NO_LEADER:
        tags[1] = Struct(">iix").pack(one.current_leader.leader_id, one.current_leader.leader_epoch)
    if one.snapshot_id != NO_SNAPSHOT:
        tags[2] = Struct(">qix").pack(one.snapshot_id.end_offset, one.snapshot_id.epoch)
    chunks: list[bytes] = []
    write_tags(tags, chunks.append)
    return b"".join(chunks)
