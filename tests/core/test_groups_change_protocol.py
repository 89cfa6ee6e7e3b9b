"""Groups that change their protocol while their members are there (KIP-848): what everybody keeps, who has to join again, and who is out.

The answers are those of Apache Kafka 4.1.2 and 4.4.0, see the requirements consumer-groups/7; here is what takes time, and what the next coordinator
makes of the log.
"""

import pytest

from kraftsim.core.groups.classic_group import ClassicGroup, GroupState
from kraftsim.core.groups.consumer.consumer_member import MemberState
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
from tests.core.consumers_lab import ConsumersLab, MadeTopics, id_of, state_of
from tests.core.groups_lab import GROUP, REBALANCE_MS, SESSION_MS

T = id_of("t")


def made(policy: str = "bidirectional") -> ConsumersLab:
    topics = MadeTopics()
    topics.make("t", 4)
    return ConsumersLab(topics, consumer_migration_policy=policy, initial_rebalance_delay_ms=0)


@pytest.fixture
def lab() -> ConsumersLab:
    """A topic t of four partitions, and nobody who reads it."""
    return made()


def subscription(*owned: int) -> tuple[tuple[str, bytes], ...]:
    rows = [OwnedPartitions(topic="t", partitions=list(owned))] if owned else []
    return (("range", build_subscription(ConsumerProtocolSubscription(topics=["t"], owned_partitions=rows), 1)),)


def share(*numbers: int) -> bytes:
    return build_assignment(ConsumerProtocolAssignment(assigned_partitions=[AssignedPartitions(topic="t", partitions=list(numbers))]), 1)


def join(lab: ConsumersLab, member_id: str, *owned: int, instance: str | None = None) -> int:
    """Join in the classic protocol and return the number of the answer."""
    return lab.classic_joins(member_id, subscription(*owned), fresh="fresh", instance=instance)


def classic(lab: ConsumersLab) -> ClassicGroup:
    return lab.shard.groups[GROUP]


def had(lab: ConsumersLab, member_id: str, generation_id: int) -> list[int]:
    """Return what a member is given when it syncs."""
    answer = lab.synced(lab.sync(member_id, generation_id))
    assert answer.error is ErrorCode.NONE
    return [number for row in parse_assignment(answer.assignment).assigned_partitions for number in row.partitions]


def stable(lab: ConsumersLab, *owned: int) -> str:
    """Return the one member of a classic group that is stable."""
    waiter = join(lab, "")
    lab.pass_time(1)
    member_id = lab.joined(waiter).member_id
    lab.sync(member_id, 1, **{member_id.replace("-", "_"): share(*owned)})
    return member_id


def test_members_of_a_classic_group_go_on_in_the_consumer_group_also_for_the_next_coordinator(lab):
    old = stable(lab, 0, 1, 2, 3)
    lab.commit(5, member_id=old, generation_id=1)
    assert lab.join("new").member_epoch == 2
    member = lab.consumers.members[old]
    assert (member.member_epoch, member.assigned, member.classic is not None) == (1, {T: (0, 1, 2, 3)}, True)
    assert state_of(lab.read_again()) == state_of(lab)
    assert [each.committed() for each in (lab, lab.read_again())] == [5, 5]


def test_an_old_member_gives_up_and_takes_by_joining_again(lab):
    old = stable(lab, 0, 1, 2, 3)
    lab.join("new")
    assert lab.heartbeat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert lab.joined(join(lab, old, 0, 1, 2, 3)).generation_id == 1
    assert had(lab, old, 1) == [0, 1]
    assert lab.consumers.members[old].state is MemberState.UNREVOKED_PARTITIONS
    assert lab.heartbeat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS, "it is to say that it has let go"
    assert lab.joined(join(lab, old, 0, 1)).generation_id == 2
    assert had(lab, old, 2) == [0, 1]
    assert lab.beat("new").assigned == {T: (2, 3)}
    assert lab.heartbeat(old, 2) is ErrorCode.NONE
    assert state_of(lab.read_again()) == state_of(lab)


