"""MetadataResponse v12, by hand: strings, topic ids, and three arrays of numbers in each of many
partitions.
"""

from struct import Struct
from struct import error as struct_error

from protocol.codec.slow import keep_tags, longer_varint, varint
from protocol.malformed import MalformedMessage
from protocol.messages.k03_metadata import (
    OPERATIONS_NOT_ASKED_FOR,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.schema import Message
from tools.bench.by_hand.parts import end_of, new, nullable_text_at, sized, tags_of, text_at

unpack_int = Struct(">i").unpack_from


unpack_int_and_byte = Struct(">iB").unpack_from
unpack_short_and_byte = Struct(">hB").unpack_from
unpack_topic = Struct(">16s?B").unpack_from
unpack_partition = Struct(">hiiiB").unpack_from
pack_int_and_byte = Struct(">iB").pack
pack_short = Struct(">h").pack
pack_topic = Struct(">16s?").pack
pack_partition = Struct(">hiii").pack
pack_int = Struct(">i").pack
UNPACK_NODES = [Struct(f">{count}i").unpack_from for count in range(8)]
PACK_NODES = [Struct(f">B{count}i").pack for count in range(8)]


def nodes_at(buffer: bytes, position: int) -> tuple[list[int], int]:
    """Read a list of node ids."""
    count = buffer[position]
    position += 1
    if count > 127:
        count, position = longer_varint(count, buffer, position)
    if not count:
        raise ValueError("null nodes")
    count -= 1
    unpack = UNPACK_NODES[count] if count < 8 else Struct(f">{count}i").unpack_from
    return [*unpack(buffer, position)], position + 4 * count


def nodes_of(nodes: list[int]) -> bytes:
    """Write a list of node ids."""
    count = len(nodes)
    return (
        PACK_NODES[count](count + 1, *nodes)
        if count < 8
        else varint(count + 1) + Struct(f">{count}i").pack(*nodes)
    )


def decode(buffer: bytes, position: int = 0) -> tuple[MetadataResponse, int]:
    """Read a MetadataResponse v12."""
    it = new(MetadataResponse)
    try:
        it.throttle_time_ms, count = unpack_int_and_byte(buffer, position)
        position += 5
        if count > 127:
            count, position = longer_varint(count, buffer, position)
        if not count:
            raise ValueError("null brokers")
        it.brokers = brokers = []
        for _ in range(1, count):
            broker = new(MetadataResponseBroker)
            broker.node_id = unpack_int(buffer, position)[0]
            broker.host, position = text_at(buffer, position + 4)
            broker.port = unpack_int(buffer, position)[0]
            broker.rack, position = nullable_text_at(buffer, position + 4)
            position = end_of(broker, buffer, position)
            brokers.append(broker)
        it.cluster_id, position = nullable_text_at(buffer, position)
        it.controller_id, count = unpack_int_and_byte(buffer, position)
        position += 5
        if count > 127:
            count, position = longer_varint(count, buffer, position)
        if not count:
            raise ValueError("null topics")
        it.topics = topics = []
        for _ in range(1, count):
            topic, position = topic_at(buffer, position)
            topics.append(topic)
        it.cluster_authorized_operations = OPERATIONS_NOT_ASKED_FOR
        it.error_code = 0
        return it, end_of(it, buffer, position)
    except (struct_error, IndexError, ValueError) as error:
        raise MalformedMessage(3, 12, "", str(error)) from error


def topic_at(buffer: bytes, position: int) -> tuple[MetadataResponseTopic, int]:
    """Read a topic."""
    topic = new(MetadataResponseTopic)
    topic.error_code, size = unpack_short_and_byte(buffer, position)
    topic.name, position = nullable_text_at(buffer, position + 2)
    topic.topic_id, topic.is_internal, size = unpack_topic(buffer, position)
    position += 18
    if size > 127:
        size, position = longer_varint(size, buffer, position)
    if not size:
        raise ValueError("null partitions")
    topic.partitions = partitions = []
    for _ in range(1, size):
        one = new(MetadataResponsePartition)
        one.error_code, one.partition_index, one.leader_id, one.leader_epoch, replicas = (
            unpack_partition(buffer, position)
        )
        position += 15
        if 0 < replicas < 9:
            replicas -= 1
            one.replica_nodes = [*UNPACK_NODES[replicas](buffer, position)]
            position += 4 * replicas
        else:
            one.replica_nodes, position = nodes_at(buffer, position - 1)
        one.isr_nodes, position = nodes_at(buffer, position)
        if buffer[position] == 1:
            one.offline_replicas = []
            position += 1
        else:
            one.offline_replicas, position = nodes_at(buffer, position)
        tags = buffer[position]
        position += 1
        if tags:
            position = keep_tags(tags, buffer, position, one)
        else:
            one._tags = None
        partitions.append(one)
    topic.topic_authorized_operations, tags = unpack_int_and_byte(buffer, position)
    position = end_of(topic, buffer, position + 4)
    return topic, position


def encode(it: Message) -> bytes:
    """Write a MetadataResponse v12."""
    try:
        if it.cluster_authorized_operations != OPERATIONS_NOT_ASKED_FOR:
            raise ValueError("a field is set that version 12 lacks")
        chunks = [pack_int(it.throttle_time_ms), varint(len(it.brokers) + 1)]
        append = chunks.append
        for broker in it.brokers:
            append(pack_int(broker.node_id))
            append(sized(broker.host))
            append(pack_int(broker.port))
            append(b"\x00" if broker.rack is None else sized(broker.rack))
            append(b"\x00" if broker._tags is None else tags_of(broker))
        append(b"\x00" if it.cluster_id is None else sized(it.cluster_id))
        append(pack_int(it.controller_id))
        append(varint(len(it.topics) + 1))
        for topic in it.topics:
            append(pack_short(topic.error_code))
            append(b"\x00" if topic.name is None else sized(topic.name))
            if len(topic.topic_id) != 16:
                raise ValueError("a topic id has 16 bytes")
            append(pack_topic(topic.topic_id, topic.is_internal))
            append(varint(len(topic.partitions) + 1))
            for one in topic.partitions:
                append(
                    pack_partition(
                        one.error_code, one.partition_index, one.leader_id, one.leader_epoch
                    )
                )
                append(nodes_of(one.replica_nodes))
                append(nodes_of(one.isr_nodes))
                append(nodes_of(one.offline_replicas) if one.offline_replicas else b"\x01")
                append(b"\x00" if one._tags is None else tags_of(one))
            append(pack_int(topic.topic_authorized_operations))
            append(b"\x00" if topic._tags is None else tags_of(topic))
        append(b"\x00" if it._tags is None else tags_of(it))
        return b"".join(chunks)
    except (struct_error, AttributeError, TypeError, ValueError) as error:
        raise MalformedMessage(3, 12, "", str(error)) from error
