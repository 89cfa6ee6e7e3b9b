"""Metadata (3): brokers, topics by name and by id, leaders, and auto-creation of topics.

Source: KIP-4, KIP-516; KafkaApis.handleTopicMetadataRequest, MetadataRequest.getErrorResponse.
"""

import time

from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import PAUSE_SECONDS, SETTLE_SECONDS, TOPIC_IDS_SINCE, Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

REQUIREMENTS = Requirements("metadata", 1, "Metadata")
HANDLER = "KafkaApis.handleTopicMetadataRequest"
BY_ID_SINCE = 12
ZERO_ID = bytes(16)
NO_ID = bytes([1]) * 16
BAD_NAMES = ("", ".", "..", "a b", "a/b", "x" * 250, "é")


def _topics(
    target: Target,
    version: int,
    rows: list[MetadataRequestTopic] | None,
    *,
    may_create: bool = False,
) -> list[MetadataResponseTopic]:
    """Request topics and return their rows."""
    asked = (
        MetadataRequest(topics=rows, allow_auto_topic_creation=may_create)
        if version >= 4
        else MetadataRequest(topics=rows)
    )
    with target.peer() as peer:
        return peer.ask(asked, version, MetadataResponse).topics


@REQUIREMENTS.that(
    1,
    "version 0 returns all topics for an empty list, later versions none",
    source="KIP-4: since v1 null asks for all topics",
)
def empty_list(target: Target) -> None:
    topic = target.topic()
    for version in target.versions(ApiKey.METADATA):
        names = [row.name for row in _topics(target, version, [])]
        expect(
            topic.name in names if version == 0 else not names,
            f"version {version} answers an empty list with {len(names)} topics",
        )


@REQUIREMENTS.that(2, "since version 1 null returns all topics", source="KIP-4")
def null_list(target: Target) -> None:
    topic = target.topic()
    for version in target.versions(ApiKey.METADATA, since=1):
        expect(
            topic.name in [row.name for row in _topics(target, version, None)],
            f"version {version} leaves {topic.name} out",
        )


@REQUIREMENTS.that(
    3, "a topic is returned with its partitions, their leader and replicas", source=HANDLER
)
def known_topic(target: Target) -> None:
    topic = target.topic(partitions=3)
    for version in target.versions(ApiKey.METADATA):
        with target.peer() as peer:
            answer = peer.ask(
                MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)]),
                version,
                MetadataResponse,
            )
        row, brokers = answer.topics[0], {broker.node_id for broker in answer.brokers}
        expect_error(row.error_code, ErrorCode.NONE, f"version {version}")
        expect_equal(
            sorted(partition.partition_index for partition in row.partitions),
            [0, 1, 2],
            f"version {version}: partitions",
        )
        for partition in row.partitions:
            expect(
                partition.leader_id in brokers,
                f"version {version}: leader {partition.leader_id} is no broker of the answer",
            )
            expect_equal(
                partition.replica_nodes, [partition.leader_id], f"version {version}: replicas"
            )
            expect_equal(
                partition.isr_nodes, [partition.leader_id], f"version {version}: in-sync replicas"
            )
            expect(
                version < 7 or partition.leader_epoch >= 0, f"version {version}: no leader epoch"
            )
        expect_equal(row.is_internal, False, f"version {version}: is_internal")
        expect_equal(
            row.topic_id,
            topic.topic_id if version >= TOPIC_IDS_SINCE else ZERO_ID,
            f"version {version}: topic id",
        )


@REQUIREMENTS.that(
    4,
    "the response contains the cluster id since version 2 and a live broker as controller since "
    "version 1",
    source="KIP-78; KIP-590",
)
def cluster_and_controller(target: Target) -> None:
    for version in target.versions(ApiKey.METADATA):
        with target.peer() as peer:
            answer = peer.ask(MetadataRequest(topics=[]), version, MetadataResponse)
        expect(
            bool(answer.cluster_id) == (version >= 2),
            f"version {version}: cluster id {answer.cluster_id!r}",
        )
        if version >= 1:
            expect(
                answer.controller_id in {broker.node_id for broker in answer.brokers},
                f"version {version}: controller {answer.controller_id}",
            )


@REQUIREMENTS.that(
    5, "an unknown topic returns UNKNOWN_TOPIC_OR_PARTITION and no partitions", source=HANDLER
)
def unknown_topic(target: Target) -> None:
    for version in target.versions(ApiKey.METADATA, since=4):
        row = _topics(target, version, [MetadataRequestTopic(name=target.fresh_name("absent"))])[0]
        expect_error(row.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"version {version}")
        expect_equal(row.partitions, [], f"version {version}: partitions")


@REQUIREMENTS.that(
    6, "an invalid topic name returns INVALID_TOPIC_EXCEPTION", source="Topic.validate"
)
def bad_names(target: Target) -> None:
    for may_create in (False, True):
        for name in BAD_NAMES:
            row = _topics(
                target,
                target.newest(ApiKey.METADATA),
                [MetadataRequestTopic(name=name)],
                may_create=may_create,
            )[0]
            expect_error(
                row.error_code,
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"the name {name[:10]!r}, creation allowed: {may_create}",
            )


