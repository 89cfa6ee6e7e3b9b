"""Decodes messages of the formats 0 and 1, including compressed inner messages.

Source: LegacyRecord, AbstractLegacyRecordBatch.
"""

from typing import Final

from kraftsim.inspect.parts import DecodeTrouble, Part
from protocol.malformed import MalformedMessage
from protocol.records.batches import COMPRESSION_MASK, TimestampType
from protocol.records.message_sets import KEY_POSITIONS, OldMessage

MESSAGE: Final = "message"
HEAD_FIELDS: Final = (
    ("offset", "int64", 0, 8),
    ("size", "int32", 8, 12),
    ("crc", "uint32", 12, 16),
    ("magic", "int8", 16, 17),
    ("attributes", "int8", 17, 18),
)
CODECS: Final = ("no compression", "gzip", "snappy", "lz4", "zstd")


def dissect_old_message(
    message: OldMessage,
    name: str,
    path: str,
    troubles: list[DecodeTrouble],
    *,
    with_records: bool,
    uncompressed: bool = False,
) -> Part:
    """Return a message as a part; errors are appended to `troubles`."""
    start, end = message.position, message.position + message.size_bytes
    values = (
        message.offset,
        message.size_bytes - 12,
        message.crc,
        message.magic,
        message.attributes,
    )
    part = Part(name, MESSAGE, start, end, parts=[], uncompressed=uncompressed)
    assert part.parts is not None
    for (field, kind, first, after), value in zip(HEAD_FIELDS, values, strict=True):
        part.parts.append(
            Part(field, kind, start + first, start + after, value, uncompressed=uncompressed)
        )
    crc, attributes = part.parts[2], part.parts[4]
    crc.emit = "ok" if message.crc_is_valid() else "wrong"
    if crc.emit == "wrong":
        troubles.append(
            DecodeTrouble(
                path=f"{path}.crc",
                position=start + 12,
                reason="the checksum does not fit the bytes",
                uncompressed=uncompressed,
            )
        )
    attributes.emit = _attribute_text(message)
    if message.magic:
        part.parts.append(
            Part(
                "timestamp",
                "int64",
                start + 18,
                start + 26,
                message.timestamp,
                uncompressed=uncompressed,
            )
        )
    try:
        _append_content(message, part, path, troubles, with_records)
    except MalformedMessage as malformed:
        troubles.append(
            DecodeTrouble(
                path=path,
                position=start + KEY_POSITIONS[message.magic],
                reason=malformed.reason,
                uncompressed=uncompressed,
            )
        )
    return part


def _append_content(
    message: OldMessage, part: Part, path: str, troubles: list[DecodeTrouble], with_records: bool
) -> None:
    """Append key and value, or the messages in a wrapper."""
    assert part.parts is not None
    key_start = part.start + KEY_POSITIONS[message.magic]
    key, value = message.key, message.value
    key_end = key_start + 4 + len(key or b"")
    part.parts.append(Part("key", "bytes", key_start, key_end, key, uncompressed=part.uncompressed))
    if not message.attributes & COMPRESSION_MASK:
        part.parts.append(
            Part("value", "bytes", key_end, part.end, value, uncompressed=part.uncompressed)
        )
    elif with_records:
        inner = Part(
            "messages", "messages", key_end, part.end, parts=[], uncompressed=part.uncompressed
        )
        part.parts.append(inner)
        assert inner.parts is not None
        for index, each in enumerate(message.inner_messages()):
            place = f"{path}.messages[{index}]"
            inner.parts.append(
                dissect_old_message(
                    each, f"[{index}]", place, troubles, with_records=True, uncompressed=True
                )
            )


def _attribute_text(message: OldMessage) -> str:
    codec = message.attributes & COMPRESSION_MASK
    word = CODECS[codec] if codec < len(CODECS) else f"unknown codec {codec}"
    return (
        f"{word}, log append time"
        if message.timestamp_type is TimestampType.LOG_APPEND_TIME
        else word
    )
