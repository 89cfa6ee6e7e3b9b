"""How keys and values of records are shown: as text, or decoded for one of Kafka's internal topics.

Source: kafka.tools.DumpLogSegments of 3.9 (OffsetsMessageParser, TransactionLogMessageParser,
ClusterMetadataLogMessageParser).
"""

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from kraftsim.inspect.dump.rows import json_text
from kraftsim.inspect.json_lines import Json
from kraftsim.inspect.text import printable
from protocol.codec.declaration import snake_case
from protocol.coordinator.registry import CoordinatorTopic, parse_record, value_version
from protocol.malformed import MalformedMessage
from protocol.message_json import message_to_json
from protocol.metadata import registry as metadata
from protocol.remote_log import records as remote_log
from protocol.schema import Message, declaration_of
from protocol.version_prefixed import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    parse_assignment,
    parse_subscription,
    prefixed_version,
)

CONSUMER: Final = "consumer"
DELETED: Final = "<DELETE>"
TRANSACTION_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
CONTROL_CHARACTER: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Payload(NamedTuple):
    """Key and value of a record, as text and as JSON; None is not printed.

    `is_wrong`: they could not be decoded.
    """

    key: str | None
    payload: str | None
    key_json: Json = None
    payload_json: Json = None
    is_wrong: bool = False


Decode = Callable[[int, bytes | None, bytes | None], Payload]
"""Maps offset, key and value to their decoded form."""


class Decoder(Enum):
    """The decoder of records."""

    TEXT = "text"
    CLUSTER_METADATA = "cluster-metadata"
    OFFSETS = "offsets"
    TRANSACTION_LOG = "transaction-log"
    REMOTE_LOG_METADATA = "remote-log-metadata"
    SHARE_GROUP_STATE = "share-group-state"


TOPICS: Final[Mapping[str, Decoder]] = {
    "__cluster_metadata": Decoder.CLUSTER_METADATA,
    CoordinatorTopic.CONSUMER_OFFSETS.value: Decoder.OFFSETS,
    CoordinatorTopic.TRANSACTION_STATE.value: Decoder.TRANSACTION_LOG,
    CoordinatorTopic.SHARE_GROUP_STATE.value: Decoder.SHARE_GROUP_STATE,
    "__remote_log_metadata": Decoder.REMOTE_LOG_METADATA,
}


def decode_text(offset: int, key: bytes | None, value: bytes | None) -> Payload:
    """Show bytes as text; control characters are escaped, so that no record can control a
    terminal.
    """
    shown_key, shown_value = (None if each is None else _safe(each) for each in (key, value))
    return Payload(shown_key, shown_value, json_of_bytes(key), json_of_bytes(value))


def decode_cluster_metadata(offset: int, key: bytes | None, value: bytes | None) -> Payload:
    """Decode a record of the metadata log."""
    try:
        record = metadata.parse_record(value or b"")
        shown = _typed(record, metadata.record_version(value or b""))
    except MalformedMessage as malformed:
        return Payload(None, f"Error at {offset}, skipping. {malformed}", is_wrong=True)
    return Payload(None, json_text(shown), None, shown)


def decode_remote_log_metadata(offset: int, key: bytes | None, value: bytes | None) -> Payload:
    """Decode a record of `__remote_log_metadata`, as JSON: Kafka's tool prints the Java class's
    toString.
    """
    try:
        record = remote_log.parse_record(value or b"")
        shown = _typed(record, remote_log.record_version(value or b""))
    except MalformedMessage as malformed:
        return Payload(None, f"Error at offset {offset}, skipping. {malformed}", is_wrong=True)
    return Payload(None, json_text(shown), None, shown)


def decode_offsets(offset: int, key: bytes | None, value: bytes | None) -> Payload:
    """Decode a record of `__consumer_offsets`, including the members of a classic group."""
    return _coordinated(CoordinatorTopic.CONSUMER_OFFSETS, offset, key, value)


def decode_share_group_state(offset: int, key: bytes | None, value: bytes | None) -> Payload:
    """Open a record of `__share_group_state`."""
    return _coordinated(CoordinatorTopic.SHARE_GROUP_STATE, offset, key, value)


