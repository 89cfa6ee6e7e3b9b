"""ACLs: how they are created, described and deleted (29 to 31), and their effect on requests.

The node has an authorizer; clients of the listener without authentication are super users, as is
`admin`; `alice` and `bob` are not.
Source: KIP-11, KIP-140, KIP-290, KIP-679, KIP-801, StandardAuthorizer, AclControlManager,
KafkaApis, ControllerApis.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from kraftsim.conformance.batches import batch
from kraftsim.conformance.expect import Inapplicable, expect_equal, expect_error, settled
from kraftsim.conformance.peer import Peer, request_bytes
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.security_login import log_in, sasl_peer
from kraftsim.conformance.target import Target, TargetTopic
from protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.k29_describe_acls import DescribeAclsRequest, DescribeAclsResponse
from protocol.messages.k30_create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from protocol.messages.k31_delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from protocol.messages.k58_envelope import EnvelopeRequest, EnvelopeResponse
from protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from protocol.requests import decode_response

REQUIREMENTS = Requirements("security", 2, "ACLs")
TOPIC, GROUP, CLUSTER, TRANSACTION = (
    AclResourceType.TOPIC,
    AclResourceType.GROUP,
    AclResourceType.CLUSTER,
    AclResourceType.TRANSACTIONAL_ID,
)
LITERAL, PREFIXED = AclPatternType.LITERAL, AclPatternType.PREFIXED
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
ALICE = "User:alice"
ACL_VERSION, CLUSTER_NAME = 3, "kafka-cluster"
SETTINGS_SINCE = 5
"""The first version of CreateTopics whose response contains the topic's settings."""
TOPIC_FAILED, GROUP_FAILED = (
    int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    int(ErrorCode.GROUP_AUTHORIZATION_FAILED),
)
TRANSACTION_FAILED = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
CLUSTER_FAILED = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def rule(
    name: str,
    operation: AclOperation,
    *,
    resource: AclResourceType = TOPIC,
    pattern: AclPatternType = LITERAL,
    permission: AclPermissionType = ALLOW,
    principal: str = ALICE,
    host: str = "*",
) -> AclCreation:
    """Return an ACL to create."""
    return AclCreation(
        resource_type=resource,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def require_authorizer(target: Target) -> None:
    """Raise Inapplicable unless the caller declared that the node has an authorizer."""
    if not target.sasl:
        raise Inapplicable("no node with an authorizer is given")


def create(target: Target, *rules: AclCreation) -> list[tuple[int, str | None]]:
    """Create ACLs; return once the broker has them. Raises Inapplicable without an authorizer."""
    require_authorizer(target)
    with target.peer() as peer:
        answer = peer.ask(CreateAclsRequest(creations=list(rules)), ACL_VERSION, CreateAclsResponse)
    found = [(row.error_code, row.error_message) for row in answer.results]
    for made, (error, _) in zip(rules, found, strict=True):
        if not error:
            settled(
                partial(described_acls, target, made),
                lambda rows: len(rows) > 0,
                f"a rule about {made.resource_name}",
            )
    return found


def described_acls(target: Target, of: AclCreation) -> list[tuple[str, int]]:
    """Return the broker's description of an ACL."""
    asked = DescribeAclsRequest(
        resource_type_filter=of.resource_type,
        resource_name_filter=of.resource_name,
        pattern_type_filter=of.resource_pattern_type,
        principal_filter=of.principal,
        host_filter=of.host,
        operation=of.operation,
        permission_type=of.permission_type,
    )
    with target.peer() as peer:
        answer = peer.ask(asked, ACL_VERSION, DescribeAclsResponse)
    return [
        (acl.principal, acl.operation) for resource in answer.resources for acl in resource.acls
    ]


def delete(
    target: Target,
    name: str | None,
    pattern: AclPatternType = AclPatternType.ANY,
    principal: str | None = None,
) -> DeleteAclsResponse:
    """Delete the ACLs for topics of a name, or all of a principal."""
    asked = DeleteAclsFilter(
        resource_type_filter=AclResourceType.ANY,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=principal,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=AclPermissionType.ANY,
    )
    with target.peer() as peer:
        return peer.ask(DeleteAclsRequest(filters=[asked]), ACL_VERSION, DeleteAclsResponse)


def revoke(target: Target, *rules: AclCreation) -> None:
    """Delete exactly these ACLs; return once the broker does not describe them any more."""
    asked = [
        DeleteAclsFilter(
            resource_type_filter=each.resource_type,
            resource_name_filter=each.resource_name,
            pattern_type_filter=each.resource_pattern_type,
            principal_filter=each.principal,
            host_filter=each.host,
            operation=each.operation,
            permission_type=each.permission_type,
        )
        for each in rules
    ]
    with target.peer() as peer:
        answer = peer.ask(DeleteAclsRequest(filters=asked), ACL_VERSION, DeleteAclsResponse)
    found = [(row.error_code, len(row.matching_acls)) for row in answer.filter_results]
    expect_equal(found, [(0, 1)] * len(rules), "DeleteAcls: error and number of deleted ACLs")
    for each in rules:
        settled(
            partial(described_acls, target, each),
            lambda rows: not rows,
            f"no ACL for {each.resource_name}",
        )


@contextmanager
def as_alice(target: Target) -> Iterator[Peer]:
    """A connection of a principal with no permissions but those of the ACLs."""
    with sasl_peer(target) as peer:
        log_in(peer)
        yield peer


@contextmanager
def ruled(target: Target, *rules: AclCreation) -> Iterator[Peer]:
    """A connection of alice with some ACLs for the duration of the block."""
    with as_alice(target) as peer:
        expect_equal([error for error, _ in create(target, *rules)], [0] * len(rules), "CreateAcls")
        try:
            yield peer
        finally:
            for made in rules:
                delete(target, made.resource_name, principal=made.principal)
            for made in rules:
                settled(
                    partial(described_acls, target, made),
                    lambda rows: not rows,
                    f"no ACL for {made.resource_name}",
                )


def produced(peer: Peer, topic: TargetTopic, acks: int = -1) -> int:
    """Produce one record and return the error of its partition."""
    row = TopicProduceData(
        name=topic.name, partition_data=[PartitionProduceData(index=0, records=batch())]
    )
    answer = peer.ask(
        ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[row]), 9, ProduceResponse
    )
    return answer.responses[0].partition_responses[0].error_code


