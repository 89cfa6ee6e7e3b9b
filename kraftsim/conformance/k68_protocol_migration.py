"""Groups that change from the classic protocol to that of KIP-848, and back, while they have
members.

Source: KIP-848 (group.consumer.migration.policy); GroupMetadataManager.{convertToConsumerGroup,
convertToClassicGroup}; verified against Apache Kafka 4.1.2 and 4.4.0.
"""

from dataclasses import dataclass, field

from kraftsim.conformance.consumer_group_client import ConsumerGroupClient, Owned
from kraftsim.conformance.expect import Unmet, expect, expect_equal, expect_error, settled
from kraftsim.conformance.group_client import (
    HEARTBEAT_VERSION,
    JOIN_VERSION,
    PROTOCOL,
    PROTOCOL_TYPE,
    SESSION_MS,
    SYNC_VERSION,
    with_retries,
)
from kraftsim.conformance.k68_consumer_group_heartbeat import commit, described, fetch
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, TargetTopic
from protocol.errors import ErrorCode
from protocol.messages.k11_join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.k14_sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from protocol.messages.k15_describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.k69_consumer_group_describe import CLASSIC_MEMBER, CONSUMER_MEMBER
from protocol.version_prefixed import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
    build_assignment,
    build_subscription,
    parse_assignment,
)

REQUIREMENTS = Requirements("consumer-groups", 7, "Online migration between group protocols")
SINCE = "4.0"
MANAGER = "org.apache.kafka.coordinator.group.GroupMetadataManager"
SUBSCRIPTION_VERSION = 1
REBALANCING, ILLEGAL, UNKNOWN, FENCED_INSTANCE, INCONSISTENT, NOT_FOUND = 27, 22, 25, 82, 23, 69