def decode_transaction_log(offset: int, key: bytes | None, value: bytes | None) -> Payload:
    """Decode a record of `__transaction_state`; the partitions are in the order of the record."""
    try:
        found = parse_record(CoordinatorTopic.TRANSACTION_STATE, key or b"", value)
        if found is None:
            return Payload(f"unknown::version={prefixed_version(key or b'')}", None)
    except MalformedMessage as malformed:
        return Payload(f"Error at offset {offset}, skipping. {malformed}", None, is_wrong=True)
    record_key, record = found
    shown_key: Json = {"transactionalId": record_key.transactional_id}
    text = f"transaction_metadata::transactionalId={record_key.transactional_id}"
    if record is None:
        return Payload(text, DELETED, shown_key, None)
    return Payload(
        text,
        _transaction_text(record),
        shown_key,
        message_to_json(record, value_version(value or b"")),
    )


DECODERS: Final[Mapping[Decoder, Decode]] = {
    Decoder.TEXT: decode_text,
    Decoder.CLUSTER_METADATA: decode_cluster_metadata,
    Decoder.OFFSETS: decode_offsets,
    Decoder.TRANSACTION_LOG: decode_transaction_log,
    Decoder.REMOTE_LOG_METADATA: decode_remote_log_metadata,
    Decoder.SHARE_GROUP_STATE: decode_share_group_state,
}


def _typed(record: Message, version: int) -> dict[str, Json]:
    name = snake_case(declaration_of(type(record)).name).upper()
    return {"type": name, "version": version, "data": message_to_json(record, version)}


def _coordinated(
    topic: CoordinatorTopic, offset: int, key: bytes | None, value: bytes | None
) -> Payload:
    if key is None:
        return Payload(
            f"Error at offset {offset}, skipping. a record without a key", None, is_wrong=True
        )
    try:
        found = parse_record(topic, key, value)
        record_type = prefixed_version(key)
        if found is None:
            return Payload(f"Unknown record type {record_type} at offset {offset}, skipping.", None)
        record_key, record = found
        shown_key: Json = {"type": str(record_type), "data": message_to_json(record_key, 0)}
        if record is None:
            return Payload(json_text(shown_key), DELETED, shown_key, None)
        version = value_version(value or b"")
        data = message_to_json(record, version)
    except MalformedMessage as malformed:
        return Payload(f"Error at offset {offset}, skipping. {malformed}", None, is_wrong=True)
    if (
        declaration_of(type(record)).name == "GroupMetadataValue"
        and record.protocol_type == CONSUMER
    ):
        _open_members(record.members, data)
    shown: Json = {"version": str(version), "data": data}
    return Payload(json_text(shown_key), json_text(shown), shown_key, shown)


def _open_members(members: list[Message], data: dict[str, Json]) -> None:
    """Replace embedded consumer protocol messages by their content; other bytes stay unchanged."""
    shown = data["members"]
    assert isinstance(shown, list)
    for member, row in zip(members, shown, strict=True):
        assert isinstance(row, dict)
        for name, parse, cls in (
            ("subscription", parse_subscription, ConsumerProtocolSubscription),
            ("assignment", parse_assignment, ConsumerProtocolAssignment),
        ):
            content = getattr(member, name)
            try:
                newest = declaration_of(cls).versions.last
                row[name] = message_to_json(parse(content), min(prefixed_version(content), newest))
            except MalformedMessage:
                continue


def _transaction_text(record: Message) -> str:
    state = record.transaction_status
    name = TRANSACTION_STATES[state] if 0 <= state < len(TRANSACTION_STATES) else f"unknown {state}"
    partitions = [
        f"{each.topic}-{partition}"
        for each in record.transaction_partitions or ()
        for partition in each.partition_ids
    ]
    return (
        f"producerId:{record.producer_id},producerEpoch:{record.producer_epoch},state={name},"
        f"partitions=[{','.join(partitions)}],txnLastUpdateTimestamp="
        f"{record.transaction_last_update_timestamp_ms},txnTimeoutMs="
        f"{record.transaction_timeout_ms}"
    )


def _safe(content: bytes) -> str:
    return CONTROL_CHARACTER.sub(
        lambda found: found[0].encode("unicode_escape").decode(), content.decode(errors="replace")
    )


def json_of_bytes(content: bytes | None) -> Json:
    """Return printable bytes as a string, others as {"hex": "..."}."""
    if content is None:
        return None
    text = printable(content)
    return {"hex": content.hex()} if text is None else text
