"""JoinGroup (11), SyncGroup (14), Heartbeat (12) and LeaveGroup (13): the life of a classic group.

Source: KIP-62, KIP-345, KIP-394, KIP-559; kafka.coordinator.group.GroupCoordinator; every code was asked of Apache Kafka 3.9.1.
"""

from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.group_talk import HEARTBEAT_VERSION, JOIN_VERSION, PROTOCOL, PROTOCOL_TYPE, SYNC_VERSION, GroupTalk
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.settle import settled
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse
from protocol.messages.k14_sync_group import SyncGroupResponse

REQUIREMENTS = Requirements("consumer-groups", 2, "Members")
COORDINATOR = "kafka.coordinator.group.GroupCoordinator"
ID_FIRST_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SHORT_MS = 10


@REQUIREMENTS.that(1, "who joins without an id is given one and has to come back with it: error 79, since version 4", source="KIP-394")
def id_first(target: Target) -> None:
    talk = GroupTalk(target)
    with talk.peer() as peer:
        for version in target.versions(ApiKey.JOIN_GROUP, since=ID_FIRST_SINCE):
            answer = peer.ask(talk.join_request(), version, JoinGroupResponse)
            expect_error(answer.error_code, ErrorCode.MEMBER_ID_REQUIRED, f"version {version}")
            expect(len(answer.member_id) > len("-") and not answer.members, f"version {version}: the id {answer.member_id!r}")
            no_name = None if version >= NULL_PROTOCOL_SINCE else ""
            expect_equal((answer.generation_id, answer.protocol_name, answer.leader), (-1, no_name, ""), f"version {version}: the rest")


