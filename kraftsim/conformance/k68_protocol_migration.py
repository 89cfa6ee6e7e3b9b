"""Groups that go from the classic protocol to that of KIP-848, and back, while their members are there.

Source: KIP-848 (group.consumer.migration.policy); GroupMetadataManager.{convertToConsumerGroup, convertToClassicGroup}; asked of Apache Kafka 4.1.2
and 4.4.0.
"""

from dataclasses import dataclass, field

from kraftsim.conformance.consumer_talk import ConsumerTalk, Owned
from kraftsim.conformance.expect import Unmet, expect, expect_equal, expect_error
from kraftsim.conformance.group_talk import HEARTBEAT_VERSION, JOIN_VERSION, PROTOCOL, PROTOCOL_TYPE, SESSION_MS, SYNC_VERSION, patiently
from kraftsim.conformance.k68_consumer_group_heartbeat import commit, described, fetch
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.settle import settled
from kraftsim.conformance.target import Target, Topic
from protocol.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
    build_assignment,
    build_subscription,
    parse_assignment,
)
from protocol.errors import ErrorCode
from protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from protocol.messages.k15_describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.k69_consumer_group_describe import CLASSIC_MEMBER, CONSUMER_MEMBER

REQUIREMENTS = Requirements("consumer-groups", 7, "Groups that change their protocol while they run")
SINCE = "4.0"
MANAGER = "org.apache.kafka.coordinator.group.GroupMetadataManager"
SUBSCRIPTION_VERSION = 1
REBALANCING, ILLEGAL, UNKNOWN, FENCED_INSTANCE, INCONSISTENT, NOT_FOUND = 27, 22, 25, 82, 23, 69


