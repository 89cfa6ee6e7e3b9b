"""JoinGroup (11), SyncGroup (14), Heartbeat (12) and LeaveGroup (13): the life cycle of a classic
group.

Source: KIP-62, KIP-345, KIP-394, KIP-559; kafka.coordinator.group.GroupCoordinator; every error was
verified against Apache Kafka 3.9.1.
"""

from kraftsim.conformance.expect import expect, expect_equal, expect_error, settled
from kraftsim.conformance.group_client import (
    HEARTBEAT_VERSION,
    JOIN_VERSION,
    PROTOCOL,
    PROTOCOL_TYPE,
    SYNC_VERSION,
    GroupClient,
)
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.requirement import Requirements
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


@REQUIREMENTS.that(
    1,
    "since version 4 a join without a member id returns one with MEMBER_ID_REQUIRED, to join "
    "again with",
    source="KIP-394",
)
def id_first(target: Target) -> None:
    group = GroupClient(target)
    with group.peer() as peer:
        for version in target.versions(ApiKey.JOIN_GROUP, since=ID_FIRST_SINCE):
            answer = peer.ask(group.join_request(), version, JoinGroupResponse)
            expect_error(answer.error_code, ErrorCode.MEMBER_ID_REQUIRED, f"version {version}")
            expect(
                len(answer.member_id) > len("-") and not answer.members,
                f"version {version}: the id {answer.member_id!r}",
            )
            no_name = None if version >= NULL_PROTOCOL_SINCE else ""
            expect_equal(
                (answer.generation_id, answer.protocol_name, answer.leader),
                (-1, no_name, ""),
                f"version {version}: the rest",
            )


