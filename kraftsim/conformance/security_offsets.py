"""ACLs for offsets of groups (8, 9, 28, 47) and for consumer groups (68): on the group, and on
every topic.

Source: kafka.server.KafkaApis.{handleOffsetCommitRequest, handleOffsetFetchRequest,
handleTxnOffsetCommitRequest, handleOffsetDeleteRequest, handleConsumerGroupHeartbeat}; verified
against Apache Kafka 3.9.1 and 4.1.2.
"""

from kraftsim.conformance.expect import expect_equal
from kraftsim.conformance.group_client import GroupClient
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.security_rights import (
    GROUP,
    GROUP_FAILED,
    TOPIC_FAILED,
    TRANSACTION,
    TRANSACTION_FAILED,
    require_authorizer,
    rule,
    ruled,
)
from kraftsim.conformance.target import Target
from protocol.acls import AclOperation
from protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

REQUIREMENTS = Requirements("security", 4, "ACLs for offsets of groups")
READ, DESCRIBE, DELETE, WRITE = (
    AclOperation.READ,
    AclOperation.DESCRIBE,
    AclOperation.DELETE,
    AclOperation.WRITE,
)


def committed(peer: Peer, group: str, names: list[str]) -> dict[str, int]:
    """Commit an offset of each topic, and return the errors."""
    rows = [
        OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    ]
    asked = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=name, partitions=rows) for name in names],
    )
    answer = peer.ask(asked, 8, OffsetCommitResponse)
    return {topic.name: topic.partitions[0].error_code for topic in answer.topics}


@REQUIREMENTS.that(
    1,
    "OffsetCommit needs READ on the group (GROUP_AUTHORIZATION_FAILED) and topic "
    "(TOPIC_AUTHORIZATION_FAILED)",
    source="KafkaApis",
)
def commits(target: Target) -> None:
    require_authorizer(target)
    mine, other, group_client = target.topic().name, target.topic().name, GroupClient(target)
    with ruled(target, rule(mine, READ)) as peer:
        expect_equal(
            committed(peer, group_client.group_id, [mine, other]),
            {mine: GROUP_FAILED, other: GROUP_FAILED},
            "no permission for the group",
        )
    with ruled(target, rule(group_client.group_id, READ, resource=GROUP), rule(mine, READ)) as peer:
        expect_equal(
            committed(peer, group_client.group_id, [mine, other]),
            {mine: 0, other: TOPIC_FAILED},
            "no permission for a topic",
        )
    with group_client.peer() as admin:
        expect_equal(
            group_client.fetch(admin, other, [0]), {0: (-1, "")}, "offsets that were not committed"
        )


@REQUIREMENTS.that(
    2,
    "OffsetFetch needs DESCRIBE on the group and the topic; each group is authorized independently",
    source="KafkaApis",
)
def fetches(target: Target) -> None:
    require_authorizer(target)
    mine, other, group_client, foreign = (
        target.topic().name,
        target.topic().name,
        GroupClient(target),
        GroupClient(target),
    )
    with group_client.peer() as admin:
        expect_equal(group_client.commit(admin, [(mine, 0), (other, 0)]), [0, 0], "commits")
    with ruled(
        target, rule(group_client.group_id, DESCRIBE, resource=GROUP), rule(mine, DESCRIBE)
    ) as peer:
        rows = [OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in (mine, other)]
        found = peer.ask(
            OffsetFetchRequest(group_id=group_client.group_id, topics=rows), 7, OffsetFetchResponse
        )
        returned = {
            each.name: (each.partitions[0].committed_offset, each.partitions[0].error_code)
            for each in found.topics
        }
        expect_equal(returned, {mine: (5, 0), other: (-1, TOPIC_FAILED)}, "two topics")
        found = peer.ask(
            OffsetFetchRequest(group_id=group_client.group_id, topics=None), 7, OffsetFetchResponse
        )
        expect_equal([each.name for each in found.topics], [mine], "all topics")
        found = peer.ask(
            OffsetFetchRequest(group_id=foreign.group_id, topics=None), 7, OffsetFetchResponse
        )
        expect_equal(found.error_code, GROUP_FAILED, "another group")
        topics = [
            OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in (mine, other)
        ]
        groups = [
            OffsetFetchRequestGroup(group_id=name, topics=topics)
            for name in (foreign.group_id, group_client.group_id)
        ]
        many = peer.ask(OffsetFetchRequest(groups=groups), 8, OffsetFetchResponse)
        errors = [
            (each.error_code, {topic.name: topic.partitions[0].error_code for topic in each.topics})
            for each in many.groups
        ]
        expect_equal(
            errors, [(GROUP_FAILED, {}), (0, {mine: 0, other: TOPIC_FAILED})], "two groups"
        )