def fetched(peer: Peer, topic: TargetTopic, replica_id: int = -1) -> int:
    """Fetch and return the error of the partition."""
    row = FetchTopic(
        topic=topic.name, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)]
    )
    return (
        peer.ask(
            FetchRequest(replica_id=replica_id, topics=[row], max_bytes=1000), 11, FetchResponse
        )
        .responses[0]
        .partitions[0]
        .error_code
    )


def offset_error(peer: Peer, topic: TargetTopic) -> int:
    """List an offset and return the error."""
    row = ListOffsetsTopic(
        name=topic.name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
    )
    return (
        peer.ask(ListOffsetsRequest(replica_id=-1, topics=[row]), 5, ListOffsetsResponse)
        .topics[0]
        .partitions[0]
        .error_code
    )


def metadata(
    peer: Peer, names: list[str] | None, *, creates: bool = False
) -> dict[str | None, int]:
    """Return name -> error."""
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    answer = peer.ask(
        MetadataRequest(topics=topics, allow_auto_topic_creation=creates), 9, MetadataResponse
    )
    return {topic.name: topic.error_code for topic in answer.topics}


def expect_errors(
    peer: Peer, topic: TargetTopic, *, produce: int, fetch: int, offsets: int, what: str
) -> None:
    """Three requests end with these errors."""
    found = {
        "Produce": produced(peer, topic),
        "Fetch": fetched(peer, topic),
        "ListOffsets": offset_error(peer, topic),
    }
    expect_equal(found, {"Produce": produce, "Fetch": fetch, "ListOffsets": offsets}, what)