@REQUIREMENTS.that(7, "a duplicate topic in the request is returned once", source=HANDLER)
def asked_twice(target: Target) -> None:
    topic = target.topic()
    rows = _topics(
        target, target.newest(ApiKey.METADATA), [MetadataRequestTopic(name=topic.name)] * 2
    )
    expect_equal([row.name for row in rows], [topic.name], "topics of the answer")


@REQUIREMENTS.that(
    8,
    "a topic that may be auto-created returns UNKNOWN_TOPIC_OR_PARTITION and exists soon "
    "afterwards",
    source="AutoTopicCreationManager (KRaft)",
)
def created_on_demand(target: Target) -> None:
    name = target.fresh_name("on-demand")
    version = target.newest(ApiKey.METADATA)
    first = _topics(target, version, [MetadataRequestTopic(name=name)], may_create=True)[0]
    expect_error(first.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the first answer")
    give_up_at = time.monotonic() + SETTLE_SECONDS
    while (
        row := _topics(target, version, [MetadataRequestTopic(name=name)])[0]
    ).error_code != ErrorCode.NONE or row.partitions[0].leader_id < 0:
        expect(time.monotonic() < give_up_at, f"{name} was not created")
        time.sleep(PAUSE_SECONDS)


@REQUIREMENTS.that(
    9,
    "a topic is not created unless the request allows it",
    source="KIP-4: allow_auto_topic_creation, v4",
)
def not_created(target: Target) -> None:
    name = target.fresh_name("not-created")
    for _ in range(10):
        row = _topics(target, target.newest(ApiKey.METADATA), [MetadataRequestTopic(name=name)])[0]
        expect_error(row.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        time.sleep(PAUSE_SECONDS)


@REQUIREMENTS.that(
    10,
    "since version 12 a topic is looked up by its id, whatever name is sent with it",
    source="KIP-516",
)
def by_id(target: Target) -> None:
    topic = target.topic()
    for version in target.versions(ApiKey.METADATA, since=BY_ID_SINCE):
        for name in (None, topic.name, "another"):
            row = _topics(
                target, version, [MetadataRequestTopic(topic_id=topic.topic_id, name=name)]
            )[0]
            expect_error(row.error_code, ErrorCode.NONE, f"version {version}, name {name!r}")
            expect_equal(
                (row.name, row.topic_id, len(row.partitions)),
                (topic.name, topic.topic_id, 1),
                f"version {version}: name, id, partitions",
            )


@REQUIREMENTS.that(
    11, "an unknown topic id returns UNKNOWN_TOPIC_ID and a null name", source="KIP-516"
)
def unknown_id(target: Target) -> None:
    for version in target.versions(ApiKey.METADATA, since=BY_ID_SINCE):
        row = _topics(target, version, [MetadataRequestTopic(topic_id=NO_ID, name=None)])[0]
        expect_error(row.error_code, ErrorCode.UNKNOWN_TOPIC_ID, f"version {version}")
        expect_equal(
            (row.name, row.topic_id, row.partitions),
            (None, NO_ID, []),
            f"version {version}: name, id, partitions",
        )


@REQUIREMENTS.that(
    12,
    "versions 10 and 11 have topic ids but reject lookups by them with INVALID_REQUEST",
    source="KAFKA-10774",
)
def ids_too_early(target: Target) -> None:
    topic = target.topic()
    for version in (
        version
        for version in target.versions(ApiKey.METADATA, since=TOPIC_IDS_SINCE)
        if version < BY_ID_SINCE
    ):
        for topic_id, name in (
            (topic.topic_id, None),
            (topic.topic_id, topic.name),
            (ZERO_ID, None),
        ):
            row = _topics(target, version, [MetadataRequestTopic(topic_id=topic_id, name=name)])[0]
            expect_error(
                row.error_code,
                ErrorCode.INVALID_REQUEST,
                f"version {version}, id {topic_id.hex()[:6]}, name {name!r}",
            )
            expect_equal(
                (row.name, row.topic_id, row.partitions),
                (name or "", topic_id, []),
                f"version {version}: name, id, partitions",
            )


@REQUIREMENTS.that(
    13,
    "since version 12 topics requested by name are ignored if one is requested by id",
    source="KafkaApis",
)
def names_beside_ids(target: Target) -> None:
    topic, other = target.topic(), target.topic()
    for version in target.versions(ApiKey.METADATA, since=BY_ID_SINCE):
        asked = [
            MetadataRequestTopic(name=other.name),
            MetadataRequestTopic(topic_id=topic.topic_id, name=None),
        ]
        expect_equal(
            [row.name for row in _topics(target, version, asked)],
            [topic.name],
            f"version {version}: topics of the answer",
        )