@dataclass(slots=True)
class OldMember:
    """A member that speaks the classic protocol, as a consumer that gives up only what it must (KIP-429)."""

    talk: ConsumerTalk
    topic: Topic
    instance_id: str | None = None
    member_id: str = ""
    generation_id: int = -1
    owned: tuple[int, ...] = ()
    last: JoinGroupResponse = field(default_factory=JoinGroupResponse)

    def join_request(self, protocol: str = PROTOCOL, session_ms: int = SESSION_MS) -> JoinGroupRequest:
        """Say what it reads, and what it has."""
        owned = [OwnedPartitions(topic=self.topic.name, partitions=list(self.owned))] if self.owned else []
        subscription = ConsumerProtocolSubscription(topics=[self.topic.name], owned_partitions=owned)
        return JoinGroupRequest(
            group_id=self.talk.group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=protocol, metadata=build_subscription(subscription, SUBSCRIPTION_VERSION))],
        )

    def ask_to_join(self, protocol: str = PROTOCOL, session_ms: int = SESSION_MS) -> JoinGroupResponse:
        """Join as the coordinator wants it: without an id first, then with the one that it gives."""
        self.last = patiently(
            lambda: self.talk.peer.ask(self.join_request(protocol, session_ms), JOIN_VERSION, JoinGroupResponse), lambda answer: answer.error_code
        )
        if self.last.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = self.last.member_id
            self.last = self.talk.peer.ask(self.join_request(protocol, session_ms), JOIN_VERSION, JoinGroupResponse)
        return self.last

    def join(self) -> JoinGroupResponse:
        """Join, and be let in."""
        answer = self.ask_to_join()
        expect_error(answer.error_code, ErrorCode.NONE, "a join in the classic protocol")
        self.member_id, self.generation_id = answer.member_id, answer.generation_id
        return answer

    def ask_to_sync(self, shares: dict[str, bytes] | None = None, protocol: str = PROTOCOL) -> SyncGroupResponse:
        """Ask for its share; a leader of a classic group brings all shares."""
        asked = SyncGroupRequest(
            group_id=self.talk.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=protocol,
            assignments=[SyncGroupRequestAssignment(member_id=each, assignment=share) for each, share in (shares or {}).items()],
        )
        return self.talk.peer.ask(asked, SYNC_VERSION, SyncGroupResponse)

    def sync(self, shares: dict[str, bytes] | None = None) -> None:
        """Ask for its share, and take it."""
        answer = self.ask_to_sync(shares)
        expect_error(answer.error_code, ErrorCode.NONE, "a sync in the classic protocol")
        rows = parse_assignment(bytes(answer.assignment)).assigned_partitions
        self.owned = tuple(sorted(number for row in rows for number in row.partitions))

    def lead(self, *shares: tuple["OldMember", tuple[int, ...]]) -> None:
        """Be the leader of a classic group, and hand shares out; its own is among them."""
        rows = {each.member_id: self.share_of(numbers) for each, numbers in shares}
        self.sync(rows)

    def share_of(self, numbers: tuple[int, ...], user_data: bytes | None = None) -> bytes:
        """Return partitions as a share."""
        rows = [AssignedPartitions(topic=self.topic.name, partitions=list(numbers))]
        return build_assignment(ConsumerProtocolAssignment(assigned_partitions=rows, user_data=user_data), SUBSCRIPTION_VERSION)

    def heartbeat(self, generation_id: int | None = None) -> int:
        """Say that it is there, and return the error."""
        asked = HeartbeatRequest(
            group_id=self.talk.group_id,
            generation_id=self.generation_id if generation_id is None else generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return self.talk.peer.ask(asked, HEARTBEAT_VERSION, HeartbeatResponse).error_code

    def live(self) -> None:
        """Do what a client does next: give up what it is not given any more, and join again where it is told to."""
        if self.heartbeat() == REBALANCING:
            self.join()
            before = self.owned
            self.sync()
            if set(before) - set(self.owned):
                self.join()
                self.sync()


def old_group(talk: ConsumerTalk, topic: Topic, numbers: tuple[int, ...], instance_id: str | None = None) -> OldMember:
    """Return the only member of a classic group, with its share."""
    member = OldMember(talk, topic, instance_id)
    member.join()
    member.lead((member, numbers))
    return member


def shared(talk: ConsumerTalk, topic: Topic, wanted: list[tuple[int, ...]], old: list[OldMember], *new: str) -> list[Owned]:
    """Let old members live and new ones heartbeat until they have what they are to have; new ones come in with the first round."""
    members = [talk.member(name, topic) for name in new]
    for member in members:
        member.join()

    def a_round() -> list[tuple[int, ...]]:
        for each in old:
            each.live()
        for member in members:
            member.beat()
        return [*(each.owned for each in old), *(member.owned.get(topic.topic_id, ()) for member in members)]

    settled(a_round, lambda found: found == wanted, "the shares of old and new members")
    return [member.owned for member in members]


@REQUIREMENTS.that(
    1,
    "a classic group of consumers becomes a consumer group when somebody joins by heartbeat, with its members",
    source="KIP-848",
    since=SINCE,
)
def upgraded(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerTalk(target) as talk:
        old = old_group(talk, topic, (0, 1))
        generation_id = old.generation_id
        member = talk.member("new", topic)
        member.join()
        expect_equal(member.owned.get(topic.topic_id, ()), (), "nothing is free yet")
        found = described(talk)
        kinds = {each.member_id: each.member_type for each in found.members}
        expect_equal(kinds, {old.member_id: CLASSIC_MEMBER, "new": CONSUMER_MEMBER}, "kinds of members")
        epochs = {each.member_id: each.member_epoch for each in found.members}
        expect_equal(epochs[old.member_id], generation_id, "the generation is the member's epoch")
        expect_equal(found.group_epoch, generation_id + 1, "and the group is in the next one")
        expect_equal(old.heartbeat(), REBALANCING, "a heartbeat of the old member")


@REQUIREMENTS.that(2, "old and new members share, and the coordinator assigns to both: nobody leads", source="KIP-848", since=SINCE)
def mixed(target: Target) -> None:
    topic = target.topic(partitions=4)
    with ConsumerTalk(target) as talk:
        old = old_group(talk, topic, (0, 1, 2, 3))
        shared(talk, topic, [(0, 1), (2, 3)], [old], "new")
        told = (old.last.leader, old.last.protocol_name, len(old.last.members))
        expect_equal(told, ("", PROTOCOL, 0), "leader, protocol and members that a join is told")
        expect_equal(old.heartbeat(), 0, "a heartbeat when all is shared out")


@REQUIREMENTS.that(3, "who speaks the classic protocol joins a consumer group, too", source="KIP-848", since=SINCE)
def joins_late(target: Target) -> None:
    topic = target.topic(partitions=4)
    with ConsumerTalk(target) as talk:
        new = talk.member("a", topic)
        new.join()
        talk.settle(new, wanted=[{topic.topic_id: (0, 1, 2, 3)}])
        old = OldMember(talk, topic)
        old.join()
        old.sync()
        expect_equal(old.owned, (), "nothing is free yet")

        def a_round() -> tuple[tuple[int, ...], ...]:
            new.beat()
            old.live()
            return new.owned.get(topic.topic_id, ()), old.owned

        settled(a_round, lambda found: found == ((0, 1), (2, 3)), "the shares of both")


@REQUIREMENTS.that(
    4, "an old member is fenced by generation (22), by id (25), by instance (82), and by another protocol (23)", source=MANAGER, since=SINCE
)
def fenced(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerTalk(target) as talk:
        new = talk.member("a", topic)
        new.join()
        old, static = OldMember(talk, topic), OldMember(talk, topic, "instance")
        old.join()
        static.join()
        expect_equal(old.heartbeat(old.generation_id - 1), ILLEGAL, "a heartbeat of another generation")
        old.generation_id += 5
        expect_equal(old.ask_to_sync().error_code, ILLEGAL, "a sync of another generation")
        old.generation_id -= 5
        stranger = OldMember(talk, topic, member_id="stranger", generation_id=old.generation_id)
        expect_equal((stranger.heartbeat(), stranger.ask_to_sync().error_code), (UNKNOWN, UNKNOWN), "a heartbeat and a sync of a stranger")
        twin = OldMember(talk, topic, "instance", member_id="twin", generation_id=static.generation_id)
        expect_equal((twin.heartbeat(), twin.ask_to_join().error_code), (FENCED_INSTANCE, FENCED_INSTANCE), "a twin's heartbeat and join")
        as_new = OldMember(talk, topic, member_id="a", generation_id=new.epoch)
        expect_equal((as_new.heartbeat(), as_new.ask_to_sync().error_code), (UNKNOWN, UNKNOWN), "a new member that speaks as an old one")
        expect_equal(OldMember(talk, topic).ask_to_join("roundrobin").error_code, INCONSISTENT, "a join that knows another protocol only")
        expect_equal(static.ask_to_sync(protocol="roundrobin").error_code, INCONSISTENT, "a sync that names another protocol")


@REQUIREMENTS.that(5, "an old member commits by its generation: any version, and 22 for another generation", source=MANAGER, since=SINCE)
def commits(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerTalk(target) as talk:
        new = talk.member("a", topic)
        new.join()
        old = OldMember(talk, topic)
        old.join()
        told = [commit(talk, topic.name, old.member_id, old.generation_id, version=version) for version in (8, 9)]
        expect_equal(told, [0, 0], "commits of versions 8 and 9")
        told = [commit(talk, topic.name, old.member_id, old.generation_id + step) for step in (1, -1)]
        expect_equal(told, [ILLEGAL, ILLEGAL], "commits of another generation")
        expect_equal(fetch(talk, topic.name, old.member_id, old.generation_id), (0, 5), "what it is told")
        expect_equal(fetch(talk, topic.name, old.member_id, old.generation_id + 1)[0], ILLEGAL, "a fetch of another generation")


@REQUIREMENTS.that(6, "old members leave as ever, and what they had goes to the others", source=MANAGER, since=SINCE)
def leaves(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerTalk(target) as talk:
        old = old_group(talk, topic, (0, 1))
        new = talk.member("a", topic)
        new.join()
        told = talk.classic.leave(talk.peer, old.member_id)
        expect_equal([row.error_code for row in told.members], [0], "leaving")
        talk.settle(new, wanted=[{topic.topic_id: (0, 1)}])
        told = talk.classic.leave(talk.peer, old.member_id)
        expect_equal([row.error_code for row in told.members], [UNKNOWN], "leaving again")


@REQUIREMENTS.that(7, "LeaveGroup takes new members out as well; with the last of them the group is a classic one again", source=MANAGER, since=SINCE)
def sent_away(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerTalk(target) as talk:
        old = old_group(talk, topic, (0, 1))
        talk.member("a", topic).join()
        talk.member("b", topic, instance_id="instance").join()
        told = [talk.classic.leave(talk.peer, *each).members[0].error_code for each in (("a",), ("", "instance"))]
        expect_equal(told, [0, 0], "leaving by id and by instance")
        expect_equal(described(talk).error_code, NOT_FOUND, "it is no consumer group")
        expect_equal(old.heartbeat(described_generation(talk)), REBALANCING, "a heartbeat of the old member")


def described_generation(talk: ConsumerTalk) -> int:
    """Return the generation in which a classic group is: no API tells it, so it is asked for by heartbeats of its one member."""
    group = talk.peer.ask(DescribeGroupsRequest(groups=[talk.group_id]), 5, DescribeGroupsResponse).groups[0]
    for generation_id in range(1, 20):
        asked = HeartbeatRequest(group_id=talk.group_id, generation_id=generation_id, member_id=group.members[0].member_id)
        if talk.peer.ask(asked, HEARTBEAT_VERSION, HeartbeatResponse).error_code != ILLEGAL:
            return generation_id
    raise Unmet("no generation is the present one")


@REQUIREMENTS.that(
    8,
    "when the last new member goes, the group is a classic one again: its members join anew, from its epoch on",
    source="KIP-848",
    since=SINCE,
)
def downgraded(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerTalk(target) as talk:
        old = old_group(talk, topic, (0, 1))
        new = talk.member("a", topic)
        new.join()
        shared_epoch = described(talk).group_epoch

        def a_round() -> tuple[int, ...]:
            old.live()
            new.beat()
            return old.owned

        settled(a_round, lambda found: len(found) == 1, "the share of the old member")
        expect_equal(commit(talk, topic.name, old.member_id, old.generation_id), 0, "a commit")
        expect_equal(new.leave().error_code, 0, "the new member leaves")
        expect_equal(described(talk).error_code, NOT_FOUND, "it is no consumer group")
        found = talk.peer.ask(DescribeGroupsRequest(groups=[talk.group_id]), 5, DescribeGroupsResponse).groups[0]
        told = (found.group_state, found.protocol_type, [member.member_id for member in found.members])
        expect_equal(told, ("PreparingRebalance", "consumer", [old.member_id]), "state, protocol and members")
        expect_equal(old.heartbeat(), REBALANCING, "a heartbeat")
        answer = old.join()
        expect_equal((answer.leader, answer.protocol_name), (old.member_id, PROTOCOL), "the old member leads")
        expect(answer.generation_id > shared_epoch, f"generation {answer.generation_id} does not follow epoch {shared_epoch}")
        old.lead((old, (0, 1)))
        expect_equal(talk.classic.fetch(talk.peer, topic.name, [0])[0][0], 5, "what was committed")


@REQUIREMENTS.that(
    9, "a group that is not of consumers, or whose shares carry something of an assignor's own, is not upgraded (69)", source=MANAGER, since="4.4"
)
def not_upgraded(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerTalk(target) as talk:
        old = OldMember(talk, topic)
        old.join()
        expect_error(old.ask_to_sync({old.member_id: old.share_of((0, 1), b"mine")}).error_code, ErrorCode.NONE, "a share with something of its own")
        found = talk.ask(member_id="a", member_epoch=0, rebalance_timeout_ms=SESSION_MS, subscribed_topic_names=[topic.name], topic_partitions=[])
        expect_equal(found.error_code, NOT_FOUND, "a heartbeat")
        expect_equal(old.heartbeat(), 0, "and nothing has happened")
    with ConsumerTalk(target) as talk:
        old = OldMember(talk, topic)
        old.join()
        expect_error(old.ask_to_sync({old.member_id: b"no share"}).error_code, ErrorCode.NONE, "a share that nobody understands")
        found = talk.ask(member_id="a", member_epoch=0, rebalance_timeout_ms=SESSION_MS, subscribed_topic_names=[topic.name], topic_partitions=[])
        expect_equal(found.error_code, NOT_FOUND, "a heartbeat")


@REQUIREMENTS.that(10, "a static member goes over from one protocol to the other in its place, and back", source="KIP-345, KIP-848", since=SINCE)
def static_goes_over(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerTalk(target) as talk:
        old = old_group(talk, topic, (0, 1), "instance")
        new = talk.member("a", topic, instance_id="instance")
        new.join()
        talk.settle(new, wanted=[{topic.topic_id: (0, 1)}])
        expect_equal([each.member_id for each in described(talk).members], ["a"], "the members")
        expect_equal(old.heartbeat(), FENCED_INSTANCE, "a heartbeat of its former self")
        back = OldMember(talk, topic, "instance")
        answer = back.join()
        expect_equal(described(talk).error_code, NOT_FOUND, "it is no consumer group any more")
        back.sync()
        expect_equal((back.owned, answer.leader), ((0, 1), ""), "what it has, and who leads")
        expect_equal(back.heartbeat(), 0, "a heartbeat")


@REQUIREMENTS.that(11, "an old member that was told to join again, and does not, is out after its session", source=MANAGER, since=SINCE)
def does_not_join(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerTalk(target) as talk:
        new = talk.member("a", topic)
        new.join()
        old = OldMember(talk, topic)
        expect_error(old.ask_to_join(session_ms=6000).error_code, ErrorCode.NONE, "a join")

        def a_round() -> Owned:
            new.beat()
            return new.owned

        settled(lambda: len(described(talk).members), lambda found: found == 1, "the end of its session", 12)
        settled(a_round, lambda found: found == {topic.topic_id: (0, 1)}, "the share of the other")
