"""The rules of a classic group member: joining, revocation, expulsion, leaving, and each possible
response of a coordinator.
"""

import pytest

from kraftsim.clients.rules_group_member import GroupMember
from kraftsim.clients.rules_member_steps import (
    COOPERATIVE_STICKY,
    RANGE,
    AssignmentChanged,
    ClientMemberState,
    CountPartitions,
    HeartbeatAnswered,
    Join,
    Joined,
    Leave,
    LeaveAsked,
    Left,
    MemberHeartbeat,
    MemberLost,
    MemberQuestionLost,
    MemberSettings,
    MembershipEffect,
    MembershipInput,
    MemberStarted,
    PartitionsCounted,
    Released,
    ReleaseWanted,
    SendMemberRequest,
    Subscriber,
    Sync,
    Synced,
)
from kraftsim.clients.rules_producer_steps import TimePassed, TopicPartition
from kraftsim.clients.rules_transaction_steps import (
    CoordinatorFound,
    CoordinatorKind,
    CoordinatorLost,
    FindCoordinator,
)
from protocol.errors import ErrorCode

ZERO, ONE, TWO = (TopicPartition("t", number) for number in range(3))
COORDINATOR, OTHER = 1, 2
BACKOFF_MS, BEAT_MS = 100, 1000
FIND = FindCoordinator(kind=CoordinatorKind.GROUP, key="g")


class Script:
    """A member under test, and the clock."""

    def __init__(self, assignor: str = RANGE) -> None:
        self.now_ms = 1000
        self.member = GroupMember(
            MemberSettings(
                group_id="g",
                topics=("t",),
                assignor=assignor,
                heartbeat_interval_ms=BEAT_MS,
                retry_backoff_ms=BACKOFF_MS,
            )
        )

    def step(self, happened: MembershipInput, after_ms: int = 0) -> list[MembershipEffect]:
        """Process an event, after a delay if given."""
        self.now_ms += after_ms
        return self.member.step(happened, self.now_ms)

    def passed(self, ms: int) -> list[MembershipEffect]:
        """Advance the time."""
        return self.step(TimePassed(), ms)

    def found(self, broker_id: int = COORDINATOR) -> list[MembershipEffect]:
        """Complete the coordinator lookup."""
        return self.step(CoordinatorFound(kind=CoordinatorKind.GROUP, broker_id=broker_id))

    def stable(self, *partitions: TopicPartition) -> "Script":
        """Enter a generation as a non-leading member with these partitions."""
        self.step(MemberStarted())
        self.found()
        self.step(
            Joined(
                error_code=ErrorCode.NONE,
                member_id="m",
                generation_id=3,
                protocol=self.member._settings.assignor,
            )
        )
        self.step(Synced(error_code=ErrorCode.NONE, partitions=partitions))
        assert self.member.state is ClientMemberState.STABLE
        return self


def asked(
    *questions: Join | Sync | MemberHeartbeat | Leave, broker_id: int = COORDINATOR
) -> list[MembershipEffect]:
    return [SendMemberRequest(broker_id=broker_id, question=question) for question in questions]


# Joining
# --------------------------------------------------------------------------------------------------