@REQUIREMENTS.that(
    1,
    "without an ACL only super users may access a topic, and it is hidden from others",
    source="StandardAuthorizer",
)
def without_rules(target: Target) -> None:
    with as_alice(target) as peer:
        topic = target.topic()
        expect_errors(
            peer,
            topic,
            produce=TOPIC_FAILED,
            fetch=TOPIC_FAILED,
            offsets=TOPIC_FAILED,
            what="without ACLs",
        )
        expect_equal(fetched(peer, topic, 1), TOPIC_FAILED, "Fetch as a follower")
        expect_equal(
            metadata(peer, [topic.name]),
            {topic.name: TOPIC_FAILED},
            "Metadata of a topic by its name",
        )
        expect_equal(
            topic.name in metadata(peer, None), False, "whether Metadata of all topics names it"
        )
    with sasl_peer(target) as peer:
        log_in(peer, "admin", "admin-secret")
        expect_errors(peer, topic, produce=0, fetch=0, offsets=0, what="a super user")


@REQUIREMENTS.that(
    2,
    "an ACL allows its operation, and DESCRIBE with READ or WRITE",
    source="KIP-11; StandardAuthorizerData",
)
def allowed(target: Target) -> None:
    topic = target.topic()
    with ruled(target, rule(topic.name, AclOperation.WRITE)) as peer:
        expect_errors(peer, topic, produce=0, fetch=TOPIC_FAILED, offsets=0, what="WRITE")
        expect_equal(
            (metadata(peer, [topic.name]), topic.name in metadata(peer, None)),
            ({topic.name: 0}, True),
            "Metadata",
        )
    with ruled(target, rule(topic.name, AclOperation.READ)) as peer:
        expect_errors(peer, topic, produce=TOPIC_FAILED, fetch=0, offsets=0, what="READ")
    with ruled(target, rule(topic.name, AclOperation.ALL)) as peer:
        expect_errors(peer, topic, produce=0, fetch=0, offsets=0, what="ALL")
    with ruled(target, rule(topic.name, AclOperation.CREATE)) as peer:
        expect_errors(
            peer,
            topic,
            produce=TOPIC_FAILED,
            fetch=TOPIC_FAILED,
            offsets=TOPIC_FAILED,
            what="CREATE",
        )


@REQUIREMENTS.that(3, "resource patterns are literal, prefixed, or wildcards", source="KIP-290")
def patterns(target: Target) -> None:
    topic = target.topic()
    rows = {
        "a prefix": (rule(topic.name[:-2], AclOperation.WRITE, pattern=PREFIXED), 0),
        "a prefix that is the name": (rule(topic.name, AclOperation.WRITE, pattern=PREFIXED), 0),
        "the beginning, literally": (rule(topic.name[:-2], AclOperation.WRITE), TOPIC_FAILED),
        "another prefix": (
            rule("x" + topic.name[:-2], AclOperation.WRITE, pattern=PREFIXED),
            TOPIC_FAILED,
        ),
        "everything": (rule("*", AclOperation.WRITE), 0),
        "of all principals": (rule(topic.name, AclOperation.WRITE, principal="User:*"), 0),
        "of another": (rule(topic.name, AclOperation.WRITE, principal="User:bob"), TOPIC_FAILED),
        "from here": (rule(topic.name, AclOperation.WRITE, host="127.0.0.1"), 0),
        "from elsewhere": (rule(topic.name, AclOperation.WRITE, host="192.0.2.1"), TOPIC_FAILED),
    }
    for what, (made, expected) in rows.items():
        with ruled(target, made) as peer:
            expect_equal(produced(peer, topic), expected, what)


