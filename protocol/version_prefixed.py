"""Messages with a version prefix of two bytes: most of what Kafka persists or embeds in a bytes
field.

Whether a version after the newest known one is accepted is the reader's decision: it works if only
fields at the end were added.
Source: MessageUtil.toVersionPrefixedBytes; ConsumerProtocol, ControlRecordUtils (versions after the
newest are read as the newest).
"""

from protocol.codec.fixed import fixed
from protocol.codec.message_codec import compiled
from protocol.malformed import MalformedMessage
from protocol.schema import (
    Message,
    array,
    boolean,
    byte_string,
    declaration_of,
    int16,
    int32,
    message,
    string,
    structure,
)


@structure
class VersionPrefix:
    """The version, before the message."""

    version: int = int16()


PREFIX = fixed(VersionPrefix)
PREFIX_BYTES = PREFIX.size


def build_version_prefixed(message: Message, version: int) -> bytes:
    """Return the version and the message."""
    cls: type = type(message)
    return PREFIX.pack(version) + compiled(cls, version).encode(message)


def parse_version_prefixed(cls: type, content: bytes, *, later_as_newest: bool = False) -> Message:
    """Return the message; trailing bytes are ignored, as Kafka does. Raises MalformedMessage.

    `later_as_newest`: a version after the newest declared one is read as that.
    """
    found = prefixed_version(content)
    versions = declaration_of(cls).versions
    version = min(found, versions.last) if later_as_newest else found
    if version not in versions:
        raise MalformedMessage(
            None, found, declaration_of(cls).name, f"version {found}, not {versions}", 0
        )
    return compiled(cls, version).decode(content, PREFIX_BYTES)[0]


def prefixed_version(content: bytes) -> int:
    """Return the version prefix. Raises MalformedMessage."""
    if len(content) < PREFIX_BYTES:
        raise MalformedMessage(
            None, None, "", f"{len(content)} bytes are too short for a version", 0
        )
    version: int = PREFIX.unpack_from(content)[0]
    return version


# --------------------------------------------------------------------------------------------------
# The principal of a forwarded request in an Envelope: a version, then type and name of the
# principal
#
# A cluster with a custom principal builder sends another format.
# Source: KIP-590; DefaultKafkaPrincipalBuilder, DefaultPrincipalData.json.

VERSION = 0


@message(kind="data", versions="0", flexible="0+")
class DefaultPrincipalData:
    """A principal such as User:ANONYMOUS."""

    principal_type: str = string(kafka_name="Type")
    name: str = string()
    token_authenticated: bool = boolean()


def build_principal(principal: DefaultPrincipalData) -> bytes:
    """Return the bytes that an Envelope carries."""
    return build_version_prefixed(principal, VERSION)


def parse_principal(content: bytes) -> DefaultPrincipalData:
    """Return the principal.

    Raises MalformedMessage; a controller then returns PRINCIPAL_DESERIALIZATION_FAILURE.
    """
    found: DefaultPrincipalData = parse_version_prefixed(DefaultPrincipalData, content)
    return found


# --------------------------------------------------------------------------------------------------
# The embedded protocol of classic consumer groups: messages between members that are opaque bytes
# to the coordinator
#
# Subscriptions are sent in JoinGroup to the group leader, assignments in SyncGroup to the members.
# A version after the newest known one is read as that, because members of several releases meet in
# a group.
# Source: KIP-429 (v1: owned partitions), KIP-792 (v2: generation), KIP-881 (v3: rack);
# ConsumerProtocol, ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json.

NEWEST_VERSION = 3


@structure(kafka_name="TopicPartition")
class OwnedPartitions:
    """The partitions of one topic that the member owns."""

    topic: str = string(since=1)
    partitions: list[int] = array(int32, since=1)


@message(kind="data", versions="0-3", flexible="none")
class ConsumerProtocolSubscription:
    """The topics that a member subscribes to, and its owned partitions."""

    topics: list[str] = array(string)
    user_data: bytes | None = byte_string(nullable="0+", default=None)
    owned_partitions: list[OwnedPartitions] = array(OwnedPartitions, since=1, ignorable=True)
    generation_id: int = int32(since=2, default=-1, ignorable=True)
    rack_id: str | None = string(since=3, nullable="3+", default=None, ignorable=True)


@structure(kafka_name="TopicPartition")
class AssignedPartitions:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


@message(kind="data", versions="0-3", flexible="none")
class ConsumerProtocolAssignment:
    """The partitions that are assigned to a member."""

    assigned_partitions: list[AssignedPartitions] = array(AssignedPartitions)
    user_data: bytes | None = byte_string(nullable="0+", default=None)


def build_subscription(
    subscription: ConsumerProtocolSubscription, version: int = NEWEST_VERSION
) -> bytes:
    """Return the metadata of a member in JoinGroup."""
    return build_version_prefixed(subscription, version)


def parse_subscription(content: bytes) -> ConsumerProtocolSubscription:
    """Return the subscription of a member. Raises MalformedMessage."""
    found: ConsumerProtocolSubscription = parse_version_prefixed(
        ConsumerProtocolSubscription, content, later_as_newest=True
    )
    return found


def build_assignment(
    assignment: ConsumerProtocolAssignment, version: int = NEWEST_VERSION
) -> bytes:
    """Return the assignment of a member in SyncGroup."""
    return build_version_prefixed(assignment, version)


def parse_assignment(content: bytes) -> ConsumerProtocolAssignment:
    """Return the assignment of a member. Raises MalformedMessage."""
    found: ConsumerProtocolAssignment = parse_version_prefixed(
        ConsumerProtocolAssignment, content, later_as_newest=True
    )
    return found
