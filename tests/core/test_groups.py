"""Classic consumer groups: generations, sessions, static members.   Source: KIP-62, KIP-134, KIP-345, KIP-389, KIP-394, KIP-814."""

import pytest

from kraftsim.core.groups.classic_group import GroupState
from kraftsim.core.groups.placement import java_hash, partition_of
from kraftsim.core.groups.timers import TimerKey, TimerKind, Timers
from protocol.errors import ErrorCode
from tests.core.groups_lab import GROUP, REBALANCE_MS, SESSION_MS, GroupsLab


@pytest.mark.parametrize(
    ("key", "hashed", "partition"),
    [
        ("", 0, 0),
        ("hello", 99162322, 22),
        ("polygenelubricants", -(2**31), 0),  # its absolute value does not fit into 32 bits: Utils.abs returns 0
        ("\U0001f600", 1772899, 49),  # two UTF-16 units
    ],
)
def test_group_maps_to_a_partition_by_java_string_hash(key, hashed, partition):
    assert (java_hash(key), partition_of(key, 50)) == (hashed, partition)


def test_deadline_moved_forward_expires_once_and_late():
    timers, key = Timers(), TimerKey(TimerKind.SESSION, GROUP, "m")
    timers.set(key, 10)
    timers.set(key, 30)
    assert [timers.take_due(10), timers.take_due(29), timers.take_due(30), timers.take_due(99)] == [None, None, key, None]
    timers.set(key, 50)
    timers.set(key, 40)
    assert [timers.take_due(40), timers.take_due(60)] == [key, None]
    timers.set(key, 70)
    timers.cancel(key)
    assert timers.take_due(80) is None


def test_initial_rebalance_waits_for_the_first_members():
    """group.initial.rebalance.delay.ms (KIP-134)."""
    lab = GroupsLab()
    first = lab.join(fresh="1")
    lab.pass_time(2999)
    second = lab.join(fresh="2")
    lab.pass_time(1)
    assert lab.answers == {}, "a member that joins meanwhile extends the wait"
    lab.pass_time(3000)
    assert [lab.joined(waiter).generation_id for waiter in (first, second)] == [1, 1]
    assert [row.member_id for row in lab.joined(first).members] == ["c-1", "c-2"]
    assert lab.joined(second).members == ()


def test_continuous_joins_are_awaited_up_to_the_rebalance_timeout():
    lab = GroupsLab()
    first = lab.join(fresh="0")
    while first not in lab.answers:
        lab.pass_time(1000)
        lab.join(fresh=str(lab.now_ms))
        assert lab.now_ms <= REBALANCE_MS
    assert lab.now_ms == REBALANCE_MS


