"""Groups that change their protocol while they have members (KIP-848): what members keep, which
must rejoin, and which are removed.

The results are those of Apache Kafka 4.1.2 and 4.4.0, see the requirements consumer-groups/7; these
tests cover timeouts, and what the next coordinator loads from the log.
"""

import pytest

from kraftsim.groups.rules_classic_group import ClassicGroup, GroupState
from kraftsim.groups.rules_consumer_group import LEFT_FOR_A_WHILE, MemberState
from protocol.errors import ErrorCode
from protocol.version_prefixed import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
    build_assignment,
    build_subscription,
    parse_assignment,
)
from tests.core.consumers_harness import ConsumersHarness, MadeTopics, id_of, state_of
from tests.core.groups_harness import GROUP, REBALANCE_MS, SESSION_MS

T = id_of("t")


def made(policy: str = "bidirectional") -> ConsumersHarness:
    topics = MadeTopics()
    topics.make("t", 4)
    return ConsumersHarness(topics, consumer_migration_policy=policy, initial_rebalance_delay_ms=0)


@pytest.fixture
def harness() -> ConsumersHarness:
    """A topic t of four partitions without a consumer."""
    return made()


def subscription(*owned: int) -> tuple[tuple[str, bytes], ...]:
    rows = [OwnedPartitions(topic="t", partitions=list(owned))] if owned else []
    return (
        (
            "range",
            build_subscription(
                ConsumerProtocolSubscription(topics=["t"], owned_partitions=rows), 1
            ),
        ),
    )


def share(*numbers: int) -> bytes:
    return build_assignment(
        ConsumerProtocolAssignment(
            assigned_partitions=[AssignedPartitions(topic="t", partitions=list(numbers))]
        ),
        1,
    )


def join(
    harness: ConsumersHarness, member_id: str, *owned: int, instance: str | None = None
) -> int:
    """Join in the classic protocol and return the number of the response."""
    return harness.classic_joins(member_id, subscription(*owned), fresh="fresh", instance=instance)


def classic(harness: ConsumersHarness) -> ClassicGroup:
    return harness.shard.groups[GROUP]


def had(harness: ConsumersHarness, member_id: str, generation_id: int) -> list[int]:
    """Return the assignment of a member that syncs."""
    answer = harness.synced(harness.sync(member_id, generation_id))
    assert answer.error is ErrorCode.NONE
    return [
        number
        for row in parse_assignment(answer.assignment).assigned_partitions
        for number in row.partitions
    ]


def stable(harness: ConsumersHarness, *owned: int) -> str:
    """Return the only member of a stable classic group."""
    waiter = join(harness, "")
    harness.pass_time(1)
    member_id = harness.joined(waiter).member_id
    harness.sync(member_id, 1, **{member_id.replace("-", "_"): share(*owned)})
    return member_id


def test_classic_members_stay_in_the_upgraded_consumer_group_after_failover(
    harness: ConsumersHarness,
) -> None:
    old = stable(harness, 0, 1, 2, 3)
    harness.commit(5, member_id=old, generation_id=1)
    assert harness.join("new").member_epoch == 2
    member = harness.consumers.members[old]
    assert (member.member_epoch, member.assigned, member.classic is not None) == (
        1,
        {T: (0, 1, 2, 3)},
        True,
    )
    assert state_of(harness.replayed_again()) == state_of(harness)
    assert [each.committed() for each in (harness, harness.replayed_again())] == [5, 5]


def test_classic_member_revokes_and_receives_partitions_by_rejoining(
    harness: ConsumersHarness,
) -> None:
    old = stable(harness, 0, 1, 2, 3)
    harness.join("new")
    assert harness.heartbeat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.joined(join(harness, old, 0, 1, 2, 3)).generation_id == 1
    assert had(harness, old, 1) == [0, 1]
    assert harness.consumers.members[old].state is MemberState.UNREVOKED_PARTITIONS
    assert harness.heartbeat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS, (
        "it must confirm the revocation"
    )
    assert harness.joined(join(harness, old, 0, 1)).generation_id == 2
    assert had(harness, old, 2) == [0, 1]
    assert harness.beat("new").assigned == {T: (2, 3)}
    assert harness.heartbeat(old, 2) is ErrorCode.NONE
    assert state_of(harness.replayed_again()) == state_of(harness)


def test_waiting_classic_members_are_asked_to_rejoin_at_the_upgrade(
    harness: ConsumersHarness,
) -> None:
    old = stable(harness, 0, 1, 2, 3)
    waiter = harness.classic_joins("", subscription(), fresh="second")
    harness.join("new")
    assert harness.joined(waiter).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert sorted(harness.consumers.members) == sorted((old, "new", "c-second"))
    assert harness.consumers.members["c-second"].assigned == {}, "it had not synced yet"


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_non_empty_classic_group_is_not_upgraded_unless_the_policy_allows_it(policy: str) -> None:
    harness = made(policy)
    old = stable(harness, 0)
    assert harness.join("new").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert classic(harness).is_in(GroupState.STABLE) and harness.heartbeat(old, 1) is ErrorCode.NONE


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_consumer_group_is_not_downgraded_unless_the_policy_allows_it(policy: str) -> None:
    harness = made(policy)
    harness.join("new")
    old = harness.joined(join(harness, "")).member_id
    harness.ask("new", -1)
    assert list(harness.consumers.members) == [old] and GROUP not in harness.shard.groups


