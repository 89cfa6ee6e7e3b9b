"""Consumer groups of KIP-848: epochs, target assignments, and reconciliation.
Source: KIP-848; verified with Apache Kafka 4.1.2 and 4.4.0.
"""

import time

import pytest

from kraftsim.events.event import Event
from kraftsim.groups.events import ConsumerGroupEnded, MemberEpochSet
from kraftsim.groups.rules_consumer_group import (
    ConsumerGroupState,
    ConsumerMember,
    MemberState,
    NoTopics,
    reconciled,
)
from kraftsim.groups.rules_consumer_group_records import MemberEvents
from protocol.coordinator.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMetadataKey,
)
from protocol.errors import ErrorCode
from tests.core.consumers_harness import REBALANCE_MS, ConsumersHarness, MadeTopics, id_of, state_of
from tests.core.groups_harness import GROUP

T = id_of("t")
SESSION_MS = 45_000


@pytest.fixture
def harness() -> ConsumersHarness:
    """A topic t of four partitions without a consumer."""
    topics = MadeTopics()
    topics.make("t", 4)
    return ConsumersHarness(topics)


def group_state(harness: ConsumersHarness) -> ConsumerGroupState:
    return harness.consumers.state


def test_partition_is_reassigned_only_after_its_revocation(harness: ConsumersHarness) -> None:
    assert harness.join("a").assigned == {T: (0, 1, 2, 3)}
    joined = harness.join("b")
    assert (joined.member_epoch, joined.assigned) == (2, {})
    assert harness.consumers.state is ConsumerGroupState.RECONCILING
    response = harness.beat("a")
    assert (response.member_epoch, response.assigned) == (1, {T: (0, 1)})
    assert harness.consumers.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert harness.beat("b").assigned is None, "not yet"
    assert harness.beat("a").member_epoch == 2
    assert harness.beat("b").assigned == {T: (2, 3)}
    assert group_state(harness) is ConsumerGroupState.STABLE
    assert harness.beat("b").assigned is None, "sent once"


def test_member_that_omits_its_owned_partitions_is_assumed_to_own_all_assigned(
    harness: ConsumersHarness,
) -> None:
    harness.join("a")
    harness.join("b")
    harness.beat("a")
    assert harness.ask("a", 1).member_epoch == 1
    assert harness.consumers.members["a"].state is MemberState.UNREVOKED_PARTITIONS


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a"), ("a", "b", "c"), tuple("abcdefg")])
def test_all_partitions_are_assigned_after_any_membership_changes_and_failover(
    harness: ConsumersHarness, names: tuple[str, ...]
) -> None:
    for name in names:
        harness.join(name)
    shares = harness.beat_all(*names)
    assert sorted(number for numbers in shares.values() for number in numbers) == [0, 1, 2, 3]
    assert max(map(len, shares.values())) - min(map(len, shares.values())) <= 1
    assert {harness.epochs[name] for name in names} == {len(names)}
    other = harness.replayed_again()
    assert state_of(other) == state_of(harness)
    for each in (harness, other):
        assert each.ask(names[0], -1).error is ErrorCode.NONE
        each.gone(names[0])
        assert sorted(
            number for numbers in each.beat_all(*names[1:]).values() for number in numbers
        ) == [0, 1, 2, 3]
    assert state_of(other) == state_of(harness)