def test_new_member_receives_its_id_and_rejoins_with_it() -> None:
    """KIP-394: the first JoinGroup has no member id and returns MEMBER_ID_REQUIRED."""
    script = Script()
    assert script.step(MemberStarted()) == [FIND]
    assert script.found() == asked(Join(member_id="", owned=(), generation_id=-1))
    assert script.step(Joined(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m")) == asked(
        Join(member_id="m", owned=(), generation_id=-1)
    )


def test_leader_fetches_partition_counts_and_computes_the_assignment() -> None:
    """Members are assigned in the order of their ids, by the protocol that the coordinator
    chose.
    """
    script = Script()
    script.step(MemberStarted())
    script.found()
    members = tuple(Subscriber(member_id=name, topics=("t",)) for name in ("a", "m"))
    joined = Joined(
        error_code=ErrorCode.NONE,
        member_id="m",
        generation_id=1,
        protocol=RANGE,
        is_leader=True,
        members=members,
    )
    assert script.step(joined) == [CountPartitions(("t",))]
    assert script.step(PartitionsCounted({"t": 3})) == asked(
        Sync(
            member_id="m",
            generation_id=1,
            protocol=RANGE,
            assignment={"a": (ZERO, ONE), "m": (TWO,)},
        )
    )
    changed = AssignmentChanged(member_id="m", generation_id=1, partitions=(TWO,), added=(TWO,))
    assert script.step(Synced(error_code=ErrorCode.NONE, partitions=(TWO,))) == [changed]


def test_failed_partition_counts_are_retried_after_a_backoff() -> None:
    """The group waits for its leader, until its rebalance timeout."""
    script = Script()
    script.step(MemberStarted())
    script.found()
    members = (Subscriber(member_id="m", topics=("t",)),)
    script.step(
        Joined(
            error_code=ErrorCode.NONE,
            member_id="m",
            generation_id=1,
            protocol=RANGE,
            is_leader=True,
            members=members,
        )
    )
    assert script.step(PartitionsCounted(None)) == []
    assert script.passed(BACKOFF_MS - 1) == []
    assert script.passed(1) == [CountPartitions(("t",))]


def test_coordinator_lost_during_partition_counts_receives_no_sync() -> None:
    """The counts are discarded; the member looks up its coordinator and rejoins."""
    script = Script()
    script.step(MemberStarted())
    script.found()
    members = (Subscriber(member_id="m", topics=("t",)),)
    script.step(
        Joined(
            error_code=ErrorCode.NONE,
            member_id="m",
            generation_id=1,
            protocol=RANGE,
            is_leader=True,
            members=members,
        )
    )
    script.member._coordinator = None
    assert script.step(PartitionsCounted({"t": 1})) == [FIND]
    assert script.found(OTHER) == asked(
        Join(member_id="m", owned=(), generation_id=1), broker_id=OTHER
    )


def leading(script: Script, counts: dict[str, int], *partitions: TopicPartition) -> Script:
    """Enter a generation as its leader, which has computed the assignment and receives a part of
    it.
    """
    script.step(MemberStarted())
    script.found()
    members = (Subscriber(member_id="m", topics=("t",)),)
    script.step(
        Joined(
            error_code=ErrorCode.NONE,
            member_id="m",
            generation_id=1,
            protocol=script.member._settings.assignor,
            is_leader=True,
            members=members,
        )
    )
    script.step(PartitionsCounted(counts))
    script.step(Synced(error_code=ErrorCode.NONE, partitions=partitions))
    assert script.member.state is ClientMemberState.STABLE
    return script


def test_leader_refreshes_missing_topics_soon_and_rebalances() -> None:
    """A freshly started broker returns no topics; without a refresh they would never be found
    (Metadata.requestUpdate, rejoinNeededOrPending).
    """
    script = leading(Script(), {})
    assert script.member.wake_at_ms == script.now_ms + BACKOFF_MS
    assert script.passed(BACKOFF_MS) == [CountPartitions(("t",))]
    assert script.step(PartitionsCounted({})) == [], "it is not known yet"
    assert script.passed(BACKOFF_MS) == [CountPartitions(("t",))]
    assert script.step(PartitionsCounted(None)) == [], "no response"
    assert script.passed(BACKOFF_MS) == [CountPartitions(("t",))]
    assert script.step(PartitionsCounted({"t": 1})) == asked(
        Join(member_id="m", owned=(), generation_id=1)
    )


@pytest.mark.parametrize("assignor", [RANGE, COOPERATIVE_STICKY])
def test_leader_refreshes_metadata_periodically(assignor: str) -> None:
    """Every metadata.max.age.ms; unchanged metadata does not trigger a rebalance."""
    script = leading(Script(assignor), {"t": 1}, ZERO)
    age_ms = script.member._settings.metadata_max_age_ms
    for counts, known_by in (({"t": 1}, []), ({"t": 2}, None)):
        began_ms = script.now_ms
        while CountPartitions(("t",)) not in (effects := script.passed(BEAT_MS)):
            assert (
                effects == asked(MemberHeartbeat(member_id="m", generation_id=1))
                and script.now_ms - began_ms < age_ms
            )
            script.step(HeartbeatAnswered(ErrorCode.NONE))
        script.step(HeartbeatAnswered(ErrorCode.NONE))
        done = script.step(PartitionsCounted(counts))
        if known_by is not None:
            assert done == known_by
    again = asked(
        Join(
            member_id="m", owned=(ZERO,) if assignor == COOPERATIVE_STICKY else (), generation_id=1
        )
    )
    assert done == (again if assignor == COOPERATIVE_STICKY else [ReleaseWanted((ZERO,))])


def test_former_leader_does_not_refresh_topics() -> None:
    """The new leader does."""
    script = leading(Script(), {})
    script.step(TimePassed(), BEAT_MS)
    script.step(HeartbeatAnswered(ErrorCode.REBALANCE_IN_PROGRESS))
    script.step(PartitionsCounted({}))
    script.step(Joined(error_code=ErrorCode.NONE, member_id="m", generation_id=2, protocol=RANGE))
    script.step(Synced(error_code=ErrorCode.NONE, partitions=(ZERO,)))
    for _ in range(3):
        assert script.passed(BEAT_MS) == asked(MemberHeartbeat(member_id="m", generation_id=2))
        script.step(HeartbeatAnswered(ErrorCode.NONE))


# Rebalances
# --------------------------------------------------------------------------------------------------


def test_eager_member_revokes_everything_before_it_rejoins() -> None:
    """KIP-429 calls it eager: a member that rejoins owns nothing."""
    script = Script(RANGE).stable(ZERO, ONE)
    assert script.passed(BEAT_MS) == asked(MemberHeartbeat(member_id="m", generation_id=3))
    assert script.step(HeartbeatAnswered(ErrorCode.REBALANCE_IN_PROGRESS)) == [
        ReleaseWanted((ZERO, ONE))
    ]
    assert script.step(Released()) == asked(Join(member_id="m", owned=(), generation_id=3))


def test_member_keeps_sending_heartbeats_while_it_revokes() -> None:
    """An application may take as long as the rebalance timeout, which is longer than a session;
    nothing is revoked twice.
    """
    script = Script(RANGE).stable(ZERO)
    script.passed(BEAT_MS)
    script.step(HeartbeatAnswered(ErrorCode.REBALANCE_IN_PROGRESS))
    assert script.passed(BEAT_MS) == asked(MemberHeartbeat(member_id="m", generation_id=3))
    assert script.step(HeartbeatAnswered(ErrorCode.REBALANCE_IN_PROGRESS)) == []


def test_cooperative_member_keeps_its_partitions_and_rejoins_after_revocation() -> None:
    """KIP-429: a moved partition is revoked in one generation and assigned to another member in the
    next.
    """
    script = Script(COOPERATIVE_STICKY).stable(ZERO, ONE)
    script.passed(BEAT_MS)
    assert script.step(HeartbeatAnswered(ErrorCode.REBALANCE_IN_PROGRESS)) == asked(
        Join(member_id="m", owned=(ZERO, ONE), generation_id=3)
    )
    script.step(
        Joined(
            error_code=ErrorCode.NONE, member_id="m", generation_id=4, protocol=COOPERATIVE_STICKY
        )
    )
    assert script.step(Synced(error_code=ErrorCode.NONE, partitions=(ZERO, TWO))) == [
        AssignmentChanged(member_id="m", generation_id=4, partitions=(ZERO, TWO), added=(TWO,)),
        ReleaseWanted((ONE,)),
    ]
    assert script.step(Released()) == asked(Join(member_id="m", owned=(ZERO, TWO), generation_id=4))


# Error responses
# --------------------------------------------------------------------------------------------------

ON_A_BEAT = [
    # the error, the immediate effects, the effects after the backoff, the member id and the
    # generation that it keeps
    (ErrorCode.NONE, [], [], "m", 3),
    (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], [], "m", 3),
    (ErrorCode.NOT_COORDINATOR, [FIND], [], "m", 3),
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, [FIND], [], "m", 3),
    (
        ErrorCode.ILLEGAL_GENERATION,
        [MemberLost(error_code=ErrorCode.ILLEGAL_GENERATION, is_fatal=False)],
        asked(Join(member_id="m", owned=(), generation_id=-1)),
        "m",
        -1,
    ),
    (
        ErrorCode.UNKNOWN_MEMBER_ID,
        [MemberLost(error_code=ErrorCode.UNKNOWN_MEMBER_ID, is_fatal=False)],
        asked(Join(member_id="", owned=(), generation_id=-1)),
        "",
        -1,
    ),
    (
        ErrorCode.FENCED_INSTANCE_ID,
        [MemberLost(error_code=ErrorCode.FENCED_INSTANCE_ID, is_fatal=True)],
        [],
        "m",
        -1,
    ),
]


