"""Classic consumer groups: generations, sessions, static members.

Source: KIP-62, KIP-134, KIP-345, KIP-389, KIP-394, KIP-814.
"""

import pytest

from kraftsim.groups.rules_classic_group import GroupState
from kraftsim.groups.rules_timing import TimerKey, TimerKind, Timers, java_hash, partition_of
from protocol.errors import ErrorCode
from tests.core.groups_harness import GROUP, REBALANCE_MS, SESSION_MS, GroupsHarness


@pytest.mark.parametrize(
    ("key", "hashed", "partition"),
    [
        ("", 0, 0),
        ("hello", 99162322, 22),
        (
            "polygenelubricants",
            -(2**31),
            0,
        ),  # its absolute value does not fit into 32 bits: Utils.abs returns 0
        ("\U0001f600", 1772899, 49),  # two UTF-16 units
    ],
)
def test_group_maps_to_a_partition_by_java_string_hash(
    key: str, hashed: int, partition: int
) -> None:
    assert (java_hash(key), partition_of(key, 50)) == (hashed, partition)


def test_deadline_moved_forward_expires_once_and_late() -> None:
    timers, key = Timers(), TimerKey(TimerKind.SESSION, GROUP, "m")
    timers.set(key, 10)
    timers.set(key, 30)
    assert [timers.take_due(10), timers.take_due(29), timers.take_due(30), timers.take_due(99)] == [
        None,
        None,
        key,
        None,
    ]
    timers.set(key, 50)
    timers.set(key, 40)
    assert [timers.take_due(40), timers.take_due(60)] == [key, None]
    timers.set(key, 70)
    timers.cancel(key)
    assert timers.take_due(80) is None


def test_initial_rebalance_waits_for_the_first_members() -> None:
    """group.initial.rebalance.delay.ms (KIP-134)."""
    harness = GroupsHarness()
    first = harness.join(fresh="1")
    harness.pass_time(2999)
    second = harness.join(fresh="2")
    harness.pass_time(1)
    assert harness.answers == {}, "a member that joins meanwhile extends the wait"
    harness.pass_time(3000)
    assert [harness.joined(waiter).generation_id for waiter in (first, second)] == [1, 1]
    assert [row.member_id for row in harness.joined(first).members] == ["c-1", "c-2"]
    assert harness.joined(second).members == ()


def test_continuous_joins_are_awaited_up_to_the_rebalance_timeout() -> None:
    harness = GroupsHarness()
    first = harness.join(fresh="0")
    while first not in harness.answers:
        harness.pass_time(1000)
        harness.join(fresh=str(harness.now_ms))
        assert harness.now_ms <= REBALANCE_MS
    assert harness.now_ms == REBALANCE_MS


