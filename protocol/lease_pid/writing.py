"""Messages on their way into a partition, each of which says whose it is: id, generation and sequence number are fields of the message itself.

So they are replicated with it, and whoever leads next knows what the leader before knew.   Source: the lease_pid draft.
"""

from protocol.schema import array, byte_string, int16, int32, int64, message, string, structure, uint32


@structure
class LeasedMessage:
    """One message. With `producer_id` 0 the other two numbers mean nothing."""

    producer_id: int = uint32(kafka_name="pid")
    generation: int = int32()
    sequence_number: int = int32()
    timestamp_ms: int = int64()
    key: bytes = byte_string()
    value: bytes = byte_string()


@message(kind="lease-pid", versions="0")
class LeasedProduceRequest:
    """Append these messages, one after the other, in one partition; the first that is refused ends it."""

    topic: str = string()
    partition: int = int32()
    timeout_ms: int = int32()
    messages: list[LeasedMessage] = array(LeasedMessage)


@message(kind="lease-pid", versions="0")
class LeasedProduceResponse:
    """`taken` of the messages are in the log, on every replica that may lead: those appended now, from `base_offset` on, and those that were there.

    `repeated` of them were there before. `error_code` is why the next one is not. `generation` is the one that the partition goes by.
    """

    error_code: int = int16(kafka_name="error")
    taken: int = int32()
    repeated: int = int32()
    base_offset: int = int64(default=-1)
    generation: int = int32(default=-1)