@pytest.mark.parametrize(
    "error, at_once, later, member_id, generation_id",
    ON_A_BEAT,
    ids=lambda value: getattr(value, "name", None),
)
def test_each_heartbeat_error_has_its_effect(
    error: ErrorCode,
    at_once: list[FindCoordinator | MemberLost],
    later: list[SendMemberRequest],
    member_id: str,
    generation_id: int,
) -> None:
    """An expelled member stops reading and rejoins after the revocation; a fenced instance is lost
    for good.
    """
    script = Script().stable(ZERO)
    script.passed(BEAT_MS)
    assert script.step(HeartbeatAnswered(error)) == at_once
    is_lost = any(isinstance(effect, MemberLost) for effect in at_once)
    assert script.step(Released()) == []
    assert script.passed(BACKOFF_MS) == later
    assert (script.member.member_id, script.member.generation_id) == (member_id, generation_id)
    assert script.member.assigned == (() if is_lost else (ZERO,))


@pytest.mark.parametrize(
    "error", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID], ids=lambda each: each.name
)
def test_expelled_member_waits_for_its_revocation(error: ErrorCode) -> None:
    """While the application still processes its partitions the member gets no newer generation,
    with which a commit of theirs would succeed.
    """
    script = Script().stable(ZERO)
    script.passed(BEAT_MS)
    script.step(HeartbeatAnswered(error))
    assert script.member.state is ClientMemberState.EXPELLED and script.member.wake_at_ms is None
    assert script.passed(100 * BEAT_MS) == []
    assert script.step(Released()) == asked(
        Join(member_id=script.member.member_id, owned=(), generation_id=-1)
    )


