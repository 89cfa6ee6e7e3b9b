"""An ACL that is deleted while a client is a member of a group, or waits for a response.

The coordinator keeps the member; only its requests are rejected, each on arrival. One that was
already waiting completes normally.
Source: kafka.server.KafkaApis; verified against Apache Kafka 3.9.1 and 4.4.0.
"""

from kraftsim.conformance.batches import batch, produce
from kraftsim.conformance.consumer_group_client import ConsumerGroupClient
from kraftsim.conformance.expect import expect_equal
from kraftsim.conformance.group_client import JOIN_VERSION, SYNC_VERSION, GroupClient, with_retries
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.security_rights import (
    GROUP,
    GROUP_FAILED,
    TOPIC_FAILED,
    as_alice,
    create,
    require_authorizer,
    revoke,
    rule,
    ruled,
)
from kraftsim.conformance.target import Target, TargetTopic
from protocol.acls import AclOperation
from protocol.api_keys import ApiKey
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.k11_join_group import JoinGroupResponse
from protocol.messages.k12_heartbeat import HeartbeatResponse
from protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from protocol.messages.k14_sync_group import SyncGroupResponse
from protocol.messages.k15_describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

REQUIREMENTS = Requirements("security", 7, "Deletion of an ACL of a member, or during a wait")
READ, DESCRIBE = AclOperation.READ, AclOperation.DESCRIBE
SEVERAL_LEAVE_SINCE = 3
"""Versions of LeaveGroup with a list of members."""
FETCH_VERSION, WAIT_MS = 11, 15_000


def described(group_client: GroupClient) -> tuple[str, int]:
    """Return the state of the group and the number of its members, as a super user sees them."""
    with group_client.peer() as peer:
        group = peer.ask(
            DescribeGroupsRequest(groups=[group_client.group_id]), 4, DescribeGroupsResponse
        ).groups[0]
    return group.group_state, len(group.members)


def errors_of_member(
    group_client: GroupClient, peer: Peer, joined: JoinGroupResponse, topic: TargetTopic
) -> dict[str, int]:
    """Send every request of a member, in every version; return the errors."""
    target, member_id, generation_id = group_client.target, joined.member_id, joined.generation_id
    found = {}
    for version in target.versions(ApiKey.HEARTBEAT):
        found[f"Heartbeat v{version}"] = peer.ask(
            group_client.heartbeat_request(member_id, generation_id), version, HeartbeatResponse
        ).error_code
    for version in target.versions(ApiKey.SYNC_GROUP):
        found[f"SyncGroup v{version}"] = peer.ask(
            group_client.sync_request(member_id, generation_id), version, SyncGroupResponse
        ).error_code
    for version in target.versions(ApiKey.JOIN_GROUP):
        found[f"JoinGroup v{version}"] = peer.ask(
            group_client.join_request(member_id), version, JoinGroupResponse
        ).error_code
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    rows = [OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=[row])]
    commit = OffsetCommitRequest(
        group_id=group_client.group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        topics=rows,
    )
    for version in target.versions(ApiKey.OFFSET_COMMIT):
        answer = peer.ask(commit, version, OffsetCommitResponse)
        found[f"OffsetCommit v{version}"] = answer.topics[0].partitions[0].error_code
    for version in target.versions(ApiKey.LEAVE_GROUP):
        several = version >= SEVERAL_LEAVE_SINCE
        leave = LeaveGroupRequest(
            group_id=group_client.group_id, member_id="" if several else member_id
        )
        leave.members = [MemberIdentity(member_id=member_id)] if several else []
        found[f"LeaveGroup v{version}"] = peer.ask(leave, version, LeaveGroupResponse).error_code
    return found


