"""The addresses in responses, in every version: each is replaced or has a reason to stay, and
nothing else changes.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

import pytest

from kraftsim.cluster.proxy.upstream.rules_addresses import (
    ADDRESS_PLACES,
    LAST_VERSIONS,
    NOT_REPLACED,
    PRODUCE,
    PRODUCE_VERSIONS,
    Address,
    NodeKind,
    is_plain_produce,
    rewrite,
    topic_names_of,
)
from protocol.api_keys import ApiKey
from protocol.codec.tree import layout_of
from protocol.examples import example
from protocol.messages.k00_produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.messages.k03_metadata import MetadataResponse, MetadataResponseTopic
from protocol.messages.k18_api_versions import ApiVersion, ApiVersionsResponse
from protocol.messages.k60_describe_cluster import (
    BROKERS,
    CONTROLLERS,
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from protocol.messages.registry import response_class
from protocol.requests import decode_response, response_chunks
from protocol.schema import Message, declaration_of
from tools.drift.facts import load_facts

FACTS = load_facts(Path(__file__).parents[1] / "wire" / "definitions.json")
METADATA, API_VERSIONS = int(ApiKey.METADATA), int(ApiKey.API_VERSIONS)
DESCRIBE_CLUSTER, FETCH = int(ApiKey.DESCRIBE_CLUSTER), int(ApiKey.FETCH)
UNKNOWN_TAG = 7000
VERSIONS = [
    (api_key, version)
    for api_key, places in ADDRESS_PLACES.items()
    for version in range(min(place.first_version for place in places), LAST_VERSIONS[api_key] + 1)
    if version in declaration_of(response_class(api_key)).versions
]


LEADER = LeaderIdAndEpoch(leader_id=2, leader_epoch=5)
ENDPOINT = NodeEndpoint(node_id=1, host="kafka", port=9092)
RECORD_ERROR = BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="bad")


def row(
    error_message: str | None = None,
    record_errors: Sequence[BatchIndexAndErrorMessage] = (),
    current_leader: LeaderIdAndEpoch | None = None,
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=3,
        base_offset=12,
        log_start_offset=4,
        error_message=error_message,
        record_errors=list(record_errors),
        current_leader=current_leader or LeaderIdAndEpoch(),
    )


def topic_of(*rows: PartitionProduceResponse) -> TopicProduceResponse:
    return TopicProduceResponse(name="orders", topic_id=b"i" * 16, partition_responses=list(rows))


class Endpoint(Protocol):
    """What has an address in a response."""

    host: str
    port: int


def at_the_proxy(kind: NodeKind, node_id: int, address: Address) -> Address:
    """A longer host, a port that depends on the node."""
    return f"proxy.{kind.value}.{address[0]}", 20_000 + node_id % 1000


def as_it_was(kind: NodeKind, node_id: int, address: Address) -> Address:
    return address


def frame_of(api_key: int, version: int, body: Message, correlation_id: int = 77) -> bytes:
    return b"".join(response_chunks(api_key, version, correlation_id, body))


def nodes_in(api_key: int, body: object) -> list[tuple[Endpoint, int]]:
    """The structures of a response with an address, and their node ids."""
    found: list[tuple[Endpoint, int]] = []
    for place in ADDRESS_PLACES[api_key]:
        for node in getattr(body, place.array) if place.array else (body,):
            found.append((cast(Endpoint, node), getattr(node, place.node_id)))
    return found


def with_addresses(api_key: int, version: int, rng: random.Random) -> Message:
    """A random response whose addresses are sound."""
    body = example(layout_of(response_class(api_key), version), rng.randrange)
    if api_key == DESCRIBE_CLUSTER and version:
        body.endpoint_type = BROKERS
    for node, _ in nodes_in(api_key, body):
        place = next(each for each in ADDRESS_PLACES[api_key])
        if getattr(node, "host", ""):
            node.port = rng.randrange(1, 65536)
            setattr(node, place.node_id, rng.randrange(0, 2**31))
    return body


def test_every_host_in_a_response_is_replaced_or_has_a_reason_to_stay() -> None:
    """Over all releases whose definitions are compared: a new message cannot be forgotten."""
    found = set()
    for name, shapes in FACTS.items():
        for shape in shapes:
            for structure, fields in shape.definition.structures.items():
                names = {field.name.lower() for field in fields}
                if name.endswith("Response") and any("host" in each for each in names):
                    found.add((name, structure))
    replaced = {
        (f"{declaration_of(response_class(api_key)).name}", place.structure)
        for api_key, places in ADDRESS_PLACES.items()
        for place in places
    }
    assert not replaced & set(NOT_REPLACED)
    assert found == replaced | set(NOT_REPLACED)


def test_versions_with_addresses_are_those_of_kafka() -> None:
    """The first version that has a host, and the last one of any release."""
    for api_key, places in ADDRESS_PLACES.items():
        shapes = FACTS[declaration_of(response_class(api_key)).name]
        for place in places:
            firsts = {
                field.versions.first
                for shape in shapes
                for field in shape.definition.structures.get(place.structure, ())
                if field.name == "Host"
            }
            assert firsts == {place.first_version}, (api_key, place)
        assert LAST_VERSIONS[api_key] >= max(shape.definition.versions.last for shape in shapes)


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_only_addresses_change(api_key: int, version: int) -> None:
    """In every version, with random contents and unknown tags."""
    rng = random.Random(f"{api_key} {version}")
    replaced_count = 0
    for _ in range(40):
        body = with_addresses(api_key, version, rng)
        frame = frame_of(api_key, version, body)
        assert rewrite(api_key, version, frame, as_it_was).frame is frame

        expected = [
            at_the_proxy(NodeKind.BROKER, node_id, (node.host, node.port))
            if node.host
            else (node.host, node.port)
            for node, node_id in nodes_in(api_key, body)
        ]
        rewritten = rewrite(api_key, version, frame, at_the_proxy)
        correlation_id, after = decode_response(api_key, version, rewritten.frame[4:])
        assert correlation_id == 77
        assert int.from_bytes(rewritten.frame[:4]) == len(rewritten.frame) - 4
        addresses = [(node.host, node.port) for node, _ in nodes_in(api_key, after)]
        assert addresses == expected
        replaced_count += any(host for host, _ in expected)
        for (node, _), (original, _) in zip(
            nodes_in(api_key, after), nodes_in(api_key, body), strict=True
        ):
            node.host, node.port = original.host, original.port
        assert frame_of(api_key, version, after) == frame
    assert replaced_count > 5


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize(
    ("body", "is_plain"),
    [
        (ProduceResponse(responses=[topic_of(row())]), True),
        (ProduceResponse(responses=[topic_of(row())], throttle_time_ms=7), True),
        (ProduceResponse(responses=[]), True),
        (ProduceResponse(responses=[topic_of(row()), topic_of(row(), row())]), True),
        (ProduceResponse(responses=[topic_of(row())], node_endpoints=[ENDPOINT]), False),
        (ProduceResponse(responses=[topic_of(row(error_message="no"))]), False),
        (ProduceResponse(responses=[topic_of(row(), row(record_errors=[RECORD_ERROR]))]), False),
        (ProduceResponse(responses=[topic_of(row(current_leader=LEADER))]), False),
        (ProduceResponse(responses=[topic_of(*[row()] * 200)]), False),
    ],
)
def test_produce_without_errors_is_not_decoded(
    version: int, body: ProduceResponse, is_plain: bool
) -> None:
    """It has no address; a response of which that is not certain at a glance is decoded."""
    frame = frame_of(PRODUCE, version, body)
    assert is_plain_produce(version, frame) == is_plain
    assert not any(is_plain_produce(version, frame[:end]) for end in range(len(frame)))
    assert not is_plain_produce(version, frame + b"\0")
    assert not is_plain_produce(PRODUCE_VERSIONS.stop, frame)


def test_controllers_are_not_brokers() -> None:
    """DescribeCluster of a controller: ids of controllers and brokers may be the same (KIP-919)."""
    seen = []

    def note(kind: NodeKind, node_id: int, address: Address) -> Address:
        seen.append((kind, node_id, address))
        return address

    body = DescribeClusterResponse(
        endpoint_type=CONTROLLERS,
        cluster_id="c",
        brokers=[DescribeClusterBroker(broker_id=1, host="c1", port=9093)],
    )
    rewrite(DESCRIBE_CLUSTER, 1, frame_of(DESCRIBE_CLUSTER, 1, body), note)
    assert seen == [(NodeKind.CONTROLLER, 1, ("c1", 9093))]


def test_header_with_tags_stays() -> None:
    """No release sends any; another broker may."""
    frame = frame_of(METADATA, 9, MetadataResponse(cluster_id="c"))
    tags = b"\x01\x05\x02ab"
    tagged = (len(frame) - 4 + len(tags) - 1).to_bytes(4) + frame[4:8] + tags + frame[9:]
    assert rewrite(METADATA, 9, tagged, at_the_proxy).frame is tagged


@pytest.mark.parametrize("cut", [1, 3, 8, 9, 20])
def test_unreadable_response_passes(cut: int) -> None:
    """The client shall say what is wrong with it."""
    body = with_addresses(METADATA, 12, random.Random(3))
    frame = frame_of(METADATA, 12, body)[:-cut]
    assert rewrite(METADATA, 12, frame, at_the_proxy).frame is frame


def test_unknown_version_is_not_offered() -> None:
    """An address in it would lead clients past the proxy; other APIs stay as they are."""
    last = LAST_VERSIONS[METADATA]
    body = ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=METADATA, min_version=0, max_version=last + 2),
            ApiVersion(api_key=FETCH, min_version=4, max_version=LAST_VERSIONS[FETCH]),
            ApiVersion(api_key=22, min_version=0, max_version=99),
            ApiVersion(api_key=999, min_version=0, max_version=3),
        ]
    )
    frame = frame_of(API_VERSIONS, 4, body)
    _, after = decode_response(
        API_VERSIONS, 4, rewrite(API_VERSIONS, 4, frame, at_the_proxy).frame[4:]
    )
    assert isinstance(after, ApiVersionsResponse)
    assert [(api.api_key, api.max_version) for api in after.api_keys] == [
        (METADATA, last),
        (FETCH, LAST_VERSIONS[FETCH]),
        (22, 99),
        (999, 3),
    ]


def test_refused_version_of_api_versions_passes() -> None:
    """A node answers in version 0 what it does not know (KIP-511)."""
    body = ApiVersionsResponse(
        error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=3)]
    )
    frame = frame_of(API_VERSIONS, 0, body)
    assert rewrite(API_VERSIONS, 5, frame, at_the_proxy).frame is frame


def test_ids_of_topics_are_learned() -> None:
    """Newer versions of Produce and Fetch name the id alone (KIP-516)."""
    body = MetadataResponse(
        topics=[MetadataResponseTopic(name="orders", topic_id=bytes(range(16)))]
    )
    message = rewrite(METADATA, 12, frame_of(METADATA, 12, body), at_the_proxy).message
    assert topic_names_of(message) == {bytes(range(16)): "orders"}