@REQUIREMENTS.that(
    4,
    "a DENY ACL overrides all ALLOW ACLs, and denies only its operation",
    source="StandardAuthorizerData",
)
def denied(target: Target) -> None:
    topic = target.topic()
    allow = rule(topic.name, AclOperation.ALL)
    with ruled(
        target, allow, rule(topic.name[:-1], AclOperation.WRITE, pattern=PREFIXED, permission=DENY)
    ) as peer:
        expect_errors(
            peer, topic, produce=TOPIC_FAILED, fetch=0, offsets=0, what="DENY WRITE by prefix"
        )
    with ruled(
        target, allow, rule("*", AclOperation.DESCRIBE, permission=DENY, principal="User:*")
    ) as peer:
        expect_errors(
            peer,
            topic,
            produce=0,
            fetch=0,
            offsets=TOPIC_FAILED,
            what="DENY DESCRIBE on all topics to all principals",
        )
    with ruled(
        target, allow, rule(topic.name, AclOperation.ALL, permission=DENY, host="192.0.2.1")
    ) as peer:
        expect_errors(peer, topic, produce=0, fetch=0, offsets=0, what="DENY elsewhere")


@REQUIREMENTS.that(5, "in one request each topic is authorized independently", source="KafkaApis")
def each_topic(target: Target) -> None:
    mine, other = target.topic(), target.topic()
    with ruled(target, rule(mine.name, AclOperation.WRITE)) as peer:
        rows = [
            TopicProduceData(
                name=name, partition_data=[PartitionProduceData(index=0, records=batch())]
            )
            for name in (mine.name, other.name)
        ]
        answer = peer.ask(
            ProduceRequest(acks=-1, timeout_ms=5000, topic_data=rows), 9, ProduceResponse
        )
        found = {row.name: row.partition_responses[0].error_code for row in answer.responses}
        expect_equal(found, {mine.name: 0, other.name: TOPIC_FAILED}, "Produce to two topics")
        expect_equal(
            metadata(peer, [mine.name, other.name]),
            {mine.name: 0, other.name: TOPIC_FAILED},
            "Metadata of two topics",
        )
        peer.send(ProduceRequest(acks=0, timeout_ms=5000, topic_data=rows), 9)
        expect_equal(peer.is_closed_by_node(), True, "whether the connection ends after acks=0")


@REQUIREMENTS.that(
    6, "InitProducerId needs WRITE on any topic, or IDEMPOTENT_WRITE", source="KIP-679"
)
def producer_ids(target: Target) -> None:
    asked, topic = (
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000),
        target.topic(),
    )

    def error(peer: Peer) -> int:
        retry = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return settled(
            lambda: peer.ask(asked, 4, InitProducerIdResponse).error_code,
            lambda code: code != retry,
            "an answer",
        )

    with as_alice(target) as peer:
        expect_equal(error(peer), CLUSTER_FAILED, "without ACLs")
    with ruled(target, rule(CLUSTER_NAME, AclOperation.IDEMPOTENT_WRITE, resource=CLUSTER)) as peer:
        expect_equal(error(peer), 0, "IDEMPOTENT_WRITE")
    with ruled(target, rule(topic.name, AclOperation.WRITE)) as peer:
        expect_equal(error(peer), 0, "WRITE to some topic")
    deny = rule(topic.name[:-1], AclOperation.WRITE, pattern=PREFIXED, permission=DENY)
    with ruled(target, rule(topic.name, AclOperation.WRITE), deny) as peer:
        expect_equal(error(peer), CLUSTER_FAILED, "WRITE to a topic that a prefix denies")
    with as_alice(target) as peer:
        transactional = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60000)
        answer = peer.ask(transactional, 4, InitProducerIdResponse)
        expect_error(
            answer.error_code, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional id"
        )


@REQUIREMENTS.that(
    7, "FindCoordinator needs DESCRIBE on the group or the transactional id", source="KafkaApis"
)
def coordinators(target: Target) -> None:
    group = target.fresh_name("group")
    for key_type, error, why in (
        (0, GROUP_FAILED, "Group authorization failed."),
        (1, TRANSACTION_FAILED, "Transactional Id authorization failed."),
    ):
        with as_alice(target) as peer:
            for version in (2, 4):
                asked = FindCoordinatorRequest(
                    key="" if version >= 4 else group,
                    key_type=key_type,
                    coordinator_keys=[group] if version >= 4 else [],
                )
                answer = peer.ask(asked, version, FindCoordinatorResponse)
                row = answer if version < 4 else answer.coordinators[0]
                found = (row.error_code, row.error_message, row.node_id, row.port)
                expect_equal(
                    found,
                    (error, why if version < 4 else "", -1, -1),
                    f"FindCoordinator v{version} of key type {key_type}",
                )