def test_group_is_downgraded_after_its_last_consumer_member_leaves(
    harness: ConsumersHarness,
) -> None:
    old = stable(harness, 0, 1, 2, 3)
    harness.join("new")
    harness.commit(5, member_id=old, generation_id=1)
    harness.ask("new", -1)
    assert (
        classic(harness).is_in(GroupState.PREPARING_REBALANCE)
        and harness.heartbeat(old, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    )
    other = harness.replayed_again()
    assert other.shard.consumer_groups == {}
    restored, original = classic(other), classic(harness)
    assert (restored.generation_id, restored.leader_id, restored.protocol_name) == (
        original.generation_id,
        original.leader_id,
        original.protocol_name,
    )
    assert parse_assignment(restored.members[old].assignment) == parse_assignment(share(0, 1)), (
        "its intended assignment"
    )
    assert [each.committed() for each in (harness, other)] == [5, 5]
    waiter = join(harness, old, 0, 1, 2, 3)
    assert (harness.joined(waiter).generation_id, harness.joined(waiter).leader_id) == (3, old)


def test_expired_consumer_member_allows_the_downgrade(harness: ConsumersHarness) -> None:
    old = stable(harness, 0, 1, 2, 3)
    harness.join("new")
    for _ in range(10):
        harness.pass_time(SESSION_MS - 1)
        if GROUP in harness.shard.groups:
            break
        harness.heartbeat(old, harness.consumers.members[old].member_epoch)
        harness.joined(join(harness, old, 0, 1))
        harness.sync(old, harness.consumers.members[old].member_epoch)
    assert list(classic(harness).members) == [old]


def test_classic_member_that_joins_without_sync_is_removed_after_its_timeout(
    harness: ConsumersHarness,
) -> None:
    harness.join("new")
    old = harness.joined(join(harness, "")).member_id
    for _ in range(3):
        harness.pass_time(REBALANCE_MS // 3)
        harness.heartbeat(old, harness.consumers.members[old].member_epoch)
        harness.beat("new")
    harness.pass_time(1000)
    assert list(harness.consumers.members) == ["new"]


def test_classic_member_that_ignores_a_rebalance_is_removed_after_its_timeout(
    harness: ConsumersHarness,
) -> None:
    old = stable(harness, 0, 1, 2, 3)
    harness.join("new")
    for _ in range(4):
        assert harness.heartbeat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS, (
            "its session remains valid"
        )
        harness.beat("new")
        harness.pass_time(REBALANCE_MS // 4)
    harness.pass_time(1)
    assert list(harness.consumers.members) == ["new"]


def test_static_member_changes_the_protocol_and_back_in_place(harness: ConsumersHarness) -> None:
    waiter = join(harness, "", instance="i")
    harness.pass_time(1)
    old = harness.joined(waiter).member_id
    harness.sync(old, 1, **{old.replace("-", "_"): share(0, 1, 2, 3)})
    harness.join("new", instance_id="i")
    assert (list(harness.consumers.members), harness.owned["new"]) == (["new"], {T: (0, 1, 2, 3)})
    back = harness.joined(join(harness, "", instance="i"))
    assert (back.error, back.generation_id, list(classic(harness).members)) == (
        ErrorCode.NONE,
        classic(harness).generation_id,
        [back.member_id],
    )
    assert classic(harness).is_in(GroupState.STABLE), "no member needs to rejoin"
    assert had(harness, back.member_id, back.generation_id) == [0, 1, 2, 3]
    assert classic(harness.replayed_again()).static_member_ids == {"i": back.member_id}


def test_static_member_that_returns_as_a_classic_one_loses_its_expression(
    harness: ConsumersHarness,
) -> None:
    """A classic member names its topics: what its former incarnation matched is not assigned to it.
    Apache Kafka 4.0.0 and 4.1.0 kept the expression; 4.0.2, 4.1.2 and 4.2.0 do not
    (GroupMetadataManager.classicGroupJoinToConsumerGroup).
    """
    harness.topics.make("u", 1)
    harness.join("stays")
    harness.join("old", subscribed_names=(), subscribed_regex="t|u", instance_id="i")
    harness.ask("old", LEFT_FOR_A_WHILE, instance_id="i")
    join(harness, "", instance="i")
    (back,) = [each for each in harness.consumers.members.values() if each.instance_id == "i"]
    assert (back.subscribed_names, back.subscribed_regex) == (("t",), None)
    assert id_of("u") not in harness.consumers.targets[back.member_id]


def test_unparseable_subscription_is_rejected_and_leaves_the_group_unchanged(
    harness: ConsumersHarness,
) -> None:
    harness.join("new")
    waiter = harness.classic_joins("", (("range", b""),), fresh="odd")
    assert harness.joined(waiter).error is ErrorCode.UNKNOWN_SERVER_ERROR
    other = made()
    other.classic_join()
    other.pass_time(1)
    assert other.join("new").error is ErrorCode.GROUP_ID_NOT_FOUND