def test_new_member_id_expires_with_its_session():
    lab = GroupsLab()
    lab.stable("1")
    waiter = lab.join(fresh="2", takes_id_first=True)
    assert (lab.joined(waiter).error, lab.joined(waiter).member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "c-2")
    assert list(lab.group.pending_members) == ["c-2"]
    for _ in range(2):
        lab.pass_time(SESSION_MS // 2)
        lab.heartbeat("c-1", 1)
    assert not lab.group.pending_members
    late = lab.join("c-2", fresh="2", takes_id_first=True)
    assert lab.joined(late).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_rebalance_waits_for_all_members_and_removes_absent_ones():
    lab = GroupsLab()
    lab.stable("1", "2")
    new = lab.join(fresh="3")
    assert lab.heartbeat("c-1", 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = lab.join("c-1")
    assert lab.group.state is GroupState.PREPARING_REBALANCE
    for _ in range(REBALANCE_MS // 5000):
        lab.pass_time(5000)
        lab.heartbeat("c-2", 1)
    assert lab.member_ids == ["c-1", "c-3"]
    assert [lab.joined(waiter).generation_id for waiter in (new, again)] == [2, 2]


def test_member_without_heartbeats_for_a_session_is_removed():
    lab = GroupsLab()
    lab.stable("1", "2")
    for _ in range(3):
        lab.pass_time(SESSION_MS // 2)
        lab.heartbeat("c-1", 1)
    assert lab.member_ids == ["c-1"]
    assert lab.group.state is GroupState.PREPARING_REBALANCE
    lab.join("c-1")
    assert lab.group.generation_id == 2


def test_member_that_never_syncs_is_removed_after_the_rebalance_timeout():
    """KAFKA-12453, GroupCoordinator.onExpirePendingSync."""
    lab = GroupsLab()
    first, _ = lab.join(fresh="1"), lab.join(fresh="2")
    lab.pass_time(6000)
    lab.sync("c-1", lab.joined(first).generation_id, c_1=b"a")
    for _ in range(REBALANCE_MS // 5000):
        lab.pass_time(5000)
        lab.heartbeat("c-1", 1)
        lab.heartbeat("c-2", 1)
    assert lab.member_ids == ["c-1"]


def test_assignments_are_sent_once_replicated():
    lab = GroupsLab()
    first, second = lab.join(fresh="1"), lab.join(fresh="2")
    lab.pass_time(6000)
    lab.holds_back = True
    follower = lab.sync("c-2", lab.joined(second).generation_id)
    leader = lab.sync("c-1", lab.joined(first).generation_id, c_1=b"a", c_2=b"b")
    assert lab.group.state is GroupState.COMPLETING_REBALANCE
    assert not {follower, leader} & set(lab.answers)
    lab.store()
    assert (lab.synced(leader).assignment, lab.synced(follower).assignment) == (b"a", b"b")
    assert lab.group.state is GroupState.STABLE


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_failed_write_of_assignments_restarts_the_rebalance(error, answer):
    lab = GroupsLab()
    first = lab.join(fresh="1")
    lab.pass_time(3000)
    lab.holds_back = True
    leader = lab.sync("c-1", lab.joined(first).generation_id, c_1=b"a")
    lab.store(error)
    assert lab.synced(leader).error is answer
    assert lab.group.state is GroupState.PREPARING_REBALANCE


def test_most_preferred_common_protocol_is_selected():
    lab = GroupsLab()
    for name, protocols in (("1", "c a b"), ("2", "c b"), ("3", "b c a"), ("4", "c b")):
        lab.join(fresh=name, protocols=protocols)
    lab.pass_time(6000)
    assert lab.group.protocol_name == "c"
    odd = lab.join(fresh="5", protocols="a")
    assert lab.joined(odd).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_full_group_rejects_members():
    """group.max.size (KIP-389)."""
    lab = GroupsLab(max_size=2)
    lab.stable("1", "2")
    assert lab.joined(lab.join(fresh="3")).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    lab.join("c-1")
    assert lab.group.state is GroupState.PREPARING_REBALANCE


def test_next_member_becomes_leader_when_the_leader_leaves():
    lab = GroupsLab()
    lab.stable("1", "2", "3")
    lab.leave("c-1")
    second, third = lab.join("c-2"), lab.join("c-3")
    assert [lab.joined(waiter).leader_id for waiter in (second, third)] == ["c-2", "c-2"]


def test_group_is_empty_after_its_last_member_leaves():
    lab = GroupsLab()
    lab.stable("1")
    lab.leave("c-1")
    assert (lab.group.state, lab.group.generation_id, lab.group.protocol_name) == (GroupState.EMPTY, 2, None)
    assert lab.reloaded().group.state is GroupState.EMPTY


def test_static_member_is_kept_through_a_rebalance_until_its_session_ends():
    lab = GroupsLab()
    for name in ("1", "2"):
        lab.join(fresh=name, instance=name)
    lab.pass_time(6000)
    assert lab.member_ids == ["1-1", "2-2"]
    lab.sync("1-1", 1, **{"1_1": b"a"})
    lab.sync("2-2", 1)
    lab.join(fresh="3")
    lab.join("1-1", instance="1")
    for _ in range(REBALANCE_MS // 5000):
        lab.shard.heartbeat(GROUP, "2-2", "2", 1, lab.now)
        lab.pass_time(5000)
    assert lab.member_ids == ["1-1", "2-2", "c-3"]
    assert lab.group.generation_id == 2


@pytest.mark.parametrize(("skips", "leader", "member_count"), [(True, "1-b", 1), (False, "1-a", 0)])
def test_rejoining_static_leader_skips_the_assignment(skips, leader, member_count):
    """KIP-814; older clients receive another member as leader."""
    lab = GroupsLab()
    lab.join(fresh="a", instance="1")
    lab.pass_time(3000)
    lab.sync("1-a", 1, **{"1_a": b"share"})
    back = lab.joined(lab.join(fresh="b", instance="1", skips_assignment=skips))
    assert (back.error, back.generation_id, back.leader_id, back.skip_assignment) == (ErrorCode.NONE, 1, leader, skips)
    assert len(back.members) == member_count
    assert lab.synced(lab.sync("1-b", 1)).assignment == b"share"


def test_static_member_rejoin_fails_if_it_is_not_written():
    lab = GroupsLab()
    lab.join(fresh="a", instance="1")
    lab.pass_time(3000)
    lab.sync("1-a", 1, **{"1_a": b"share"})
    lab.holds_back = True
    waiter = lab.join(fresh="b", instance="1")
    lab.store(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert lab.joined(waiter).error is ErrorCode.NOT_COORDINATOR
    assert lab.member_ids == ["1-a"]
    assert lab.group.static_member_ids == {"1": "1-a"}


def test_new_coordinator_loads_the_same_groups_from_the_log():
    lab = GroupsLab()
    lab.stable("1", "2")
    other = lab.reloaded()
    assert other.group.state is GroupState.STABLE
    assert other.member_ids == ["c-1", "c-2"]
    assert other.heartbeat("c-2", 1) is ErrorCode.NONE
    assert other.synced(other.sync("c-2", 1)).assignment == b"2"
    other.pass_time(SESSION_MS)
    assert other.group.state is GroupState.EMPTY, "sessions restarted, and there were no heartbeats"


def test_waiting_members_are_redirected_at_coordinator_failover():
    lab = GroupsLab()
    lab.stable("1")
    waiter = lab.join(fresh="2")
    lab.shard.end(lab.now)
    lab.settle()
    assert lab.joined(waiter).error is ErrorCode.NOT_COORDINATOR
    assert not lab.shard.groups
