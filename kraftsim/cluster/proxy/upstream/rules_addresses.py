"""Which responses name addresses of nodes that a client then connects to, and how these are
replaced: bytes in, bytes out.

A response without an address, and one that cannot be read, stays byte for byte what it was. In a
message that is changed only host and port differ: tagged fields that kraftsim does not know stay.

The replies to ApiVersions are limited: a version of one of these APIs that is newer than those
kraftsim can read would hand addresses to clients that the proxy does not see.
Source: Metadata, FindCoordinator, DescribeCluster (KIP-700, KIP-919); KIP-951 (node endpoints in
Produce and Fetch), KIP-932 (the same for share groups).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, cast

from protocol.api_keys import ApiKey
from protocol.codec.slow import tag_spans
from protocol.frames import SIZE
from protocol.malformed import MalformedMessage
from protocol.messages.k03_metadata import MetadataResponse
from protocol.messages.k18_api_versions import ApiVersionsResponse
from protocol.messages.k60_describe_cluster import CONTROLLERS, DescribeClusterResponse
from protocol.messages.registry import response_class
from protocol.requests import UnsupportedApi, route_of
from protocol.schema import Message, declaration_of

SIZE_BYTES: Final = 4
HEADER_V0_BYTES: Final = 8
"""Size and correlation id."""
Address = tuple[str, int]
"""Host and port."""


class NodeKind(Enum):
    """The ids of brokers and of controllers are different series."""

    BROKER = "broker"
    CONTROLLER = "controller"


class Substitute(Protocol):
    """What a node's address is replaced with."""

    def __call__(self, kind: NodeKind, node_id: int, address: Address) -> Address:
        """Return the address at which clients reach the node."""
        ...