def test_member_expelled_during_revocation_waits_for_it() -> None:
    """It still owns the partitions that it was asked to revoke."""
    script = Script(COOPERATIVE_STICKY).stable(ZERO)
    script.passed(BEAT_MS)
    script.step(HeartbeatAnswered(ErrorCode.REBALANCE_IN_PROGRESS))
    script.step(
        Joined(
            error_code=ErrorCode.NONE, member_id="m", generation_id=4, protocol=COOPERATIVE_STICKY
        )
    )
    assert script.step(Synced(error_code=ErrorCode.NONE, partitions=()))[-1] == ReleaseWanted(
        (ZERO,)
    )
    script.passed(BEAT_MS)
    script.step(HeartbeatAnswered(ErrorCode.UNKNOWN_MEMBER_ID))
    assert script.member.state is ClientMemberState.EXPELLED


def test_expelled_member_without_partitions_rejoins_immediately() -> None:
    """No partition is being processed."""
    script = Script().stable()
    script.passed(BEAT_MS)
    script.step(HeartbeatAnswered(ErrorCode.UNKNOWN_MEMBER_ID))
    assert script.passed(BACKOFF_MS) == asked(Join(member_id="", owned=(), generation_id=-1))


def test_expelled_member_may_leave() -> None:
    """It does not have to wait then."""
    script = Script().stable(ZERO)
    script.passed(BEAT_MS)
    script.step(HeartbeatAnswered(ErrorCode.ILLEGAL_GENERATION))
    script.step(LeaveAsked())
    assert script.passed(BACKOFF_MS) == asked(Leave("m"))


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_SESSION_TIMEOUT,
    ],
)
def test_fatal_join_error_ends_the_member(error: ErrorCode) -> None:
    """No retry can help; the member never wakes again."""
    script = Script()
    script.step(MemberStarted())
    script.found()
    assert script.step(Joined(error_code=error)) == [MemberLost(error_code=error, is_fatal=True)]
    assert script.member.state is ClientMemberState.GONE and script.member.wake_at_ms is None
    assert script.passed(100 * BEAT_MS) == []