@REQUIREMENTS.that(
    1,
    "without READ on its group every request of a member returns GROUP_AUTHORIZATION_FAILED; it "
    "stays a member",
    source="KafkaApis",
)
def member_revoked(target: Target) -> None:
    require_authorizer(target)
    topic, group_client = target.topic(), GroupClient(target)
    may_read = rule(group_client.group_id, READ, resource=GROUP)
    with ruled(target, may_read, rule(topic.name, READ)) as peer:
        joined = group_client.joined_alone(peer)
        revoke(target, may_read)
        found = errors_of_member(group_client, peer, joined, topic)
        expect_equal(found, dict.fromkeys(found, GROUP_FAILED), "errors")
        expect_equal(described(group_client), ("Stable", 1), "state, members")
        create(target, may_read)
        expect_equal(
            group_client.heartbeat(peer, joined.member_id, joined.generation_id),
            0,
            "Heartbeat with the ACL",
        )
        committed = group_client.commit(
            peer, [(topic.name, 0)], member_id=joined.member_id, generation_id=joined.generation_id
        )
        expect_equal(committed, [0], "OffsetCommit with the ACL")
        revoke(target, rule(topic.name, READ))
        committed = group_client.commit(
            peer, [(topic.name, 0)], member_id=joined.member_id, generation_id=joined.generation_id
        )
        expect_equal(committed, [TOPIC_FAILED], "OffsetCommit without READ on the topic")
        expect_equal(
            group_client.leave(peer, joined.member_id).members[0].error_code, 0, "LeaveGroup"
        )


@REQUIREMENTS.that(
    2,
    "a JoinGroup or SyncGroup that waits while READ on its group is deleted succeeds; the next "
    "request returns GROUP_AUTHORIZATION_FAILED",
    source="KafkaApis",
)
def waiting_member_revoked(target: Target) -> None:
    require_authorizer(target)
    group_client = GroupClient(target)
    may_read = rule(group_client.group_id, READ, resource=GROUP)
    with group_client.peer() as leader, ruled(target, may_read) as peer:
        first = group_client.joined_alone(leader)
        asked = group_client.join_request(group_client.fresh_id(peer))
        correlation_id = peer.send(asked, JOIN_VERSION)
        expect_equal(peer.is_silent(), True, "whether the JoinGroup waits")
        revoke(target, may_read)
        again = leader.ask(
            group_client.join_request(first.member_id), JOIN_VERSION, JoinGroupResponse
        )
        joined = peer.receive(asked, JOIN_VERSION, correlation_id, JoinGroupResponse)
        expect_equal((again.error_code, joined.error_code), (0, 0), "JoinGroup of both")
        expect_equal(
            (joined.generation_id, joined.leader),
            (again.generation_id, first.member_id),
            "generation, leader",
        )
        sync = group_client.sync_request(joined.member_id, joined.generation_id)
        expect_equal(
            peer.ask(sync, SYNC_VERSION, SyncGroupResponse).error_code,
            GROUP_FAILED,
            "SyncGroup without the ACL",
        )
        create(target, may_read)
        correlation_id = peer.send(sync, SYNC_VERSION)
        expect_equal(peer.is_silent(), True, "whether the SyncGroup waits")
        revoke(target, may_read)
        shares = group_client.sync_request(
            first.member_id,
            again.generation_id,
            {first.member_id: b"one", joined.member_id: b"two"},
        )
        expect_equal(
            leader.ask(shares, SYNC_VERSION, SyncGroupResponse).error_code,
            0,
            "SyncGroup of the leader",
        )
        synced = peer.receive(sync, SYNC_VERSION, correlation_id, SyncGroupResponse)
        expect_equal(
            (synced.error_code, bytes(synced.assignment)),
            (0, b"two"),
            "error and assignment of the SyncGroup that waited",
        )
        expect_equal(
            group_client.heartbeat(peer, joined.member_id, joined.generation_id),
            GROUP_FAILED,
            "Heartbeat without the ACL",
        )
        expect_equal(described(group_client), ("Stable", 2), "state, members")