@pytest.mark.parametrize(
    ("member_id", "epoch", "owned", "error"),
    [
        ("a", 2, {T: (0, 1)}, ErrorCode.NONE),
        ("a", 1, {T: (0, 1)}, ErrorCode.NONE),
        ("a", 1, {T: (1,)}, ErrorCode.NONE),
        ("a", 1, {T: (0, 1, 2)}, ErrorCode.FENCED_MEMBER_EPOCH),
        ("a", 1, None, ErrorCode.FENCED_MEMBER_EPOCH),
        ("a", 3, {T: (0, 1)}, ErrorCode.FENCED_MEMBER_EPOCH),
        ("x", 2, {}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_only_the_current_epoch_or_the_previous_after_a_lost_response_is_valid(
    harness: ConsumersHarness,
    member_id: str,
    epoch: int,
    owned: dict[bytes, tuple[int, ...]] | None,
    error: ErrorCode,
) -> None:
    harness.join("a")
    harness.join("b")
    harness.beat_all("a", "b")
    before = state_of(harness)
    assert harness.ask(member_id, epoch, owned=owned).error is error
    assert state_of(harness) == before


@pytest.mark.parametrize(
    ("may", "error"), [(0, ErrorCode.FENCED_MEMBER_EPOCH), (1, ErrorCode.NONE)]
)
def test_known_member_may_rejoin_with_epoch_0_where_the_release_allows_it(
    may: int, error: ErrorCode
) -> None:
    harness = ConsumersHarness(consumer_may_rejoin=may)
    harness.topics.make("t", 2)
    harness.join("a")
    harness.join("b")
    harness.beat_all("a", "b")
    assert harness.join("a").error is error


def test_nonexistent_groups_are_not_found(harness: ConsumersHarness) -> None:
    for epoch in (1, -1, -2):
        assert harness.ask("a", epoch, instance_id="i").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert not harness.shard.consumer_groups


def test_expired_session_removes_only_its_member(harness: ConsumersHarness) -> None:
    harness.join("a")
    harness.join("b")
    harness.beat_all("a", "b")
    harness.pass_time(SESSION_MS - 1)
    harness.beat("b")
    harness.pass_time(1)
    assert list(harness.consumers.members) == ["b"]
    harness.gone("a")
    assert harness.beat_all("b") == {"b": [0, 1, 2, 3]}
    assert state_of(harness.replayed_again()) == state_of(harness)


def test_member_that_does_not_revoke_in_time_is_removed(harness: ConsumersHarness) -> None:
    harness.join("a")
    harness.join("b")
    harness.beat("a")
    harness.pass_time(REBALANCE_MS - 1)
    assert harness.ask("a", 1).error is ErrorCode.NONE
    harness.pass_time(1)
    assert harness.ask("a", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    harness.gone("a")
    assert harness.beat_all("b") == {"b": [0, 1, 2, 3]}


def test_new_coordinator_restarts_session_and_rebalance_timeouts(harness: ConsumersHarness) -> None:
    harness.join("a")
    harness.join("b")
    harness.beat("a")
    other = harness.replayed_again()
    other.pass_time(REBALANCE_MS)
    assert list(other.consumers.members) == ["b"]
    other.pass_time(SESSION_MS)
    assert other.consumers.state is ConsumerGroupState.EMPTY


def test_static_member_is_replaced_after_it_left_temporarily(harness: ConsumersHarness) -> None:
    harness.join("a", instance_id="i")
    harness.join("b")
    harness.beat("a", instance_id="i")
    harness.beat("a", instance_id="i")
    harness.beat("b")
    assert harness.join("c", instance_id="i").error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert harness.ask("a", -2, instance_id="i").member_epoch == -2
    group_epoch = harness.consumers.group_epoch
    harness.gone("a")
    taken = harness.join("c", instance_id="i")
    assert (taken.assigned, harness.consumers.group_epoch) == ({T: (0, 1)}, group_epoch), (
        "no other member is affected"
    )
    assert harness.ask("a", 2, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert harness.ask("a", 2, instance_id="nobody").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert state_of(harness.replayed_again()) == state_of(harness)


def test_static_member_that_does_not_return_is_removed_after_its_session(
    harness: ConsumersHarness,
) -> None:
    harness.join("a", instance_id="i")
    harness.ask("a", -2, instance_id="i")
    harness.pass_time(SESSION_MS)
    assert harness.consumers.members == {}


def test_full_group_rejects_new_members() -> None:
    harness = ConsumersHarness(consumer_max_size=1)
    harness.topics.make("t", 1)
    harness.join("a")
    assert harness.join("b").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert harness.beat("a").error is ErrorCode.NONE


def test_new_partitions_and_topics_are_assigned(harness: ConsumersHarness) -> None:
    harness.join("a", "t", "later")
    harness.topics.make("t", 5)
    assert harness.beat("a").assigned == {T: (0, 1, 2, 3, 4)}
    harness.topics.make("later", 1)
    assert harness.beat("a").assigned == {T: (0, 1, 2, 3, 4), id_of("later"): (0,)}


def test_regular_expression_subscribes_to_currently_matching_topics(
    harness: ConsumersHarness,
) -> None:
    harness.join("a", subscribed_names=(), subscribed_regex="t|u.*")
    assert harness.owned["a"] == {T: (0, 1, 2, 3)}
    harness.topics.make("unit", 1)
    assert harness.beat("a").assigned == {T: (0, 1, 2, 3), id_of("unit"): (0,)}
    assert harness.consumers.resolved == {"t|u.*": ("t", "unit")}
    harness.beat("a", subscribed_regex="u.*")
    assert harness.consumers.resolved == {"u.*": ("unit",)}
    assert state_of(harness.replayed_again()) == state_of(harness)


@pytest.mark.parametrize(("drops", "left"), [(0, [id_of("t")]), (1, [])])
def test_member_gives_up_at_once_what_it_does_not_read_any_longer(
    drops: int, left: list[bytes]
) -> None:
    """Since 4.2, while the next target assignment is delayed (CurrentAssignmentBuilder)."""
    harness = ConsumersHarness(
        consumer_drops_unsubscribed=drops, consumer_assignment_interval_ms=1000
    )
    for topic in ("t", "u"):
        harness.topics.make(topic, 2)
    harness.join("a", "t")
    answer = harness.beat("a", subscribed_names=("u",))
    assert harness.consumers.members["a"].pending_revocation == (
        {id_of("t"): (0, 1)} if drops else {}
    )
    assert list(harness.consumers.members["a"].assigned) == left
    harness.beat("a")
    harness.now_ms += 1000
    harness.beat("a")
    harness.beat("a")
    assert list(harness.consumers.members["a"].assigned) == [id_of("u")]
    assert answer.error is ErrorCode.NONE


def test_expression_is_resolved_once_while_topics_are_unchanged(
    harness: ConsumersHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the cost of members with different expressions would be quadratic."""
    looks: list[None] = []
    names = harness.topics.names

    def counted() -> list[str]:
        looks.append(None)
        return names()

    monkeypatch.setattr(harness.topics, "names", counted)
    members = [f"m{number}" for number in range(10)]
    for member in members:
        harness.join(member, subscribed_names=(), subscribed_regex=f"t|{member}")
    assert len(looks) == len(members)
    harness.topics.make("m3", 1)
    harness.beat("m3")
    assert harness.consumers.resolved["t|m3"] == ("m3", "t")
    assert len(looks) == 2 * len(members)


def test_target_assignment_is_computed_at_the_configured_interval() -> None:
    """KIP-1263: a member that joins in between has the epoch of the target and no partitions."""
    harness = ConsumersHarness(
        consumer_assignment_interval_ms=1000, consumer_first_epoch=1, consumer_settles_empty=1
    )
    harness.topics.make("t", 4)
    assert harness.join("a").member_epoch == 2
    assert (harness.join("b").member_epoch, harness.consumers.group_epoch) == (2, 3)
    assert harness.beat("a").assigned is None
    harness.pass_time(1000)
    assert harness.beat_all("a", "b") == {"a": [0, 1], "b": [2, 3]}
    for name in ("a", "b"):
        harness.ask(name, -1)
    assert (harness.consumers.group_epoch, harness.consumers.assignment_epoch) == (5, 5)


@pytest.mark.parametrize(("interval_ms", "is_assigned"), [(0, True), (1000, False)])
def test_clock_that_was_ahead_delays_assignments_unless_the_interval_is_0(
    interval_ms: int, is_assigned: bool
) -> None:
    """GroupMetadataManager.canComputeNextTargetAssignment of 4.4.0."""
    harness = ConsumersHarness(
        consumer_assignment_interval_ms=interval_ms,
        consumer_first_epoch=1,
        consumer_settles_empty=1,
    )
    harness.topics.make("t", 4)
    harness.pass_time(8 * 86_400_000)
    harness.join("a")
    harness.pass_time(-8 * 86_400_000)
    harness.join("b")
    assert (harness.consumers.assignment_epoch == harness.consumers.group_epoch) is is_assigned


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "error"),
    [
        ("a", 1, 9, ErrorCode.NONE),
        ("a", 2, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", -1, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", 1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 1, 8, ErrorCode.UNSUPPORTED_VERSION),
        ("a", 1, None, ErrorCode.NONE),
        ("", -1, None, ErrorCode.NONE),
        ("a", 2, None, ErrorCode.STALE_MEMBER_EPOCH),
    ],
)
def test_members_commit_in_their_present_epoch(
    harness: ConsumersHarness, member_id: str, epoch: int, version: int | None, error: ErrorCode
) -> None:
    """Version None: inside a transaction."""
    harness.join("a")
    assert (harness.consumers.refuse_commit(member_id, epoch, version) or ErrorCode.NONE) is error


def test_empty_group_changes_type_and_keeps_offsets_after_failover(
    harness: ConsumersHarness,
) -> None:
    harness.stable_classic()
    harness.commit(5)
    harness.join("a")
    assert GROUP not in harness.shard.groups
    assert [each.committed() for each in (harness, harness.replayed_again())] == [5, 5]
    harness.ask("a", -1)
    harness.classic_join()
    assert GROUP not in harness.shard.consumer_groups
    assert [each.committed() for each in (harness, harness.replayed_again())] == [5, 5]


def test_deleted_group_stays_deleted_after_failover(harness: ConsumersHarness) -> None:
    harness.join("a")
    assert harness.deleted(harness.delete_group()) == [ErrorCode.NON_EMPTY_GROUP]
    harness.ask("a", -1)
    assert harness.deleted(harness.delete_group()) == [ErrorCode.NONE]
    assert not harness.shard.consumer_groups and not harness.replayed_again().shard.consumer_groups


def test_member_reconciliation_is_linear_in_its_partitions() -> None:
    """Including the lookup of the partitions that it owned before, whose epochs are kept."""
    topic_id, had = bytes(16), tuple(range(20_000))
    member = ConsumerMember(
        member_id="m",
        member_epoch=1,
        assigned={topic_id: had},
        assignment_epochs={(topic_id, number): 1 for number in had},
    )
    target = {topic_id: (*had, 20_000)}
    started = time.process_time()
    reached = reconciled(
        member,
        target_epoch=2,
        target=target,
        owned={topic_id: had},
        is_taken=lambda topic, number: False,
    )
    assert time.process_time() - started < 0.5
    assert [reached.assignment_epoch(topic_id, number) for number in (0, 19_999, 20_000)] == [
        1,
        1,
        2,
    ]


@pytest.mark.parametrize("takes_back", [True, False])
def test_unclaimed_revoked_partition_is_returned_immediately_since_4_0(takes_back: bool) -> None:
    """CurrentAssignmentBuilder.computeNextAssignment of 4.0.2: no other member waits for a
    partition that the member itself was revoking.
    """
    topics = MadeTopics()
    topics.make("t", 4)
    harness = ConsumersHarness(topics, consumer_takes_back=takes_back)
    harness.join("a")
    harness.join("b")
    assert harness.beat("a").assigned == {T: (0, 1)}
    harness.ask("b", -1)
    harness.gone("b")
    response = [harness.beat("a"), harness.beat("a")]
    assert [each.assigned for each in response] == (
        [{T: (0, 1, 2, 3)}, None] if takes_back else [None, {T: (0, 1, 2, 3)}]
    )
    assert state_of(harness.replayed_again()) == state_of(harness)


def test_a_coordinator_reports_the_removals_that_it_loads() -> None:
    """The one that wrote them may have stopped before they were replicated: only this report says
    that the members are gone.
    """
    events: list[Event] = []
    member_events = MemberEvents(events.append, 3, NoTopics())
    current = ConsumerGroupCurrentMemberAssignmentValue(member_epoch=4)
    for record_offset, (member_id, value) in enumerate(
        (("a", current), ("b", current), ("a", None))
    ):
        key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id=member_id)
        member_events.replayed(key, value, record_offset)
    member_events.replayed(ConsumerGroupMetadataKey(group_id="h"), None, 3)
    member_events.begin()
    assert [
        (event.member_id, event.member_epoch, event.record_offset)
        for event in events
        if isinstance(event, MemberEpochSet)
    ] == [("a", -1, 2), ("b", 4, 1)]
    assert events[-1] == ConsumerGroupEnded(coordinator_partition=3, group_id="h", record_offset=3)