def test_sync_during_a_rebalance_rejoins_immediately() -> None:
    """REBALANCE_IN_PROGRESS is not a failure: there is no backoff."""
    script = Script()
    script.step(MemberStarted())
    script.found()
    script.step(Joined(error_code=ErrorCode.NONE, member_id="m", generation_id=5, protocol=RANGE))
    assert script.step(Synced(error_code=ErrorCode.REBALANCE_IN_PROGRESS)) == asked(
        Join(member_id="m", owned=(), generation_id=5)
    )


def test_missing_response_causes_coordinator_lookup_and_backoff() -> None:
    """Whether the request was executed is unknown; a joining member joins again."""
    script = Script()
    script.step(MemberStarted())
    script.found()
    assert script.step(MemberQuestionLost()) == []
    assert script.passed(BACKOFF_MS) == [FIND]
    assert script.found(OTHER) == asked(
        Join(member_id="", owned=(), generation_id=-1), broker_id=OTHER
    )


def test_missing_heartbeat_response_keeps_the_generation() -> None:
    """The session is still valid: a broken connection revokes nothing."""
    script = Script().stable(ZERO)
    script.passed(BEAT_MS)
    script.step(MemberQuestionLost())
    assert script.passed(BACKOFF_MS) == [FIND]
    assert script.found(OTHER) == []
    assert script.passed(BEAT_MS) == asked(
        MemberHeartbeat(member_id="m", generation_id=3), broker_id=OTHER
    )


@pytest.mark.parametrize(
    "error, is_fatal",
    [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, False),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, True),
        (None, False),
    ],
)
def test_coordinator_lookup_is_retried_unless_the_error_is_fatal(
    error: ErrorCode | None, is_fatal: bool
) -> None:
    """None: no response."""
    script = Script()
    script.step(MemberStarted())
    lost = script.step(CoordinatorLost(kind=CoordinatorKind.GROUP, error_code=error))
    assert error is not None or not is_fatal
    assert lost == (
        [MemberLost(error_code=error, is_fatal=True)] if error is not None and is_fatal else []
    )
    assert script.passed(BACKOFF_MS) == ([] if is_fatal else [FIND])


# Leaving
# --------------------------------------------------------------------------------------------------


def test_member_leaves_by_its_id() -> None:
    """LeaveGroup is sent as soon as no other request is in flight."""
    script = Script().stable(ZERO)
    assert script.step(LeaveAsked()) == asked(Leave("m"))
    assert script.step(Left()) == []
    assert script.member.state is ClientMemberState.GONE


def test_leave_waits_for_the_request_in_flight() -> None:
    """One request at a time."""
    script = Script().stable(ZERO)
    script.passed(BEAT_MS)
    assert script.step(LeaveAsked()) == []
    assert script.step(HeartbeatAnswered(ErrorCode.NONE)) == asked(Leave("m"))


def test_leave_without_a_response_is_sufficient() -> None:
    """The session timeout does the rest."""
    script = Script().stable(ZERO)
    script.step(LeaveAsked())
    assert script.step(MemberQuestionLost()) == []
    assert script.member.state is ClientMemberState.GONE


def test_member_that_never_joined_leaves_silently() -> None:
    """There is no member id to leave with."""
    script = Script()
    script.step(MemberStarted())
    assert script.step(LeaveAsked()) == []
    assert script.member.state is ClientMemberState.GONE and script.member.wake_at_ms is None


def test_stable_member_wakes_for_its_next_heartbeat() -> None:
    """And no earlier; while a request is in flight the response wakes it."""
    script = Script().stable(ZERO)
    assert script.member.wake_at_ms == script.now_ms + BEAT_MS
    assert script.passed(BEAT_MS - 1) == []
    script.passed(1)
    assert script.member.wake_at_ms is None