@REQUIREMENTS.that(
    2,
    "invalid joins return INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, INCONSISTENT_GROUP_PROTOCOL "
    "or UNKNOWN_MEMBER_ID",
    source=COORDINATOR,
)
def refused_joins(target: Target) -> None:
    group = GroupClient(target)
    no_group = group.join_request()
    no_group.group_id = ""
    cases: list[tuple[str, JoinGroupRequest, ErrorCode]] = [
        ("no group id", no_group, ErrorCode.INVALID_GROUP_ID),
        (
            "a short session",
            group.join_request(session_ms=SHORT_MS),
            ErrorCode.INVALID_SESSION_TIMEOUT,
        ),
        ("an unknown member of no group", group.join_request("x"), ErrorCode.UNKNOWN_MEMBER_ID),
        ("no protocol", group.join_request(protocols=()), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ]
    with group.peer() as peer:
        for what, asked, error in cases:
            expect_error(peer.ask(asked, JOIN_VERSION, JoinGroupResponse).error_code, error, what)
        group.joined_alone(peer)
        for what, asked, error in (
            ("an unknown member", group.join_request("x"), ErrorCode.UNKNOWN_MEMBER_ID),
            (
                "a protocol that the others do not support",
                group.join_request(protocols=("odd",)),
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            ),
        ):
            expect_error(peer.ask(asked, JOIN_VERSION, JoinGroupResponse).error_code, error, what)


@REQUIREMENTS.that(
    3,
    "the first member leads generation 1, is listed in the response, and gets the assignment "
    "that it sends",
    source=COORDINATOR,
)
def alone(target: Target) -> None:
    group = GroupClient(target)
    with group.peer() as peer:
        joined = group.joined_alone(peer)
        returned = (joined.generation_id, joined.protocol_type, joined.protocol_name, joined.leader)
        expect_equal(
            returned,
            (1, PROTOCOL_TYPE, PROTOCOL, joined.member_id),
            "generation, type, protocol, leader",
        )
        rows = [(row.member_id, bytes(row.metadata)) for row in joined.members]
        expect_equal(rows, [(joined.member_id, group.subscription)], "members")
        expect_error(group.heartbeat(peer, joined.member_id, 1), ErrorCode.NONE, "a heartbeat")
        again = peer.ask(group.sync_request(joined.member_id, 1), SYNC_VERSION, SyncGroupResponse)
        expect_equal(
            (again.error_code, bytes(again.assignment)),
            (0, b"share"),
            "the assignment, requested again",
        )


@REQUIREMENTS.that(
    4,
    "a second member starts a rebalance: the first gets REBALANCE_IN_PROGRESS, rejoins, and both "
    "are in the next generation",
    source=COORDINATOR,
)
def two(target: Target) -> None:
    group = GroupClient(target)
    with group.peer() as one, group.peer() as other:
        first, second = _two_joined(group, one, other)
        expect_equal((first.generation_id, second.generation_id), (2, 2), "generations")
        expect_equal((first.leader, second.leader), (first.member_id, first.member_id), "leaders")
        expect_equal(
            sorted(row.member_id for row in first.members),
            sorted((first.member_id, second.member_id)),
            "members in the leader's response",
        )
        expect_equal(second.members, [], "members in the other response")
        asked = group.sync_request(second.member_id, 2)
        waiting = other.send(asked, SYNC_VERSION)
        expect(other.is_silent(), "an assignment was returned before the leader sent any")
        shares = {first.member_id: b"one", second.member_id: b"two"}
        led = one.ask(
            group.sync_request(first.member_id, 2, shares), SYNC_VERSION, SyncGroupResponse
        )
        followed = other.receive(asked, SYNC_VERSION, waiting, SyncGroupResponse)
        expect_equal(
            (bytes(led.assignment), bytes(followed.assignment)), (b"one", b"two"), "shares"
        )


@REQUIREMENTS.that(
    5,
    "a member that leaves starts a rebalance; LeaveGroup of an unknown member returns "
    "UNKNOWN_MEMBER_ID",
    source=COORDINATOR,
)
def leaving(target: Target) -> None:
    group = GroupClient(target)
    with group.peer() as one, group.peer() as other:
        first, second = _two_joined(group, one, other)
        left = group.leave(other, second.member_id)
        expect_equal(
            (left.error_code, [row.error_code for row in left.members]),
            (0, [0]),
            "errors of the leaving member",
        )
        expect_error(
            group.heartbeat(one, first.member_id, 2),
            ErrorCode.REBALANCE_IN_PROGRESS,
            "a heartbeat of the remaining member",
        )
        again = group.leave(other, second.member_id)
        expect_equal(
            (again.error_code, [row.error_code for row in again.members]),
            (0, [25]),
            "errors of a member that has left already",
        )
        old = other.ask(
            LeaveGroupRequest(group_id=group.group_id, member_id=second.member_id),
            2,
            LeaveGroupResponse,
        )
        expect_error(
            old.error_code,
            ErrorCode.UNKNOWN_MEMBER_ID,
            "a member that has left already, in version 2",
        )
        joined = one.ask(group.join_request(first.member_id), JOIN_VERSION, JoinGroupResponse)
        expect_equal(
            (joined.error_code, joined.generation_id, len(joined.members)),
            (0, 3, 1),
            "error, generation, members for the remaining member",
        )


@REQUIREMENTS.that(
    6,
    "a static member is replaced by its instance id without a rebalance, and the former one is "
    "fenced: FENCED_INSTANCE_ID",
    source="KIP-345",
)
def static(target: Target) -> None:
    group = GroupClient(target)
    with group.peer() as peer:
        first = group.joined_alone(peer, instance_id="one")
        again = peer.ask(group.join_request(instance_id="one"), JOIN_VERSION, JoinGroupResponse)
        expect_equal(
            (again.error_code, again.generation_id), (0, first.generation_id), "error, generation"
        )
        expect(again.member_id != first.member_id, "the id is the old one")
        expect_equal(
            (again.leader, again.members),
            (first.member_id, []),
            "leader and members, as version 7 returns them",
        )
        share = peer.ask(
            group.sync_request(again.member_id, 1, instance_id="one"),
            SYNC_VERSION,
            SyncGroupResponse,
        )
        expect_equal(
            (share.error_code, bytes(share.assignment)), (0, b"share"), "error, assignment"
        )
        expect_error(
            group.heartbeat(peer, first.member_id, 1, "one"),
            ErrorCode.FENCED_INSTANCE_ID,
            "a heartbeat of the fenced member",
        )
        expect_error(
            group.heartbeat(peer, first.member_id, 1),
            ErrorCode.UNKNOWN_MEMBER_ID,
            "one without the instance id",
        )
        expect_error(
            group.heartbeat(peer, again.member_id, 1, "one"),
            ErrorCode.NONE,
            "a heartbeat of the current member",
        )
        gone = group.leave(peer, "", "one")
        expect_equal([row.error_code for row in gone.members], [0], "an administrator removes it")
        expect_error(
            group.heartbeat(peer, again.member_id, 1, "one"),
            ErrorCode.UNKNOWN_MEMBER_ID,
            "a heartbeat afterwards",
        )


@REQUIREMENTS.that(
    7,
    "heartbeats and syncs return UNKNOWN_MEMBER_ID for a non-member and ILLEGAL_GENERATION for "
    "another generation",
    source=COORDINATOR,
)
def refused_members(target: Target) -> None:
    group = GroupClient(target)
    with group.peer() as peer:
        expect_error(
            group.heartbeat(peer, "x", 1), ErrorCode.UNKNOWN_MEMBER_ID, "a heartbeat to no group"
        )
        joined = group.joined_alone(peer)
        expect_error(
            group.heartbeat(peer, "x", 1),
            ErrorCode.UNKNOWN_MEMBER_ID,
            "a heartbeat of a non-member",
        )
        expect_error(
            group.heartbeat(peer, joined.member_id, 2),
            ErrorCode.ILLEGAL_GENERATION,
            "a heartbeat with a future generation",
        )
        nameless = HeartbeatRequest(group_id="", generation_id=1, member_id="x")
        expect_error(
            peer.ask(nameless, HEARTBEAT_VERSION, HeartbeatResponse).error_code,
            ErrorCode.INVALID_GROUP_ID,
            "no group id",
        )
        for member_id, generation_id, error in (
            ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
            (joined.member_id, 2, ErrorCode.ILLEGAL_GENERATION),
        ):
            answer = peer.ask(
                group.sync_request(member_id, generation_id), SYNC_VERSION, SyncGroupResponse
            )
            expect_equal(
                (answer.error_code, bytes(answer.assignment)),
                (int(error), b""),
                f"sync of {member_id} in {generation_id}: error, assignment",
            )
        odd = group.sync_request(joined.member_id, 1)
        odd.protocol_name = "odd"
        answer = peer.ask(odd, SYNC_VERSION, SyncGroupResponse)
        expect_error(
            answer.error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "sync for another protocol"
        )


def _two_joined(
    group: GroupClient, one: Peer, other: Peer
) -> tuple[JoinGroupResponse, JoinGroupResponse]:
    """Let a second member join a group of one; return both responses."""
    first = group.joined_alone(one)
    asked = group.join_request(group.fresh_id(other))
    waiting = other.send(asked, JOIN_VERSION)
    settled(
        lambda: group.heartbeat(one, first.member_id, 1),
        lambda error: error == ErrorCode.REBALANCE_IN_PROGRESS,
        "a rebalance for the second member",
    )
    again = one.ask(group.join_request(first.member_id), JOIN_VERSION, JoinGroupResponse)
    joined = other.receive(asked, JOIN_VERSION, waiting, JoinGroupResponse)
    expect_equal((again.error_code, joined.error_code), (0, 0), "errors of both")
    return again, joined