@dataclass(slots=True)
class OldMember:
    """A member with the classic protocol: a cooperative consumer (KIP-429)."""

    group_client: ConsumerGroupClient
    topic: TargetTopic
    instance_id: str | None = None
    member_id: str = ""
    generation_id: int = -1
    owned: tuple[int, ...] = ()
    last: JoinGroupResponse = field(default_factory=JoinGroupResponse)

    def join_request(
        self, protocol: str = PROTOCOL, session_ms: int = SESSION_MS
    ) -> JoinGroupRequest:
        """Return its subscription and its owned partitions."""
        owned = (
            [OwnedPartitions(topic=self.topic.name, partitions=list(self.owned))]
            if self.owned
            else []
        )
        subscription = ConsumerProtocolSubscription(
            topics=[self.topic.name], owned_partitions=owned
        )
        return JoinGroupRequest(
            group_id=self.group_client.group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=protocol, metadata=build_subscription(subscription, SUBSCRIPTION_VERSION)
                )
            ],
        )

    def ask_to_join(
        self, protocol: str = PROTOCOL, session_ms: int = SESSION_MS
    ) -> JoinGroupResponse:
        """Join as the coordinator requires: without an id first, then with the returned one."""
        self.last = with_retries(
            lambda: self.group_client.peer.ask(
                self.join_request(protocol, session_ms), JOIN_VERSION, JoinGroupResponse
            ),
            lambda answer: answer.error_code,
        )
        if self.last.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = self.last.member_id
            self.last = self.group_client.peer.ask(
                self.join_request(protocol, session_ms), JOIN_VERSION, JoinGroupResponse
            )
        return self.last

    def join(self) -> JoinGroupResponse:
        """Join, and complete the join."""
        answer = self.ask_to_join()
        expect_error(answer.error_code, ErrorCode.NONE, "a join in the classic protocol")
        self.member_id, self.generation_id = answer.member_id, answer.generation_id
        return answer

    def ask_to_sync(
        self, shares: dict[str, bytes] | None = None, protocol: str = PROTOCOL
    ) -> SyncGroupResponse:
        """Send SyncGroup; the leader of a classic group sends all assignments."""
        asked = SyncGroupRequest(
            group_id=self.group_client.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=share)
                for each, share in (shares or {}).items()
            ],
        )
        return self.group_client.peer.ask(asked, SYNC_VERSION, SyncGroupResponse)

    def sync(self, shares: dict[str, bytes] | None = None) -> None:
        """Send SyncGroup, and take the assignment."""
        answer = self.ask_to_sync(shares)
        expect_error(answer.error_code, ErrorCode.NONE, "a sync in the classic protocol")
        rows = parse_assignment(bytes(answer.assignment)).assigned_partitions
        self.owned = tuple(sorted(number for row in rows for number in row.partitions))

    def lead(self, *shares: tuple["OldMember", tuple[int, ...]]) -> None:
        """As the leader of a classic group, send the assignments, including its own."""
        rows = {each.member_id: self.share_of(numbers) for each, numbers in shares}
        self.sync(rows)

    def share_of(self, numbers: tuple[int, ...], user_data: bytes | None = None) -> bytes:
        """Return partitions as an assignment."""
        rows = [AssignedPartitions(topic=self.topic.name, partitions=list(numbers))]
        return build_assignment(
            ConsumerProtocolAssignment(assigned_partitions=rows, user_data=user_data),
            SUBSCRIPTION_VERSION,
        )

    def heartbeat(self, generation_id: int | None = None) -> int:
        """Send a heartbeat, and return the error."""
        asked = HeartbeatRequest(
            group_id=self.group_client.group_id,
            generation_id=self.generation_id if generation_id is None else generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return self.group_client.peer.ask(asked, HEARTBEAT_VERSION, HeartbeatResponse).error_code

    def live(self) -> None:
        """Do what a client does next: revoke partitions that are no longer assigned, and rejoin on
        request.
        """
        if self.heartbeat() == REBALANCING:
            self.join()
            before = self.owned
            self.sync()
            if set(before) - set(self.owned):
                self.join()
                self.sync()


def old_group(
    group_client: ConsumerGroupClient,
    topic: TargetTopic,
    numbers: tuple[int, ...],
    instance_id: str | None = None,
) -> OldMember:
    """Return the only member of a classic group, with its assignment."""
    member = OldMember(group_client, topic, instance_id)
    member.join()
    member.lead((member, numbers))
    return member


def shared(
    group_client: ConsumerGroupClient,
    topic: TargetTopic,
    wanted: list[tuple[int, ...]],
    old: list[OldMember],
    *new: str,
) -> list[Owned]:
    """Keep classic members alive and let consumer members heartbeat until each owns its expected
    partitions; new ones join first.
    """
    members = [group_client.member(name, topic) for name in new]
    for member in members:
        member.join()

    def a_round() -> list[tuple[int, ...]]:
        for each in old:
            each.live()
        for member in members:
            member.beat()
        return [
            *(each.owned for each in old),
            *(member.owned.get(topic.topic_id, ()) for member in members),
        ]

    settled(
        a_round, lambda found: found == wanted, "the assignments of classic and consumer members"
    )
    return [member.owned for member in members]


@REQUIREMENTS.that(
    1,
    "a classic group of consumers becomes a consumer group with its members on the first "
    "ConsumerGroupHeartbeat",
    source="KIP-848",
    since=SINCE,
)
def upgraded(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerGroupClient(target) as group_client:
        old = old_group(group_client, topic, (0, 1))
        generation_id = old.generation_id
        member = group_client.member("new", topic)
        member.join()
        expect_equal(member.owned.get(topic.topic_id, ()), (), "nothing is free yet")
        found = described(group_client)
        kinds = {each.member_id: each.member_type for each in found.members}
        expect_equal(
            kinds, {old.member_id: CLASSIC_MEMBER, "new": CONSUMER_MEMBER}, "kinds of members"
        )
        epochs = {each.member_id: each.member_epoch for each in found.members}
        expect_equal(epochs[old.member_id], generation_id, "the generation is the member's epoch")
        expect_equal(found.group_epoch, generation_id + 1, "and the group is in the next one")
        expect_equal(old.heartbeat(), REBALANCING, "a heartbeat of the classic member")


@REQUIREMENTS.that(
    2,
    "classic and consumer members share partitions, and the coordinator assigns to both: there "
    "is no leader",
    source="KIP-848",
    since=SINCE,
)
def mixed(target: Target) -> None:
    topic = target.topic(partitions=4)
    with ConsumerGroupClient(target) as group_client:
        old = old_group(group_client, topic, (0, 1, 2, 3))
        shared(group_client, topic, [(0, 1), (2, 3)], [old], "new")
        returned = (old.last.leader, old.last.protocol_name, len(old.last.members))
        expect_equal(
            returned, ("", PROTOCOL, 0), "leader, protocol and members in a JoinGroup response"
        )
        expect_equal(old.heartbeat(), 0, "a heartbeat after the reconciliation")


@REQUIREMENTS.that(
    3,
    "a member with the classic protocol can join a consumer group, too",
    source="KIP-848",
    since=SINCE,
)
def joins_late(target: Target) -> None:
    topic = target.topic(partitions=4)
    with ConsumerGroupClient(target) as group_client:
        new = group_client.member("a", topic)
        new.join()
        group_client.settle(new, wanted=[{topic.topic_id: (0, 1, 2, 3)}])
        old = OldMember(group_client, topic)
        old.join()
        old.sync()
        expect_equal(old.owned, (), "nothing is free yet")

        def a_round() -> tuple[tuple[int, ...], ...]:
            new.beat()
            old.live()
            return new.owned.get(topic.topic_id, ()), old.owned

        settled(a_round, lambda found: found == ((0, 1), (2, 3)), "the assignments of both")


@REQUIREMENTS.that(
    4,
    "a classic member is fenced with ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID "
    "or INCONSISTENT_GROUP_PROTOCOL",
    source=MANAGER,
    since=SINCE,
)
def fenced(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerGroupClient(target) as group_client:
        new = group_client.member("a", topic)
        new.join()
        old, static = OldMember(group_client, topic), OldMember(group_client, topic, "instance")
        old.join()
        static.join()
        expect_equal(
            old.heartbeat(old.generation_id - 1), ILLEGAL, "a heartbeat of another generation"
        )
        old.generation_id += 5
        expect_equal(old.ask_to_sync().error_code, ILLEGAL, "a sync of another generation")
        old.generation_id -= 5
        stranger = OldMember(
            group_client, topic, member_id="stranger", generation_id=old.generation_id
        )
        expect_equal(
            (stranger.heartbeat(), stranger.ask_to_sync().error_code),
            (UNKNOWN, UNKNOWN),
            "a heartbeat and a sync of a non-member",
        )
        twin = OldMember(
            group_client, topic, "instance", member_id="twin", generation_id=static.generation_id
        )
        expect_equal(
            (twin.heartbeat(), twin.ask_to_join().error_code),
            (FENCED_INSTANCE, FENCED_INSTANCE),
            "a twin's heartbeat and join",
        )
        as_new = OldMember(group_client, topic, member_id="a", generation_id=new.epoch)
        expect_equal(
            (as_new.heartbeat(), as_new.ask_to_sync().error_code),
            (UNKNOWN, UNKNOWN),
            "a consumer member that uses the classic protocol",
        )
        expect_equal(
            OldMember(group_client, topic).ask_to_join("roundrobin").error_code,
            INCONSISTENT,
            "a join with another protocol only",
        )
        expect_equal(
            static.ask_to_sync(protocol="roundrobin").error_code,
            INCONSISTENT,
            "a sync with another protocol",
        )


@REQUIREMENTS.that(
    5,
    "a classic member commits with its generation: in any version, and ILLEGAL_GENERATION for "
    "another generation",
    source=MANAGER,
    since=SINCE,
)
def commits(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerGroupClient(target) as group_client:
        new = group_client.member("a", topic)
        new.join()
        old = OldMember(group_client, topic)
        old.join()
        returned = [
            commit(group_client, topic.name, old.member_id, old.generation_id, version=version)
            for version in (8, 9)
        ]
        expect_equal(returned, [0, 0], "commits of versions 8 and 9")
        returned = [
            commit(group_client, topic.name, old.member_id, old.generation_id + step)
            for step in (1, -1)
        ]
        expect_equal(returned, [ILLEGAL, ILLEGAL], "commits of another generation")
        expect_equal(
            fetch(group_client, topic.name, old.member_id, old.generation_id),
            (0, 5),
            "the fetched offset",
        )
        expect_equal(
            fetch(group_client, topic.name, old.member_id, old.generation_id + 1)[0],
            ILLEGAL,
            "a fetch of another generation",
        )


@REQUIREMENTS.that(
    6,
    "classic members leave as before, and their partitions go to the others",
    source=MANAGER,
    since=SINCE,
)
def leaves(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerGroupClient(target) as group_client:
        old = old_group(group_client, topic, (0, 1))
        new = group_client.member("a", topic)
        new.join()
        returned = group_client.classic.leave(group_client.peer, old.member_id)
        expect_equal([row.error_code for row in returned.members], [0], "leaving")
        group_client.settle(new, wanted=[{topic.topic_id: (0, 1)}])
        returned = group_client.classic.leave(group_client.peer, old.member_id)
        expect_equal([row.error_code for row in returned.members], [UNKNOWN], "leaving again")


@REQUIREMENTS.that(
    7,
    "LeaveGroup removes consumer members, too; with the last of them the group is a classic one "
    "again",
    source=MANAGER,
    since=SINCE,
)
def removed_by_leave_group(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerGroupClient(target) as group_client:
        old = old_group(group_client, topic, (0, 1))
        group_client.member("a", topic).join()
        group_client.member("b", topic, instance_id="instance").join()
        returned = [
            group_client.classic.leave(group_client.peer, *each).members[0].error_code
            for each in (("a",), ("", "instance"))
        ]
        expect_equal(returned, [0, 0], "leaving by id and by instance")
        expect_equal(described(group_client).error_code, NOT_FOUND, "it is no consumer group")
        expect_equal(
            old.heartbeat(described_generation(group_client)),
            REBALANCING,
            "a heartbeat of the classic member",
        )


def described_generation(group_client: ConsumerGroupClient) -> int:
    """Return the generation of a classic group: no API returns it, so it is found by heartbeats of
    its one member.
    """
    group = group_client.peer.ask(
        DescribeGroupsRequest(groups=[group_client.group_id]), 5, DescribeGroupsResponse
    ).groups[0]
    for generation_id in range(1, 20):
        asked = HeartbeatRequest(
            group_id=group_client.group_id,
            generation_id=generation_id,
            member_id=group.members[0].member_id,
        )
        if group_client.peer.ask(asked, HEARTBEAT_VERSION, HeartbeatResponse).error_code != ILLEGAL:
            return generation_id
    raise Unmet("no generation is the present one")


@REQUIREMENTS.that(
    8,
    "when the last consumer member leaves, the group is classic again: its members rejoin, from "
    "its epoch on",
    source="KIP-848",
    since=SINCE,
)
def downgraded(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerGroupClient(target) as group_client:
        old = old_group(group_client, topic, (0, 1))
        new = group_client.member("a", topic)
        new.join()
        shared_epoch = described(group_client).group_epoch

        def a_round() -> tuple[int, ...]:
            old.live()
            new.beat()
            return old.owned

        settled(a_round, lambda found: len(found) == 1, "the assignment of the classic member")
        expect_equal(
            commit(group_client, topic.name, old.member_id, old.generation_id), 0, "a commit"
        )
        expect_equal(new.leave().error_code, 0, "the consumer member leaves")
        expect_equal(described(group_client).error_code, NOT_FOUND, "it is no consumer group")
        found = group_client.peer.ask(
            DescribeGroupsRequest(groups=[group_client.group_id]), 5, DescribeGroupsResponse
        ).groups[0]
        returned = (
            found.group_state,
            found.protocol_type,
            [member.member_id for member in found.members],
        )
        expect_equal(
            returned,
            ("PreparingRebalance", "consumer", [old.member_id]),
            "state, protocol and members",
        )
        expect_equal(old.heartbeat(), REBALANCING, "a heartbeat")
        answer = old.join()
        expect_equal(
            (answer.leader, answer.protocol_name),
            (old.member_id, PROTOCOL),
            "the classic member is the leader",
        )
        expect(
            answer.generation_id > shared_epoch,
            f"generation {answer.generation_id} does not follow epoch {shared_epoch}",
        )
        old.lead((old, (0, 1)))
        expect_equal(
            group_client.classic.fetch(group_client.peer, topic.name, [0])[0][0],
            5,
            "the committed offsets",
        )


@REQUIREMENTS.that(
    9,
    "a group of another protocol type, or with custom assignor data, is not upgraded: "
    "GROUP_ID_NOT_FOUND",
    source=MANAGER,
    since="4.4",
)
def not_upgraded(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerGroupClient(target) as group_client:
        old = OldMember(group_client, topic)
        old.join()
        expect_error(
            old.ask_to_sync({old.member_id: old.share_of((0, 1), b"mine")}).error_code,
            ErrorCode.NONE,
            "an assignment with user data",
        )
        found = group_client.ask(
            member_id="a",
            member_epoch=0,
            rebalance_timeout_ms=SESSION_MS,
            subscribed_topic_names=[topic.name],
            topic_partitions=[],
        )
        expect_equal(found.error_code, NOT_FOUND, "a heartbeat")
        expect_equal(old.heartbeat(), 0, "and nothing has happened")
    with ConsumerGroupClient(target) as group_client:
        old = OldMember(group_client, topic)
        old.join()
        expect_error(
            old.ask_to_sync({old.member_id: b"no share"}).error_code,
            ErrorCode.NONE,
            "an assignment in an unknown format",
        )
        found = group_client.ask(
            member_id="a",
            member_epoch=0,
            rebalance_timeout_ms=SESSION_MS,
            subscribed_topic_names=[topic.name],
            topic_partitions=[],
        )
        expect_equal(found.error_code, NOT_FOUND, "a heartbeat")


@REQUIREMENTS.that(
    10,
    "a static member changes protocols in its place, and back",
    source="KIP-345, KIP-848",
    since=SINCE,
)
def static_member_migrates(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerGroupClient(target) as group_client:
        old = old_group(group_client, topic, (0, 1), "instance")
        new = group_client.member("a", topic, instance_id="instance")
        new.join()
        group_client.settle(new, wanted=[{topic.topic_id: (0, 1)}])
        expect_equal(
            [each.member_id for each in described(group_client).members], ["a"], "the members"
        )
        expect_equal(old.heartbeat(), FENCED_INSTANCE, "a heartbeat of the fenced member")
        back = OldMember(group_client, topic, "instance")
        answer = back.join()
        expect_equal(
            described(group_client).error_code, NOT_FOUND, "it is no consumer group any more"
        )
        back.sync()
        expect_equal((back.owned, answer.leader), ((0, 1), ""), "its partitions, and the leader")
        expect_equal(back.heartbeat(), 0, "a heartbeat")


@REQUIREMENTS.that(
    11,
    "a classic member that does not rejoin on request is removed after its session time-out",
    source=MANAGER,
    since=SINCE,
)
def does_not_join(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerGroupClient(target) as group_client:
        new = group_client.member("a", topic)
        new.join()
        old = OldMember(group_client, topic)
        expect_error(old.ask_to_join(session_ms=6000).error_code, ErrorCode.NONE, "a join")

        def a_round() -> Owned:
            new.beat()
            return new.owned

        settled(
            lambda: len(described(group_client).members),
            lambda found: found == 1,
            "the end of its session",
            12,
        )
        settled(
            a_round, lambda found: found == {topic.topic_id: (0, 1)}, "the assignment of the other"
        )