def test_new_member_id_expires_with_its_session() -> None:
    harness = GroupsHarness()
    harness.stable("1")
    waiter = harness.join(fresh="2", takes_id_first=True)
    assert (harness.joined(waiter).error, harness.joined(waiter).member_id) == (
        ErrorCode.MEMBER_ID_REQUIRED,
        "c-2",
    )
    assert list(harness.group.pending_members) == ["c-2"]
    for _ in range(2):
        harness.pass_time(SESSION_MS // 2)
        harness.heartbeat("c-1", 1)
    assert not harness.group.pending_members
    late = harness.join("c-2", fresh="2", takes_id_first=True)
    assert harness.joined(late).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_rebalance_waits_for_all_members_and_removes_absent_ones() -> None:
    harness = GroupsHarness()
    harness.stable("1", "2")
    new = harness.join(fresh="3")
    assert harness.heartbeat("c-1", 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = harness.join("c-1")
    assert harness.group.state is GroupState.PREPARING_REBALANCE
    for _ in range(REBALANCE_MS // 5000):
        harness.pass_time(5000)
        harness.heartbeat("c-2", 1)
    assert harness.member_ids == ["c-1", "c-3"]
    assert [harness.joined(waiter).generation_id for waiter in (new, again)] == [2, 2]


def test_member_without_heartbeats_for_a_session_is_removed() -> None:
    harness = GroupsHarness()
    harness.stable("1", "2")
    for _ in range(3):
        harness.pass_time(SESSION_MS // 2)
        harness.heartbeat("c-1", 1)
    assert harness.member_ids == ["c-1"]
    assert harness.group.state is GroupState.PREPARING_REBALANCE
    harness.join("c-1")
    assert harness.group.generation_id == 2


def test_member_that_never_syncs_is_removed_after_the_rebalance_timeout() -> None:
    """KAFKA-12453, GroupCoordinator.onExpirePendingSync."""
    harness = GroupsHarness()
    first, _ = harness.join(fresh="1"), harness.join(fresh="2")
    harness.pass_time(6000)
    harness.sync("c-1", harness.joined(first).generation_id, c_1=b"a")
    for _ in range(REBALANCE_MS // 5000):
        harness.pass_time(5000)
        harness.heartbeat("c-1", 1)
        harness.heartbeat("c-2", 1)
    assert harness.member_ids == ["c-1"]


def group_state(harness: GroupsHarness) -> GroupState:
    state: GroupState = harness.group.state
    return state


def test_assignments_are_sent_once_replicated() -> None:
    harness = GroupsHarness()
    first, second = harness.join(fresh="1"), harness.join(fresh="2")
    harness.pass_time(6000)
    harness.holds_back = True
    follower = harness.sync("c-2", harness.joined(second).generation_id)
    leader = harness.sync("c-1", harness.joined(first).generation_id, c_1=b"a", c_2=b"b")
    assert harness.group.state is GroupState.COMPLETING_REBALANCE
    assert not {follower, leader} & set(harness.answers)
    harness.store()
    assert (harness.synced(leader).assignment, harness.synced(follower).assignment) == (b"a", b"b")
    assert group_state(harness) is GroupState.STABLE


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_failed_write_of_assignments_restarts_the_rebalance(
    error: ErrorCode, answer: ErrorCode
) -> None:
    harness = GroupsHarness()
    first = harness.join(fresh="1")
    harness.pass_time(3000)
    harness.holds_back = True
    leader = harness.sync("c-1", harness.joined(first).generation_id, c_1=b"a")
    harness.store(error)
    assert harness.synced(leader).error is answer
    assert harness.group.state is GroupState.PREPARING_REBALANCE


def test_most_preferred_common_protocol_is_selected() -> None:
    harness = GroupsHarness()
    for name, protocols in (("1", "c a b"), ("2", "c b"), ("3", "b c a"), ("4", "c b")):
        harness.join(fresh=name, protocols=protocols)
    harness.pass_time(6000)
    assert harness.group.protocol_name == "c"
    odd = harness.join(fresh="5", protocols="a")
    assert harness.joined(odd).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_full_group_rejects_members() -> None:
    """group.max.size (KIP-389)."""
    harness = GroupsHarness(max_size=2)
    harness.stable("1", "2")
    assert harness.joined(harness.join(fresh="3")).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    harness.join("c-1")
    assert harness.group.state is GroupState.PREPARING_REBALANCE


def test_next_member_becomes_leader_when_the_leader_leaves() -> None:
    harness = GroupsHarness()
    harness.stable("1", "2", "3")
    harness.leave("c-1")
    second, third = harness.join("c-2"), harness.join("c-3")
    assert [harness.joined(waiter).leader_id for waiter in (second, third)] == ["c-2", "c-2"]


def test_group_is_empty_after_its_last_member_leaves() -> None:
    harness = GroupsHarness()
    harness.stable("1")
    harness.leave("c-1")
    assert (harness.group.state, harness.group.generation_id, harness.group.protocol_name) == (
        GroupState.EMPTY,
        2,
        None,
    )
    assert harness.reloaded().group.state is GroupState.EMPTY


def test_static_member_is_kept_through_a_rebalance_until_its_session_ends() -> None:
    harness = GroupsHarness()
    for name in ("1", "2"):
        harness.join(fresh=name, instance=name)
    harness.pass_time(6000)
    assert harness.member_ids == ["1-1", "2-2"]
    harness.sync("1-1", 1, **{"1_1": b"a"})
    harness.sync("2-2", 1)
    harness.join(fresh="3")
    harness.join("1-1", instance="1")
    for _ in range(REBALANCE_MS // 5000):
        harness.settled(harness.shard.heartbeat(GROUP, "2-2", "2", 1, harness.now))
        harness.pass_time(5000)
    assert harness.member_ids == ["1-1", "2-2", "c-3"]
    assert harness.group.generation_id == 2


@pytest.mark.parametrize(("skips", "leader", "member_count"), [(True, "1-b", 1), (False, "1-a", 0)])
def test_rejoining_static_leader_skips_the_assignment(
    skips: bool, leader: str, member_count: int
) -> None:
    """KIP-814; older clients receive another member as leader."""
    harness = GroupsHarness()
    harness.join(fresh="a", instance="1")
    harness.pass_time(3000)
    harness.sync("1-a", 1, **{"1_a": b"share"})
    back = harness.joined(harness.join(fresh="b", instance="1", skips_assignment=skips))
    assert (back.error, back.generation_id, back.leader_id, back.skip_assignment) == (
        ErrorCode.NONE,
        1,
        leader,
        skips,
    )
    assert len(back.members) == member_count
    assert harness.synced(harness.sync("1-b", 1)).assignment == b"share"


def test_static_member_rejoin_fails_if_it_is_not_written() -> None:
    harness = GroupsHarness()
    harness.join(fresh="a", instance="1")
    harness.pass_time(3000)
    harness.sync("1-a", 1, **{"1_a": b"share"})
    harness.holds_back = True
    waiter = harness.join(fresh="b", instance="1")
    harness.store(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert harness.joined(waiter).error is ErrorCode.NOT_COORDINATOR
    assert harness.member_ids == ["1-a"]
    assert harness.group.static_member_ids == {"1": "1-a"}


def test_new_coordinator_loads_the_same_groups_from_the_log() -> None:
    harness = GroupsHarness()
    harness.stable("1", "2")
    other = harness.reloaded()
    assert other.group.state is GroupState.STABLE
    assert other.member_ids == ["c-1", "c-2"]
    assert other.heartbeat("c-2", 1) is ErrorCode.NONE
    assert other.synced(other.sync("c-2", 1)).assignment == b"2"
    other.pass_time(SESSION_MS)
    assert group_state(other) is GroupState.EMPTY, (
        "sessions restarted, and there were no heartbeats"
    )


def test_waiting_members_are_redirected_at_coordinator_failover() -> None:
    harness = GroupsHarness()
    harness.stable("1")
    waiter = harness.join(fresh="2")
    harness.settle(harness.shard.end(harness.now))
    assert harness.joined(waiter).error is ErrorCode.NOT_COORDINATOR
    assert not harness.shard.groups
