"""Writes to a partition; each message identifies its producer: id, generation and sequence number
are fields of the message itself.

So they are replicated with it, and the next leader has the state of the previous one.
Source: the lease_pid draft.
"""

from protocol.schema import (
    array,
    byte_string,
    int16,
    int32,
    int64,
    message,
    string,
    structure,
    uint32,
)


@structure
class LeasedMessage:
    """One message. With `producer_id` 0 the other two numbers have no meaning."""

    producer_id: int = uint32(kafka_name="pid")
    generation: int = int32()
    sequence_number: int = int32()
    timestamp_ms: int = int64()
    key: bytes = byte_string()
    value: bytes = byte_string()


@message(kind="lease-pid", versions="0")
class LeasedProduceRequest:
    """Append these messages, one after the other, to one partition; the first rejected one ends
    it.
    """

    topic: str = string()
    partition: int = int32()
    timeout_ms: int = int32()
    messages: list[LeasedMessage] = array(LeasedMessage)


@message(kind="lease-pid", versions="0")
class LeasedProduceResponse:
    """`taken` of the messages are in the log, on every replica that may become leader: those
    appended now, from `base_offset` on, and duplicates.

    `repeated` of them were duplicates. `error_code` is why the next one is not in the log.
    `generation` is the one that the partition uses.
    """

    error_code: int = int16(kafka_name="error")
    taken: int = int32()
    repeated: int = int32()
    base_offset: int = int64(default=-1)
    generation: int = int32(default=-1)
