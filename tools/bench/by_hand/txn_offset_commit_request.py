"""TxnOffsetCommitRequest v3, by hand: strings, and two nested arrays."""

from struct import Struct
from struct import error as struct_error

from protocol.codec.slow import BYTE, keep_tags, longer_string, longer_varint, string_varint, varint
from protocol.malformed import MalformedMessage
from protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.schema import Message
from tools.bench.by_hand.parts import ZERO_UUID, new, sized, tags_of, text_at

unpack_producer = Struct(">qhiB").unpack_from
unpack_committed = Struct(">iqiB").unpack_from
pack_producer = Struct(">qhi").pack
pack_committed = Struct(">iqiB").pack


def decode(buffer: bytes, position: int = 0) -> tuple[TxnOffsetCommitRequest, int]:
    """Read a TxnOffsetCommitRequest v3."""
    it = new(TxnOffsetCommitRequest)
    try:
        it.transactional_id, position = text_at(buffer, position)
        it.group_id, position = text_at(buffer, position)
        it.producer_id, it.producer_epoch, it.generation_id_or_member_epoch, size = unpack_producer(
            buffer, position
        )
        position += 15
        if size > 127:
            size, position = longer_string(size, buffer, position)
        if not size:
            raise ValueError("a null member id")
        end = position + size - 1
        it.member_id = buffer[position:end].decode()
        if buffer[end]:
            it.group_instance_id, position = text_at(buffer, end)
        else:
            it.group_instance_id = None
            position = end + 1
        count = buffer[position]
        position += 1
        if count > 127:
            count, position = longer_varint(count, buffer, position)
        if not count:
            raise ValueError("null topics")
        it.topics = topics = []
        for _ in range(1, count):
            topic, position = topic_at(buffer, position)
            topics.append(topic)
        tags = buffer[position]
        position += 1
        if tags:
            position = keep_tags(tags, buffer, position, it)
        else:
            it._tags = None
    except (struct_error, IndexError, ValueError) as error:
        raise MalformedMessage(28, 3, "", str(error)) from error
    return it, position


def topic_at(buffer: bytes, position: int) -> tuple[TxnOffsetCommitRequestTopic, int]:
    """Read a topic."""
    topic = new(TxnOffsetCommitRequestTopic)
    size = buffer[position]
    position += 1
    if size > 127:
        size, position = longer_string(size, buffer, position)
    if not size:
        raise ValueError("a null topic")
    end = position + size - 1
    topic.name = buffer[position:end].decode()
    topic.topic_id = ZERO_UUID
    count = buffer[end]
    position = end + 1
    if count > 127:
        count, position = longer_varint(count, buffer, position)
    if not count:
        raise ValueError("null partitions")
    topic.partitions = partitions = []
    for _ in range(1, count):
        partition = new(TxnOffsetCommitRequestPartition)
        (
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            size,
        ) = unpack_committed(buffer, position)
        position += 17
        if size > 127:
            size, position = longer_string(size, buffer, position)
        if size > 1:
            end = position + size - 1
            partition.committed_metadata = buffer[position:end].decode()
            position = end
        else:
            partition.committed_metadata = "" if size else None
        tags = buffer[position]
        position += 1
        if tags:
            position = keep_tags(tags, buffer, position, partition)
        else:
            partition._tags = None
        partitions.append(partition)
    tags = buffer[position]
    position += 1
    if tags:
        position = keep_tags(tags, buffer, position, topic)
    else:
        topic._tags = None
    return topic, position


def encode(it: Message) -> bytes:
    """Write a TxnOffsetCommitRequest v3."""
    try:
        chunks = [
            sized(it.transactional_id),
            sized(it.group_id),
            pack_producer(it.producer_id, it.producer_epoch, it.generation_id_or_member_epoch),
        ]
        append = chunks.append
        append(sized(it.member_id))
        append(b"\x00" if it.group_instance_id is None else sized(it.group_instance_id))
        append(varint(len(it.topics) + 1))
        for topic in it.topics:
            name = topic.name.encode()
            count = len(topic.partitions) + 1
            size = len(name) + 1
            append(BYTE[size] if size < 128 else string_varint(size))
            append(name)
            append(BYTE[count] if count < 128 else varint(count))
            for partition in topic.partitions:
                metadata = partition.committed_metadata
                if metadata is None:
                    append(
                        pack_committed(
                            partition.partition_index,
                            partition.committed_offset,
                            partition.committed_leader_epoch,
                            0,
                        )
                    )
                else:
                    metadata = metadata.encode()
                    size = len(metadata) + 1
                    if size < 128:
                        append(
                            pack_committed(
                                partition.partition_index,
                                partition.committed_offset,
                                partition.committed_leader_epoch,
                                size,
                            )
                        )
                    else:
                        append(
                            pack_committed(
                                partition.partition_index,
                                partition.committed_offset,
                                partition.committed_leader_epoch,
                                0,
                            )[:-1]
                        )
                        append(string_varint(size))
                    append(metadata)
                append(b"\x00" if partition._tags is None else tags_of(partition))
            append(b"\x00" if topic._tags is None else tags_of(topic))
        append(b"\x00" if it._tags is None else tags_of(it))
        return b"".join(chunks)
    except (struct_error, AttributeError, TypeError, ValueError) as error:
        raise MalformedMessage(28, 3, "", str(error)) from error