def test_whoever_waits_in_the_classic_group_is_told_to_join_again(lab):
    old = stable(lab, 0, 1, 2, 3)
    waiter = lab.classic_joins("", subscription(), fresh="second")
    lab.join("new")
    assert lab.joined(waiter).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert sorted(lab.consumers.members) == sorted((old, "new", "c-second"))
    assert lab.consumers.members["c-second"].assigned == {}, "it had not synced yet"


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_classic_group_with_members_stays_one_where_nobody_wants_it_upgraded(policy):
    lab = made(policy)
    old = stable(lab, 0)
    assert lab.join("new").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert classic(lab).is_in(GroupState.STABLE) and lab.heartbeat(old, 1) is ErrorCode.NONE


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_a_consumer_group_stays_one_where_nobody_wants_it_downgraded(policy):
    lab = made(policy)
    lab.join("new")
    old = lab.joined(join(lab, "")).member_id
    lab.ask("new", -1)
    assert list(lab.consumers.members) == [old] and GROUP not in lab.shard.groups


def test_without_new_members_the_group_is_a_classic_one_again_also_for_the_next_coordinator(lab):
    old = stable(lab, 0, 1, 2, 3)
    lab.join("new")
    lab.commit(5, member_id=old, generation_id=1)
    lab.ask("new", -1)
    assert classic(lab).is_in(GroupState.PREPARING_REBALANCE) and lab.heartbeat(old, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    other = lab.read_again()
    assert other.shard.consumer_groups == {}
    restored, told = classic(other), classic(lab)
    assert (restored.generation_id, restored.leader_id, restored.protocol_name) == (told.generation_id, told.leader_id, told.protocol_name)
    assert parse_assignment(restored.members[old].assignment) == parse_assignment(share(0, 1)), "what it was to have"
    assert [each.committed() for each in (lab, other)] == [5, 5]
    waiter = join(lab, old, 0, 1, 2, 3)
    assert (lab.joined(waiter).generation_id, lab.joined(waiter).leader_id) == (3, old)


def test_a_new_member_whose_session_ends_lets_the_group_go_back(lab):
    old = stable(lab, 0, 1, 2, 3)
    lab.join("new")
    for _ in range(10):
        lab.pass_time(SESSION_MS - 1)
        if GROUP in lab.shard.groups:
            break
        lab.heartbeat(old, lab.consumers.members[old].member_epoch)
        lab.joined(join(lab, old, 0, 1))
        lab.sync(old, lab.consumers.members[old].member_epoch)
    assert list(classic(lab).members) == [old]


def test_an_old_member_that_joins_and_does_not_sync_is_out_after_its_rebalance_time_out(lab):
    lab.join("new")
    old = lab.joined(join(lab, "")).member_id
    for _ in range(3):
        lab.pass_time(REBALANCE_MS // 3)
        lab.heartbeat(old, lab.consumers.members[old].member_epoch)
        lab.beat("new")
    lab.pass_time(1000)
    assert list(lab.consumers.members) == ["new"]


def test_an_old_member_that_is_told_to_join_and_does_not_is_out_after_its_rebalance_time_out(lab):
    old = stable(lab, 0, 1, 2, 3)
    lab.join("new")
    for _ in range(4):
        assert lab.heartbeat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS, "its session goes on"
        lab.beat("new")
        lab.pass_time(REBALANCE_MS // 4)
    lab.pass_time(1)
    assert list(lab.consumers.members) == ["new"]


def test_a_static_member_goes_over_and_back_in_its_place(lab):
    waiter = join(lab, "", instance="i")
    lab.pass_time(1)
    old = lab.joined(waiter).member_id
    lab.sync(old, 1, **{old.replace("-", "_"): share(0, 1, 2, 3)})
    lab.join("new", instance_id="i")
    assert (list(lab.consumers.members), lab.owned["new"]) == (["new"], {T: (0, 1, 2, 3)})
    back = lab.joined(join(lab, "", instance="i"))
    assert (back.error, back.generation_id, list(classic(lab).members)) == (ErrorCode.NONE, classic(lab).generation_id, [back.member_id])
    assert classic(lab).is_in(GroupState.STABLE), "nobody needs to join anew"
    assert had(lab, back.member_id, back.generation_id) == [0, 1, 2, 3]
    assert classic(lab.read_again()).static_member_ids == {"i": back.member_id}


def test_words_that_nobody_understands_keep_a_member_out_and_a_group_as_it_is(lab):
    lab.join("new")
    waiter = lab.classic_joins("", (("range", b""),), fresh="odd")
    assert lab.joined(waiter).error is ErrorCode.UNKNOWN_SERVER_ERROR
    other = made()
    other.classic_join()
    other.pass_time(1)
    assert other.join("new").error is ErrorCode.GROUP_ID_NOT_FOUND