@REQUIREMENTS.that(
    3,
    "in a transaction the transactional id is authorized first "
    "(TRANSACTIONAL_ID_AUTHORIZATION_FAILED), then group and topics",
    source="KafkaApis",
)
def transactional(target: Target) -> None:
    require_authorizer(target)
    topic, group_client, name = (
        target.topic().name,
        GroupClient(target),
        target.fresh_name("transaction"),
    )
    rows = [
        TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata=""
        )
    ]
    asked = TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=group_client.group_id,
        producer_id=1,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=rows)],
    )
    id_rule, group_rule = (
        rule(name, WRITE, resource=TRANSACTION),
        rule(group_client.group_id, READ, resource=GROUP),
    )
    for rules, error in (
        ((group_rule, rule(topic, READ)), TRANSACTION_FAILED),
        ((id_rule, rule(topic, READ)), GROUP_FAILED),
        ((id_rule, group_rule), TOPIC_FAILED),
    ):
        with ruled(target, *rules) as peer:
            answer = peer.ask(asked, 3, TxnOffsetCommitResponse)
            expect_equal(answer.topics[0].partitions[0].error_code, error, f"{len(rules)} rules")


@REQUIREMENTS.that(
    4, "OffsetDelete needs DELETE on the group, and READ on the topics", source="KafkaApis"
)
def deletions(target: Target) -> None:
    require_authorizer(target)
    mine, other, group_client = target.topic().name, target.topic().name, GroupClient(target)
    with group_client.peer() as admin:
        expect_equal(group_client.commit(admin, [(mine, 0), (other, 0)]), [0, 0], "commits")
    rows = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
        )
        for name in (mine, other)
    ]
    asked = OffsetDeleteRequest(group_id=group_client.group_id, topics=rows)
    with ruled(target, rule(group_client.group_id, READ, resource=GROUP), rule(mine, READ)) as peer:
        expect_equal(
            peer.ask(asked, 0, OffsetDeleteResponse).error_code,
            GROUP_FAILED,
            "no permission to delete the group",
        )
    with ruled(
        target, rule(group_client.group_id, DELETE, resource=GROUP), rule(mine, READ)
    ) as peer:
        answer = peer.ask(asked, 0, OffsetDeleteResponse)
        found = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
        expect_equal(
            (answer.error_code, found),
            (0, {mine: 0, other: TOPIC_FAILED}),
            "no permission for a topic",
        )


@REQUIREMENTS.that(
    5,
    "a member of a consumer group needs READ on the group, and DESCRIBE on its topics",
    source="KIP-848",
    since="4.0",
)
def members(target: Target) -> None:
    require_authorizer(target)
    topic, group_client = target.topic().name, GroupClient(target)
    asked = ConsumerGroupHeartbeatRequest(
        group_id=group_client.group_id,
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    for rules, error in (
        ((rule(topic, DESCRIBE),), GROUP_FAILED),
        ((rule(group_client.group_id, READ, resource=GROUP),), TOPIC_FAILED),
        ((rule(group_client.group_id, READ, resource=GROUP), rule(topic, DESCRIBE)), 0),
    ):
        with ruled(target, *rules) as peer:
            expect_equal(
                peer.ask(asked, 1, ConsumerGroupHeartbeatResponse).error_code,
                error,
                f"{len(rules)} rules",
            )
