"""Control records: what brokers and voters write into a log about the log itself.

Consumers skip them, yet each has an offset.

The key of the record contains its type; the value is a message. The markers of transactions and the
voters' records share the numbering.
Source: KIP-98 (markers), KIP-595 (leader change), KIP-630 (snapshots), KIP-853 (voters);
ControlRecordType, ControlRecordUtils.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cache, lru_cache
from typing import Final

from protocol.codec.message_codec import compiled
from protocol.malformed import MalformedMessage
from protocol.records.batches import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, build_batch
from protocol.records.record import UNASSIGNED_OFFSET, Record
from protocol.schema import (
    Message,
    array,
    declaration_of,
    int16,
    int32,
    int64,
    message,
    string,
    structure,
    uint16,
    uuid,
)
from protocol.schema import struct as structure_field
from protocol.version_prefixed import (
    build_version_prefixed,
    parse_version_prefixed,
    prefixed_version,
)

KEY_VERSION: Final = 0
END_TXN_MARKER_VERSION: Final = 0


class ControlType(IntEnum):
    """The type of a control record."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@message(kind="data", versions="0", flexible="none", kafka_name="ControlRecordTypeSchema")
class ControlRecordKey:
    """The key of a control record, with a version prefix."""

    control_type: int = int16(kafka_name="Type")


@message(kind="data", versions="0", flexible="none")
class EndTxnMarker:
    """The end of a transaction; the type in the key is commit or abort.

    The value has a version prefix.
    """

    coordinator_epoch: int = int32()


@structure
class Voter:
    """A voter of the quorum; its directory id was added in 3.9, and v0 is still written."""

    voter_id: int = int32()
    voter_directory_id: bytes = uuid(since=1)


@message(kind="data", versions="0-1", flexible="0+")
class LeaderChangeMessage:
    """The first record of every epoch of the metadata log: the leader, the voters, and those that
    granted their vote.
    """

    version: int = int16()
    leader_id: int = int32()
    voters: list[Voter] = array(Voter)
    granting_voters: list[Voter] = array(Voter)


@message(kind="data", versions="0", flexible="0+")
class SnapshotHeaderRecord:
    """The first record of a metadata snapshot, with the time of the last record that it covers."""

    version: int = int16()
    last_contained_log_timestamp: int = int64()


@message(kind="data", versions="0", flexible="0+")
class SnapshotFooterRecord:
    """The last record of a metadata snapshot: a file without it is incomplete."""

    version: int = int16()


@message(kind="data", versions="0", flexible="0+")
class KRaftVersionRecord:
    """From here on the quorum uses this kraft.version (1: the voters are in the log)."""

    version: int = int16()
    k_raft_version: int = int16()


@structure
class Endpoint:
    """An endpoint of a voter."""

    name: str = string()
    host: str = string()
    port: int = uint16()


@structure
class KRaftVersionFeature:
    """The kraft.versions that a voter supports, both inclusive."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()


@structure(kafka_name="Voter")
class RegisteredVoter:
    """A voter with all its properties."""

    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    endpoints: list[Endpoint] = array(Endpoint)
    k_raft_version_feature: KRaftVersionFeature = structure_field(KRaftVersionFeature)


@message(kind="data", versions="0", flexible="0+")
class VotersRecord:
    """The voters from here on."""

    version: int = int16()
    voters: list[RegisteredVoter] = array(RegisteredVoter)


MESSAGES: Final[Mapping[ControlType, type]] = {
    ControlType.ABORT: EndTxnMarker,
    ControlType.COMMIT: EndTxnMarker,
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}


def control_type(key: bytes | None) -> ControlType | None:
    """Return the type in a control record's key, None for an unknown, newer one.

    Raises MalformedMessage.
    """
    if key is None:
        raise MalformedMessage(None, None, "control record key", "it is null")
    number = parse_version_prefixed(ControlRecordKey, key, later_as_newest=True).control_type
    try:
        return ControlType(number)
    except ValueError:
        return None


def parse_control_record(key: bytes | None, value: bytes | None) -> Message | None:
    """Return the message in a control record, None for an unknown, newer type: readers skip it.

    For an EndTxnMarker, `control_type` is commit or abort. Raises MalformedMessage.
    """
    kind = control_type(key)
    if kind is None:
        return None
    if value is None:
        raise MalformedMessage(None, None, kind.name, "it has no value")
    cls = MESSAGES[kind]
    if cls is EndTxnMarker:
        return parse_version_prefixed(cls, value, later_as_newest=True)
    versions = declaration_of(cls).versions
    version = min(
        prefixed_version(value), versions.last
    )  # the first field, and at the same time the version; a later one only adds fields
    if version not in versions:
        raise MalformedMessage(None, version, kind.name, f"version {version}")
    return compiled(cls, version).decode(value, 0)[0]


def build_control_record(kind: ControlType, body: Message) -> tuple[bytes, bytes]:
    """Return key and value. All but markers have their version in their first field."""
    cls: type = type(body)
    assert cls is MESSAGES[kind], f"{cls.__name__} is not what {kind.name} carries"
    value = (
        build_version_prefixed(body, END_TXN_MARKER_VERSION)
        if cls is EndTxnMarker
        else compiled(cls, body.version).encode(body)
    )
    return _key(kind), value


@cache
def _key(kind: ControlType) -> bytes:
    return build_version_prefixed(ControlRecordKey(control_type=kind), KEY_VERSION)


def build_control_batch(
    records: Sequence[tuple[ControlType, Message]],
    *,
    base_offset: int,
    timestamp: int,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Return a batch of the voters' control records: without a producer, never compressed."""
    return build_batch(
        [
            Record(UNASSIGNED_OFFSET, timestamp, *build_control_record(kind, body))
            for kind, body in records
        ],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        control=True,
    )


def build_leader_change(
    *,
    leader_id: int,
    voters: Sequence[int],
    granting_voters: Sequence[int],
    base_offset: int,
    leader_epoch: int,
    timestamp: int,
) -> bytes:
    """Return the batch that a new leader of the metadata log writes before anything else (message
    version 0, as all releases do).
    """
    body = LeaderChangeMessage(
        version=0,
        leader_id=leader_id,
        voters=[Voter(voter_id=voter_id) for voter_id in voters],
        granting_voters=[Voter(voter_id=voter_id) for voter_id in granting_voters],
    )
    return build_control_batch(
        [(ControlType.LEADER_CHANGE, body)],
        base_offset=base_offset,
        timestamp=timestamp,
        leader_epoch=leader_epoch,
    )


@lru_cache(maxsize=64)
def build_transaction_marker(
    *,
    commits: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Return the batch that ends a transaction in one partition.

    The other partitions of the transaction usually get the same bytes at the same time: building
    them takes 25 us, finding them 1 us.
    """
    assert producer_id != NO_PRODUCER_ID and producer_epoch != NO_PRODUCER_EPOCH, (
        "a marker is for a producer"
    )
    kind = ControlType.COMMIT if commits else ControlType.ABORT
    key, value = build_control_record(kind, EndTxnMarker(coordinator_epoch=coordinator_epoch))
    return build_batch(
        [Record(timestamp=timestamp, key=key, value=value)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
