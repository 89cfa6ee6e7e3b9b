"""The embedded protocol of classic consumer groups: messages between members that are opaque bytes
to the coordinator.

Subscriptions are sent in JoinGroup to the group leader, assignments in SyncGroup to the members. A
version after the newest known one is read as that, because members of several releases meet in a
group.
Source: KIP-429 (v1: owned partitions), KIP-792 (v2: generation), KIP-881 (v3: rack);
ConsumerProtocol, ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json.
"""

from protocol.schema import array, byte_string, int32, message, string, structure
from protocol.version_prefixed import build_version_prefixed, parse_version_prefixed

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