@REQUIREMENTS.that(
    3,
    "without READ on its group heartbeats and leaving of a consumer group member return "
    "GROUP_AUTHORIZATION_FAILED; it stays a member",
    source="KIP-848; KafkaApis",
    since="4.0",
)
def consumer_revoked(target: Target) -> None:
    require_authorizer(target)
    topic = target.topic()
    with ConsumerGroupClient(target) as group_client:
        may_read, may_describe = (
            rule(group_client.group_id, READ, resource=GROUP),
            rule(topic.name, DESCRIBE),
        )
        beat = ConsumerGroupHeartbeatRequest(group_id=group_client.group_id, member_id="a")
        named = ConsumerGroupHeartbeatRequest(
            group_id=group_client.group_id, member_id="a", rebalance_timeout_ms=WAIT_MS
        )
        named.subscribed_topic_names, named.topic_partitions = [topic.name], []
        leave = ConsumerGroupHeartbeatRequest(
            group_id=group_client.group_id, member_id="a", member_epoch=-1
        )

        def error(requester: Peer, asked: ConsumerGroupHeartbeatRequest, version: int = 1) -> int:
            answer = with_retries(
                lambda: requester.ask(asked, version, ConsumerGroupHeartbeatResponse),
                lambda found: found.error_code,
            )
            beat.member_epoch = named.member_epoch = max(beat.member_epoch, answer.member_epoch)
            return answer.error_code

        with ruled(target, may_read, may_describe) as peer:
            expect_equal(
                (error(peer, named), error(peer, beat)), (0, 0), "joining, and a heartbeat"
            )
            revoke(target, may_read)
            for what, asked in (
                ("a heartbeat", beat),
                ("a heartbeat that names the topic", named),
                ("leaving", leave),
            ):
                for version in target.versions(ApiKey.CONSUMER_GROUP_HEARTBEAT):
                    expect_equal(
                        error(peer, asked, version),
                        GROUP_FAILED,
                        f"{what} v{version} without READ on the group",
                    )
            expect_equal(error(group_client.peer, beat), 0, "the same heartbeat of a super user")
            create(target, may_read)
            revoke(target, may_describe)
            for what, asked, code in (
                ("names the topic", named, TOPIC_FAILED),
                ("names nothing", beat, 0),
                ("leaves", leave, 0),
            ):
                expect_equal(
                    error(peer, asked),
                    code,
                    f"a heartbeat that {what} without DESCRIBE on the topic",
                )


@REQUIREMENTS.that(
    4,
    "a Fetch that waits while READ on its topic is deleted returns new records; the next one "
    "returns TOPIC_AUTHORIZATION_FAILED",
    source="KafkaApis, DelayedFetch",
)
def waiting_fetch_revoked(target: Target) -> None:
    require_authorizer(target)
    topic = target.topic()
    row = FetchTopic(
        topic=topic.name, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)]
    )
    asked = FetchRequest(
        session_epoch=-1, max_bytes=1000, max_wait_ms=WAIT_MS, min_bytes=1, topics=[row]
    )
    may_read = rule(topic.name, READ)
    with (
        ruled(target, may_read) as peer,
        target.peer(topic.leader) as producer,
        as_alice(target) as another,
    ):
        correlation_id = peer.send(asked, FETCH_VERSION)
        expect_equal(peer.is_silent(), True, "whether the Fetch waits")
        revoke(target, may_read)
        expect_equal(produce(producer, topic.name, batch()).error_code, 0, "Produce")
        found = (
            peer.receive(asked, FETCH_VERSION, correlation_id, FetchResponse)
            .responses[0]
            .partitions[0]
        )
        expect_equal(
            (found.error_code, bool(found.records)),
            (0, True),
            "the Fetch that waited: error, whether there are records",
        )
        for client, what in ((peer, "the next Fetch"), (another, "a Fetch of another connection")):
            after = client.ask(asked, FETCH_VERSION, FetchResponse).responses[0].partitions[0]
            expect_equal((after.error_code, bool(after.records)), (TOPIC_FAILED, False), what)
