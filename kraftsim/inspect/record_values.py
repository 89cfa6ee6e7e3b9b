"""Decodes keys and values of records that Kafka itself writes: control records, the metadata log,
the coordinators' topics.

The topic selects the decoder; without one, a value counts as a metadata record if it decodes as one
from its first byte to its last.
Source: ControlRecordUtils; MetadataRecordSerde (KIP-631), RemoteLogMetadataSerde (KIP-405),
CoordinatorRecordSerde.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from kraftsim.inspect.dissection import Dissector, Unreadable
from kraftsim.inspect.parts import DecodeTrouble, Part, joined
from protocol.codec.tree import layout_of
from protocol.coordinator import registry as coordinator
from protocol.coordinator.registry import CoordinatorTopic
from protocol.malformed import MalformedMessage
from protocol.metadata import registry as metadata
from protocol.records.control_records import MESSAGES, ControlType, EndTxnMarker, control_type
from protocol.records.record_frames import FRAME_VERSION
from protocol.remote_log import records as remote_log
from protocol.schema import declaration_of
from protocol.version_prefixed import PREFIX_BYTES

METADATA_TOPIC: Final = "__cluster_metadata"
REMOTE_LOG_TOPIC: Final = "__remote_log_metadata"
Opener = Callable[[Part, Part, str], list[DecodeTrouble]]
"""Decodes key and value of a record; the path is that of the record."""


def open_control_record(key: Part, value: Part, path: str) -> list[DecodeTrouble]:
    """Name the type of a control record, and decode its content."""
    try:
        kind = control_type(_content(key))
    except MalformedMessage as malformed:
        return [_trouble(key, joined(path, "key"), 0, malformed.reason)]
    if kind is None:
        key.emit = "a control record of a kind that is not known here"
        return []
    key.emit = kind.name
    content = _content(value)
    if content is None or len(content) < 2:
        return [_trouble(value, joined(path, "value"), 0, "it is too short for a version")]
    cls = MESSAGES[ControlType(kind)]
    version = min(int.from_bytes(content[:2], signed=True), declaration_of(cls).versions.last)
    if version not in declaration_of(cls).versions:
        return [_trouble(value, joined(path, "value"), 0, f"version {version} of {cls.__name__}")]
    return open_message(
        value, cls, version, 2 if cls is EndTxnMarker else 0, joined(path, "value"), may_go_on=True
    )


def open_metadata_record(key: Part, value: Part, path: str) -> list[DecodeTrouble]:
    """Decode the value of a record of the metadata log."""
    return _open_frame(value, joined(path, "value"), metadata.record_class)


def open_remote_log_record(key: Part, value: Part, path: str) -> list[DecodeTrouble]:
    """Decode the value of a record of `__remote_log_metadata`."""
    return _open_frame(value, joined(path, "value"), remote_log.record_class)


def open_coordinator_record(
    topic: CoordinatorTopic, key: Part, value: Part, path: str
) -> list[DecodeTrouble]:
    """Decode key and value of a record of a coordinators' topic; unknown types are skipped, as
    Kafka's readers do.
    """
    content = _content(key)
    if content is None or len(content) < PREFIX_BYTES:
        return [_trouble(key, joined(path, "key"), 0, "it is too short for a record type")]
    record_type = int.from_bytes(content[:PREFIX_BYTES], signed=True)
    try:
        classes = coordinator.record_classes(topic, record_type)
    except KeyError:
        key.emit = f"a record of type {record_type}, which is not known here"
        return []
    troubles = open_message(
        key, classes.key, coordinator.KEY_VERSION, PREFIX_BYTES, joined(path, "key"), may_go_on=True
    )
    return (
        troubles
        if _content(value) is None
        else troubles + open_version_prefixed(value, classes.value, joined(path, "value"))
    )


def open_version_prefixed(
    value: Part, cls: type, path: str, *, later_as_newest: bool = False
) -> list[DecodeTrouble]:
    """Decode a message with a version prefix."""
    content = _content(value)
    if content is None or len(content) < PREFIX_BYTES:
        return [_trouble(value, path, 0, "it is too short for a version")]
    version = int.from_bytes(content[:PREFIX_BYTES], signed=True)
    versions = declaration_of(cls).versions
    if later_as_newest:
        version = min(version, versions.last)
    if version not in versions:
        return [_trouble(value, path, 0, f"{cls.__name__} has versions {versions}, not {version}")]
    return open_message(value, cls, version, PREFIX_BYTES, path, may_go_on=True)


def _open_frame(value: Part, path: str, record_class: Callable[[int], type]) -> list[DecodeTrouble]:
    content = _content(value)
    if content is None or len(content) < 3:
        return [_trouble(value, path, 0, "it is too short for number and version")]
    frame_version, number, version = content[:3]
    if frame_version != FRAME_VERSION:
        return [_trouble(value, path, 0, f"frame version {frame_version}")]
    try:
        cls = record_class(number)
    except KeyError:
        return [_trouble(value, path, 1, f"there is no record {number}")]
    if version not in declaration_of(cls).versions:
        return [
            _trouble(
                value,
                path,
                2,
                f"{cls.__name__} has versions {declaration_of(cls).versions}, not {version}",
            )
        ]
    return open_message(value, cls, version, 3, path)


def is_metadata_record(content: bytes | None) -> bool:
    """Return whether a value is a metadata record from its first byte to its last."""
    if content is None or len(content) < 4:
        return False
    value = Part("value", "bytes", 0, len(content), content)
    return not open_metadata_record(Part("key", "bytes", 0, 0), value, "")


def open_message(
    value: Part, cls: type, version: int, position: int, path: str, *, may_go_on: bool = False
) -> list[DecodeTrouble]:
    """Put the fields of a message below the bytes that contain it; return its errors."""
    content = _content(value)
    assert content is not None, "there are bytes to open"
    dissector = Dissector(content)
    parts: list[Part] = []
    troubles = []
    try:
        end = dissector.message(layout_of(cls, version), position, parts)
        if end < len(content) and not may_go_on:
            troubles.append(
                _trouble(
                    value,
                    path,
                    end,
                    f"{len(content) - end} bytes are left behind the {cls.__name__} v{version}",
                )
            )
    except Unreadable as failure:
        dissector.oddities.append(dissector.trouble(failure))
    troubles += [
        _trouble(value, joined(path, found.path), found.position, found.reason)
        for found in dissector.oddities
    ]
    move(parts, _start_of(value), uncompressed=value.uncompressed)
    value.parts = parts
    value.kind = cls.__name__
    value.emit = f"{declaration_of(cls).name} v{version}"
    return troubles


OPENERS: Final[dict[str, Opener]] = {
    METADATA_TOPIC: open_metadata_record,
    REMOTE_LOG_TOPIC: open_remote_log_record,
    **{topic.value: partial(open_coordinator_record, topic) for topic in CoordinatorTopic},
}
"""By topic."""


def move(parts: list[Part], by: int, *, uncompressed: bool) -> None:
    """Shift positions within a value by the position of the value."""
    for part in parts:
        part.start += by
        part.end += by if part.end >= 0 else 0
        part.uncompressed = uncompressed
        move(part.parts or [], by, uncompressed=uncompressed)


def _content(part: Part) -> bytes | None:
    return part.value if isinstance(part.value, bytes) else None


def _start_of(part: Part) -> int:
    """Return the start of the bytes of a part, after their length."""
    content = _content(part)
    return part.end - len(content) if content is not None else part.start


def _trouble(part: Part, path: str, position: int, reason: str) -> DecodeTrouble:
    return DecodeTrouble(
        path=path,
        position=_start_of(part) + position,
        reason=reason,
        uncompressed=part.uncompressed,
    )