@REQUIREMENTS.that(
    8,
    "creating and deleting topics is authorized by the controller for the client that the broker "
    "forwards",
    source="ControllerApis",
)
def topics(target: Target) -> None:
    name, topic = target.fresh_name(), target.topic()
    asked = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)], timeout_ms=10000
    )
    with as_alice(target) as peer:
        row = peer.ask(asked, 5, CreateTopicsResponse).topics[0]
        expect_equal(
            (row.error_code, row.error_message),
            (TOPIC_FAILED, "Authorization failed."),
            "CreateTopics without ACLs",
        )
        gone = peer.ask(
            DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=10000), 5, DeleteTopicsResponse
        ).responses[0]
        expect_equal(
            (gone.error_code, gone.error_message),
            (TOPIC_FAILED, "Topic authorization failed."),
            "DeleteTopics without ACLs",
        )
        expect_equal(
            metadata(peer, [target.fresh_name()], creates=True).popitem()[1],
            TOPIC_FAILED,
            "Metadata that would make a topic",
        )
    with ruled(
        target, rule(name, AclOperation.CREATE), rule(topic.name, AclOperation.DELETE)
    ) as peer:
        expect_equal(
            peer.ask(asked, 5, CreateTopicsResponse).topics[0].error_code,
            0,
            "CreateTopics with CREATE",
        )
        gone = peer.ask(
            DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=10000), 5, DeleteTopicsResponse
        ).responses[0]
        expect_equal(gone.error_code, 0, "DeleteTopics with DELETE")
    with ruled(target, rule(CLUSTER_NAME, AclOperation.CREATE, resource=CLUSTER)) as peer:
        asked.topics[0].name = target.fresh_name()
        expect_equal(
            peer.ask(asked, 5, CreateTopicsResponse).topics[0].error_code,
            0,
            "CreateTopics with CREATE of the cluster",
        )


@REQUIREMENTS.that(
    9,
    "creating, describing and deleting ACLs needs ALTER or DESCRIBE on the cluster: else "
    "CLUSTER_AUTHORIZATION_FAILED",
    source="AclApis",
)
def rights_about_rules(target: Target) -> None:
    made = rule(target.fresh_name(), AclOperation.READ)
    with as_alice(target) as peer:
        answer = peer.ask(
            CreateAclsRequest(creations=[made, made]), ACL_VERSION, CreateAclsResponse
        )
        expect_equal([row.error_code for row in answer.results], [CLUSTER_FAILED] * 2, "CreateAcls")
        asked = DeleteAclsFilter(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
        )
        asked.operation = asked.permission_type = 1
        gone = peer.ask(DeleteAclsRequest(filters=[asked]), ACL_VERSION, DeleteAclsResponse)
        expect_equal(
            [row.error_code for row in gone.filter_results], [CLUSTER_FAILED], "DeleteAcls"
        )
        everything = DescribeAclsRequest(
            resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
        )
        described = peer.ask(everything, ACL_VERSION, DescribeAclsResponse)
        expect_equal(
            (described.error_code, described.resources), (CLUSTER_FAILED, []), "DescribeAcls"
        )