class _Endpoint(Protocol):
    """What has an address in a message."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class AddressPlace:
    """Where a response has addresses: in the elements of `array`, in the response itself if that is
    empty; from `first_version` on. `structure` is Kafka's name of what has the host and the port.
    """

    array: str
    structure: str
    node_id: str = "node_id"
    first_version: int = 0


ADDRESS_PLACES: Final = {
    int(ApiKey.METADATA): (AddressPlace("brokers", "MetadataResponseBroker"),),
    int(ApiKey.FIND_COORDINATOR): (
        AddressPlace("", ""),
        AddressPlace("coordinators", "Coordinator", first_version=4),
    ),
    int(ApiKey.DESCRIBE_CLUSTER): (AddressPlace("brokers", "DescribeClusterBroker", "broker_id"),),
    int(ApiKey.PRODUCE): (AddressPlace("node_endpoints", "NodeEndpoint", first_version=10),),
    int(ApiKey.FETCH): (AddressPlace("node_endpoints", "NodeEndpoint", first_version=16),),
    int(ApiKey.SHARE_FETCH): (AddressPlace("node_endpoints", "NodeEndpoint"),),
    int(ApiKey.SHARE_ACKNOWLEDGE): (AddressPlace("node_endpoints", "NodeEndpoint"),),
}
"""The APIs whose responses are read."""
FIRST_VERSIONS: Final = {
    **{key: min(place.first_version for place in places) for key, places in ADDRESS_PLACES.items()},
    int(ApiKey.API_VERSIONS): 0,
}
"""The first version of each API whose responses are read."""
LAST_VERSIONS: Final = {
    key: declaration_of(response_class(key)).versions.last for key in ADDRESS_PLACES
}
"""The last version of each that kraftsim can read."""
IN_THE_QUORUM: Final = "goes between the nodes of a quorum, which find each other by their settings"
OF_AN_APPLICATION: Final = "is application.server of a Kafka Streams application"
OF_A_CLIENT: Final = "is where a client connects from: the proxy's own address"
OF_A_RULE: Final = "is part of an ACL"
NOT_REPLACED: Final = {
    ("BeginQuorumEpochResponse", "NodeEndpoint"): IN_THE_QUORUM,
    ("EndQuorumEpochResponse", "NodeEndpoint"): IN_THE_QUORUM,
    ("FetchSnapshotResponse", "NodeEndpoint"): IN_THE_QUORUM,
    ("UpdateRaftVoterResponse", "CurrentLeader"): IN_THE_QUORUM,
    ("VoteResponse", "NodeEndpoint"): IN_THE_QUORUM,
    ("DescribeQuorumResponse", "Listener"): "is for people; no client connects to it",
    ("StreamsGroupHeartbeatResponse", "Endpoint"): OF_AN_APPLICATION,
    ("StreamsGroupDescribeResponse", "Endpoint"): OF_AN_APPLICATION,
    ("StreamsGroupDescribeResponse", "Member"): OF_A_CLIENT,
    ("ConsumerGroupDescribeResponse", "Member"): OF_A_CLIENT,
    ("DescribeGroupsResponse", "DescribedGroupMember"): OF_A_CLIENT,
    ("ShareGroupDescribeResponse", "Member"): OF_A_CLIENT,
    ("DeleteAclsResponse", "DeleteAclsMatchingAcl"): OF_A_RULE,
    ("DescribeAclsResponse", "AclDescription"): OF_A_RULE,
}
"""Hosts in responses that stay as they are, by message and structure, and why."""


PRODUCE: Final = int(ApiKey.PRODUCE)
PRODUCE_VERSIONS: Final = range(FIRST_VERSIONS[PRODUCE], LAST_VERSIONS[PRODUCE] + 1)
"""With endpoints, as far as kraftsim can read them."""
TOPIC_NAMES_UNTIL: Final = 12
"""The last version of Produce with topic names; later ones have ids."""
TOPIC_ID_BYTES: Final = 16
PARTITION_BYTES: Final = 33
"""A partition of a response to Produce without errors: index, error code, three offsets and times,
no record errors, no message and no tagged field.
"""
NO_ERRORS: Final = b"\x01\x00\x00"
"""Its last bytes."""
VARINT_OF_A_BYTE: Final = 0x80


@dataclass(eq=False, slots=True)
class Rewritten:
    """A response after the replacement: its frame with the size field, and what was decoded; None
    if it could not be, or need not be.
    """

    frame: bytes
    message: Message | None


def rewrite(api_key: int, api_version: int, frame: bytes, substitute: Substitute) -> Rewritten:
    """Replace the addresses in the response to a request of an API and version; `frame` is whole,
    with its size field.
    """
    if api_key == PRODUCE and is_plain_produce(api_version, frame):
        return Rewritten(frame, None)
    try:
        message, version, position = _decoded(api_key, api_version, frame)
    except (MalformedMessage, UnsupportedApi, IndexError, ValueError):
        return Rewritten(frame, None)
    if isinstance(message, ApiVersionsResponse):
        has_changed = _limit(message)
    else:
        has_changed = _replace(api_key, message, substitute)
    if not has_changed:
        return Rewritten(frame, message)
    body = route_of(api_key, version).response.encode(message)
    head = frame[SIZE_BYTES:position]
    return Rewritten(SIZE.pack(len(head) + len(body)) + head + body, message)


def is_plain_produce(api_version: int, frame: bytes) -> bool:
    """Return whether a response to Produce has no address for certain: nearly all have none, and to
    decode each costs more than everything else that the proxy does for its request.

    Lengths are read only where they take one byte; other responses are decoded.
    """
    try:
        if api_version not in PRODUCE_VERSIONS or frame[HEADER_V0_BYTES]:
            return False
        topics = frame[HEADER_V0_BYTES + 1]
        position = HEADER_V0_BYTES + 2
        for _ in range(topics - 1):
            if api_version > TOPIC_NAMES_UNTIL:
                position += TOPIC_ID_BYTES
            else:
                if frame[position] >= VARINT_OF_A_BYTE:
                    return False
                position += frame[position]
            partitions = frame[position]
            if max(topics, partitions) >= VARINT_OF_A_BYTE:
                return False
            position += 1
            for _ in range(partitions - 1):
                position += PARTITION_BYTES
                if frame[position - 3 : position] != NO_ERRORS:
                    return False
            if frame[position]:
                return False
            position += 1
    except IndexError:
        return False
    return len(frame) == position + 5 and not frame[-1]


def _decoded(api_key: int, api_version: int, frame: bytes) -> tuple[Message, int, int]:
    """Return the body, its version, and its position. A node that does not know the version of an
    ApiVersions answers in version 0.
    """
    route = route_of(api_key, api_version)
    position = HEADER_V0_BYTES
    if route.response_header_version == 1:
        position += 1
        if tag_count := frame[HEADER_V0_BYTES]:
            _, position = tag_spans(tag_count, frame, position)
    try:
        return route.response.decode(frame, position)[0], api_version, position
    except MalformedMessage:
        if api_key != ApiKey.API_VERSIONS or api_version == 0:
            raise
        return route_of(api_key, 0).response.decode(frame, position)[0], 0, position


def _replace(api_key: int, message: Message, substitute: Substitute) -> bool:
    has_changed = False
    kind = NodeKind.BROKER
    if isinstance(message, DescribeClusterResponse) and message.endpoint_type == CONTROLLERS:
        kind = NodeKind.CONTROLLER
    for place in ADDRESS_PLACES.get(api_key, ()):
        nodes: Iterable[_Endpoint] = (
            getattr(message, place.array) if place.array else (cast(_Endpoint, message),)
        )
        for node in nodes or ():
            has_changed |= _replace_one(node, place.node_id, kind, substitute)
    return has_changed


def _replace_one(node: _Endpoint, id_field: str, kind: NodeKind, substitute: Substitute) -> bool:
    host, port, node_id = node.host, node.port, getattr(node, id_field)
    if not host or port <= 0 or node_id < 0:
        return False  # no coordinator was found, or the version has the field elsewhere
    address = substitute(kind, node_id, (host, port))
    if address == (host, port):
        return False
    node.host, node.port = address
    return True


def _limit(message: ApiVersionsResponse) -> bool:
    """Lower the last versions of APIs whose responses would not be understood."""
    has_changed = False
    for api in message.api_keys or ():
        last = LAST_VERSIONS.get(api.api_key)
        if last is not None and api.max_version > last >= api.min_version:
            api.max_version = last
            has_changed = True
    return has_changed


def topic_names_of(message: Message | None) -> dict[bytes, str]:
    """Return the topics that a Metadata response names, by their ids."""
    if not isinstance(message, MetadataResponse):
        return {}
    return {topic.topic_id: topic.name for topic in message.topics or () if topic.name}