@REQUIREMENTS.that(2, "a join is refused: 24 no group id, 26 a session out of bounds, 23 no common protocol, 25 an id nobody has", source=COORDINATOR)
def refused_joins(target: Target) -> None:
    talk = GroupTalk(target)
    no_group = talk.join_request()
    no_group.group_id = ""
    cases: list[tuple[str, JoinGroupRequest, ErrorCode]] = [
        ("no group id", no_group, ErrorCode.INVALID_GROUP_ID),
        ("a short session", talk.join_request(session_ms=SHORT_MS), ErrorCode.INVALID_SESSION_TIMEOUT),
        ("an unknown member of no group", talk.join_request("x"), ErrorCode.UNKNOWN_MEMBER_ID),
        ("no protocol", talk.join_request(protocols=()), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ]
    with talk.peer() as peer:
        for what, asked, error in cases:
            expect_error(peer.ask(asked, JOIN_VERSION, JoinGroupResponse).error_code, error, what)
        talk.joined_alone(peer)
        for what, asked, error in (
            ("an unknown member", talk.join_request("x"), ErrorCode.UNKNOWN_MEMBER_ID),
            ("a protocol that the others do not know", talk.join_request(protocols=("odd",)), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ):
            expect_error(peer.ask(asked, JOIN_VERSION, JoinGroupResponse).error_code, error, what)


@REQUIREMENTS.that(3, "the first member leads generation 1, is told of itself, and gets the share that it hands in", source=COORDINATOR)
def alone(target: Target) -> None:
    talk = GroupTalk(target)
    with talk.peer() as peer:
        joined = talk.joined_alone(peer)
        told = (joined.generation_id, joined.protocol_type, joined.protocol_name, joined.leader)
        expect_equal(told, (1, PROTOCOL_TYPE, PROTOCOL, joined.member_id), "generation, type, protocol, leader")
        rows = [(row.member_id, bytes(row.metadata)) for row in joined.members]
        expect_equal(rows, [(joined.member_id, talk.subscription)], "members")
        expect_error(talk.heartbeat(peer, joined.member_id, 1), ErrorCode.NONE, "a heartbeat")
        again = peer.ask(talk.sync_request(joined.member_id, 1), SYNC_VERSION, SyncGroupResponse)
        expect_equal((again.error_code, bytes(again.assignment)), (0, b"share"), "the share, asked for again")


@REQUIREMENTS.that(4, "a second member begins a rebalance: the first hears 27, joins again, and both are in the next generation", source=COORDINATOR)
def two(target: Target) -> None:
    talk = GroupTalk(target)
    with talk.peer() as one, talk.peer() as other:
        first, second = _two_joined(talk, one, other)
        expect_equal((first.generation_id, second.generation_id), (2, 2), "generations")
        expect_equal((first.leader, second.leader), (first.member_id, first.member_id), "leaders")
        expect_equal(sorted(row.member_id for row in first.members), sorted((first.member_id, second.member_id)), "members, told to the leader")
        expect_equal(second.members, [], "members, told to the other")
        asked = talk.sync_request(second.member_id, 2)
        waiting = other.send(asked, SYNC_VERSION)
        expect(other.is_silent(), "a share was given before the leader handed any in")
        shares = {first.member_id: b"one", second.member_id: b"two"}
        led = one.ask(talk.sync_request(first.member_id, 2, shares), SYNC_VERSION, SyncGroupResponse)
        followed = other.receive(asked, SYNC_VERSION, waiting, SyncGroupResponse)
        expect_equal((bytes(led.assignment), bytes(followed.assignment)), (b"one", b"two"), "shares")


@REQUIREMENTS.that(5, "a member that leaves begins a rebalance; who is no member cannot leave: error 25", source=COORDINATOR)
def leaving(target: Target) -> None:
    talk = GroupTalk(target)
    with talk.peer() as one, talk.peer() as other:
        first, second = _two_joined(talk, one, other)
        left = talk.leave(other, second.member_id)
        expect_equal((left.error_code, [row.error_code for row in left.members]), (0, [0]), "errors of who leaves")
        expect_error(talk.heartbeat(one, first.member_id, 2), ErrorCode.REBALANCE_IN_PROGRESS, "a heartbeat of who stays")
        again = talk.leave(other, second.member_id)
        expect_equal((again.error_code, [row.error_code for row in again.members]), (0, [25]), "errors of who left already")
        old = other.ask(LeaveGroupRequest(group_id=talk.group_id, member_id=second.member_id), 2, LeaveGroupResponse)
        expect_error(old.error_code, ErrorCode.UNKNOWN_MEMBER_ID, "who left already, in version 2")
        joined = one.ask(talk.join_request(first.member_id), JOIN_VERSION, JoinGroupResponse)
        expect_equal((joined.error_code, joined.generation_id, len(joined.members)), (0, 3, 1), "error, generation, members of who stays")


@REQUIREMENTS.that(6, "a static member comes back into its place without a rebalance, and its former self is fenced: error 82", source="KIP-345")
def static(target: Target) -> None:
    talk = GroupTalk(target)
    with talk.peer() as peer:
        first = talk.joined_alone(peer, instance_id="one")
        again = peer.ask(talk.join_request(instance_id="one"), JOIN_VERSION, JoinGroupResponse)
        expect_equal((again.error_code, again.generation_id), (0, first.generation_id), "error, generation")
        expect(again.member_id != first.member_id, "the id is the old one")
        expect_equal((again.leader, again.members), (first.member_id, []), "leader and members, as version 7 is told of them")
        share = peer.ask(talk.sync_request(again.member_id, 1, instance_id="one"), SYNC_VERSION, SyncGroupResponse)
        expect_equal((share.error_code, bytes(share.assignment)), (0, b"share"), "error, share")
        expect_error(talk.heartbeat(peer, first.member_id, 1, "one"), ErrorCode.FENCED_INSTANCE_ID, "a heartbeat of the former self")
        expect_error(talk.heartbeat(peer, first.member_id, 1), ErrorCode.UNKNOWN_MEMBER_ID, "one without the instance id")
        expect_error(talk.heartbeat(peer, again.member_id, 1, "one"), ErrorCode.NONE, "a heartbeat of the present self")
        gone = talk.leave(peer, "", "one")
        expect_equal([row.error_code for row in gone.members], [0], "an administrator sends it away")
        expect_error(talk.heartbeat(peer, again.member_id, 1, "one"), ErrorCode.UNKNOWN_MEMBER_ID, "a heartbeat afterwards")


@REQUIREMENTS.that(7, "heartbeats and syncs are refused with 25 or 22: not a member, another generation", source=COORDINATOR)
def refused_members(target: Target) -> None:
    talk = GroupTalk(target)
    with talk.peer() as peer:
        expect_error(talk.heartbeat(peer, "x", 1), ErrorCode.UNKNOWN_MEMBER_ID, "a heartbeat to no group")
        joined = talk.joined_alone(peer)
        expect_error(talk.heartbeat(peer, "x", 1), ErrorCode.UNKNOWN_MEMBER_ID, "a heartbeat of a stranger")
        expect_error(talk.heartbeat(peer, joined.member_id, 2), ErrorCode.ILLEGAL_GENERATION, "a heartbeat of the future")
        nameless = HeartbeatRequest(group_id="", generation_id=1, member_id="x")
        expect_error(peer.ask(nameless, HEARTBEAT_VERSION, HeartbeatResponse).error_code, ErrorCode.INVALID_GROUP_ID, "no group id")
        for member_id, generation_id, error in (
            ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
            (joined.member_id, 2, ErrorCode.ILLEGAL_GENERATION),
        ):
            answer = peer.ask(talk.sync_request(member_id, generation_id), SYNC_VERSION, SyncGroupResponse)
            expect_equal((answer.error_code, bytes(answer.assignment)), (int(error), b""), f"sync of {member_id} in {generation_id}: error, share")
        odd = talk.sync_request(joined.member_id, 1)
        odd.protocol_name = "odd"
        answer = peer.ask(odd, SYNC_VERSION, SyncGroupResponse)
        expect_error(answer.error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "sync for another protocol")


def _two_joined(talk: GroupTalk, one: Peer, other: Peer) -> tuple[JoinGroupResponse, JoinGroupResponse]:
    """Let a second member come into a group of one; return how both were answered."""
    first = talk.joined_alone(one)
    asked = talk.join_request(talk.fresh_id(other))
    waiting = other.send(asked, JOIN_VERSION)
    settled(
        lambda: talk.heartbeat(one, first.member_id, 1), lambda error: error == ErrorCode.REBALANCE_IN_PROGRESS, "a rebalance for the second member"
    )
    again = one.ask(talk.join_request(first.member_id), JOIN_VERSION, JoinGroupResponse)
    joined = other.receive(asked, JOIN_VERSION, waiting, JoinGroupResponse)
    expect_equal((again.error_code, joined.error_code), (0, 0), "errors of both")
    return again, joined