@REQUIREMENTS.that(
    10,
    "an existing ACL is no error; an invalid one is rejected independently",
    source="AclControlManager",
)
def rules_are_checked(target: Target) -> None:
    good = rule(target.fresh_name(), AclOperation.READ)
    expect_equal(create(target, good, good), [(0, "")] * 2, "the same ACL twice")
    expect_equal(create(target, good), [(0, "")], "an existing ACL")
    expect_equal(described_acls(target, good), [(ALICE, int(AclOperation.READ))], "its description")
    invalid = int(ErrorCode.INVALID_REQUEST)
    rows: list[tuple[AclCreation, str]] = [
        (
            rule("other", AclOperation.ALTER, resource=CLUSTER),
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        (rule("", AclOperation.READ), "Invalid empty resource name"),
        (
            rule("t", AclOperation.READ, principal="alice"),
            (
                "Could not parse principal from `alice` (no colon is present separating the "
                "principal type from the principal name)"
            ),
        ),
    ]
    for made, why in rows:
        expect_equal(create(target, made, good), [(invalid, why), (0, "")], why)
    for what, made in {
        "resource type ANY": rule("t", AclOperation.READ, resource=AclResourceType.ANY),
        "pattern type MATCH": rule("t", AclOperation.READ, pattern=AclPatternType.MATCH),
        "operation ANY": rule("t", AclOperation.ANY),
        "permission type ANY": rule("t", AclOperation.READ, permission=AclPermissionType.ANY),
    }.items():
        expect_equal(
            create(target, made, good), [(-1, None)] * 2, f"{what}, which only filters have"
        )
    delete(target, good.resource_name)


@REQUIREMENTS.that(
    11,
    "a filter deletes the ACLs that it matches, with MATCH also covering patterns, and returns "
    "them",
    source="KIP-290",
)
def deletions(target: Target) -> None:
    name = target.fresh_name()
    literal, prefixed = (
        rule(name, AclOperation.READ),
        rule(name[:-3], AclOperation.WRITE, pattern=PREFIXED),
    )
    create(target, literal, prefixed)
    for pattern, expected in (
        (PREFIXED, []),
        (AclPatternType.MATCH, [int(AclOperation.READ), int(AclOperation.WRITE)]),
        (AclPatternType.ANY, []),
    ):
        result = delete(target, name, pattern).filter_results[0]
        expect_equal(
            (result.error_code, sorted(row.operation for row in result.matching_acls)),
            (0, expected),
            f"DeleteAcls by {pattern.name}",
        )
    settled(lambda: described_acls(target, literal), lambda rows: not rows, "no rule")


@REQUIREMENTS.that(
    12,
    "requests that only brokers may send to a controller return CLUSTER_AUTHORIZATION_FAILED to "
    "others",
    source="KIP-730, ControllerApis",
)
def cluster_action(target: Target) -> None:
    require_authorizer(target)
    inner = request_bytes(
        CreateTopicsRequest(
            topics=[
                CreatableTopic(name=target.fresh_name(), num_partitions=1, replication_factor=1)
            ]
        ),
        5,
        7,
    )[4:]
    bob = b"\x00\x00\x05User\x04bob\x00\x00"
    with target.controller_peer() as peer:
        answer = peer.ask(
            EnvelopeRequest(
                request_data=inner, request_principal=bob, client_host_address=b"\x7f\0\0\x01"
            ),
            0,
            EnvelopeResponse,
        )
        expect_equal(answer.error_code, 0, "an envelope")
        _, body = decode_response(ApiKey.CREATE_TOPICS, 5, bytes(answer.response_data or b""))
        expect_equal(
            [topic.error_code for topic in body.topics], [TOPIC_FAILED], "bob's embedded response"
        )
    if target.sasl_controller:
        with target.peer(target.sasl_controller) as peer:
            log_in(peer)
            found = peer.ask(
                AllocateProducerIdsRequest(broker_id=1, broker_epoch=0),
                0,
                AllocateProducerIdsResponse,
            )
            expect_equal(found.error_code, CLUSTER_FAILED, "AllocateProducerIds")
            envelope = EnvelopeRequest(
                request_data=inner, request_principal=bob, client_host_address=b"\x7f\0\0\x01"
            )
            expect_equal(
                peer.ask(envelope, 0, EnvelopeResponse).error_code,
                CLUSTER_FAILED,
                "an envelope of a client that is no broker",
            )


@REQUIREMENTS.that(
    13, "a client that requests its authorized operations gets them", source="KIP-430"
)
def own_rights(target: Target) -> None:
    topic = target.topic()
    row = MetadataRequestTopic(name=topic.name)
    asked = MetadataRequest(
        topics=[row],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )

    def rights(peer: Peer) -> tuple[int, int]:
        answer = peer.ask(asked, 9, MetadataResponse)
        return answer.cluster_authorized_operations, answer.topics[0].topic_authorized_operations

    reads = 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE
    with ruled(target, rule(topic.name, AclOperation.READ)) as peer:
        expect_equal(
            rights(peer), (0, reads), "rights to the cluster and to a topic that may be read"
        )
    with ruled(
        target,
        rule(topic.name, AclOperation.READ),
        rule(CLUSTER_NAME, AclOperation.DESCRIBE, resource=CLUSTER),
    ) as peer:
        expect_equal(
            rights(peer),
            (1 << AclOperation.DESCRIBE, reads),
            "the same where the cluster may be described",
        )
    with as_alice(target) as peer:
        expect_equal(rights(peer)[0], 0, "authorized cluster operations of a client without ACLs")


@REQUIREMENTS.that(
    14,
    "Metadata by the id of a hidden topic returns INVALID_REQUEST in versions 10 and 11, then "
    "TOPIC_AUTHORIZATION_FAILED without a name",
    source="KafkaApis; KAFKA-10774",
)
def hidden_by_id(target: Target) -> None:
    with as_alice(target) as peer:
        topic = target.topic()
        for version in target.versions(ApiKey.METADATA, since=10):
            asked = [MetadataRequestTopic(topic_id=topic.topic_id, name=None)]
            answer = peer.ask(
                MetadataRequest(topics=asked, allow_auto_topic_creation=False),
                version,
                MetadataResponse,
            )
            found = [
                (row.error_code, row.name, row.topic_id, row.partitions) for row in answer.topics
            ]
            error, name = (
                (TOPIC_FAILED, None) if version >= 12 else (int(ErrorCode.INVALID_REQUEST), "")
            )
            expect_equal(
                found,
                [(error, name, topic.topic_id, [])],
                f"version {version}: error, name, id, partitions",
            )
            expect_equal(
                bool(answer.brokers), version >= 12, f"version {version}: whether brokers are named"
            )


@REQUIREMENTS.that(
    15,
    "without DESCRIBE_CONFIGS the settings of a new topic are not returned: "
    "TOPIC_AUTHORIZATION_FAILED, and -1 for both numbers",
    source="KIP-525; ReplicationControlManager",
)
def hidden_settings(target: Target) -> None:
    for version in target.versions(ApiKey.CREATE_TOPICS, since=SETTINGS_SINCE):
        for validate_only in (True, False):
            name = target.fresh_name()
            asked = CreateTopicsRequest(
                topics=[CreatableTopic(name=name, num_partitions=2, replication_factor=1)],
                validate_only=validate_only,
            )
            asked.timeout_ms = 10000
            with ruled(
                target, rule(name, AclOperation.CREATE), rule(name, AclOperation.DESCRIBE)
            ) as peer:
                row = peer.ask(asked, version, CreateTopicsResponse).topics[0]
                found = (
                    row.error_code,
                    row.topic_config_error_code,
                    row.num_partitions,
                    row.replication_factor,
                    row.configs,
                )
                expect_equal(
                    found,
                    (0, TOPIC_FAILED, -1, -1, []),
                    f"version {version}, validate_only {validate_only}",
                )
        name = target.fresh_name()
        asked.topics[0].name = name
        with ruled(
            target, rule(name, AclOperation.CREATE), rule(name, AclOperation.DESCRIBE_CONFIGS)
        ) as peer:
            row = peer.ask(asked, version, CreateTopicsResponse).topics[0]
            shown = (
                row.error_code,
                row.topic_config_error_code,
                row.num_partitions,
                row.replication_factor,
            )
            expect_equal(shown, (0, 0, 2, 1), f"version {version} with DESCRIBE_CONFIGS")
            expect_equal(
                bool(row.configs),
                True,
                f"version {version} with DESCRIBE_CONFIGS: whether there are settings",
            )
