"""Consumer groups of KIP-848: epochs, target assignments, and reconciliation.   Source: KIP-848; verified with Apache
Kafka 4.1.2 and 4.4.0.
"""

import time

import pytest

from kraftsim.core.groups.consumer.consumer_group import ConsumerGroupState
from kraftsim.core.groups.consumer.consumer_member import ConsumerMember, MemberState
from kraftsim.core.groups.consumer.reconciliation import reconciled
from protocol.errors import ErrorCode
from tests.core.consumers_lab import REBALANCE_MS, ConsumersLab, MadeTopics, id_of, state_of
from tests.core.groups_lab import GROUP

T = id_of("t")
SESSION_MS = 45_000


@pytest.fixture
def lab() -> ConsumersLab:
    """A topic t of four partitions without a consumer."""
    topics = MadeTopics()
    topics.make("t", 4)
    return ConsumersLab(topics)


def test_partition_is_reassigned_only_after_its_revocation(lab):
    assert lab.join("a").assigned == {T: (0, 1, 2, 3)}
    joined = lab.join("b")
    assert (joined.member_epoch, joined.assigned) == (2, {})
    assert lab.consumers.state is ConsumerGroupState.RECONCILING
    response = lab.beat("a")
    assert (response.member_epoch, response.assigned) == (1, {T: (0, 1)})
    assert lab.consumers.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert lab.beat("b").assigned is None, "not yet"
    assert lab.beat("a").member_epoch == 2
    assert lab.beat("b").assigned == {T: (2, 3)}
    assert lab.consumers.state is ConsumerGroupState.STABLE
    assert lab.beat("b").assigned is None, "sent once"


def test_member_that_omits_its_owned_partitions_is_assumed_to_own_all_assigned(lab):
    lab.join("a")
    lab.join("b")
    lab.beat("a")
    assert lab.ask("a", 1).member_epoch == 1
    assert lab.consumers.members["a"].state is MemberState.UNREVOKED_PARTITIONS


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a"), ("a", "b", "c"), tuple("abcdefg")])
def test_all_partitions_are_assigned_after_any_membership_changes_and_failover(lab, names):
    for name in names:
        lab.join(name)
    shares = lab.beat_all(*names)
    assert sorted(number for numbers in shares.values() for number in numbers) == [0, 1, 2, 3]
    assert max(map(len, shares.values())) - min(map(len, shares.values())) <= 1
    assert {lab.epochs[name] for name in names} == {len(names)}
    other = lab.replayed_again()
    assert state_of(other) == state_of(lab)
    for each in (lab, other):
        assert each.ask(names[0], -1).error is ErrorCode.NONE
        each.gone(names[0])
        assert sorted(number for numbers in each.beat_all(*names[1:]).values() for number in numbers) == [0, 1, 2, 3]
    assert state_of(other) == state_of(lab)


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
def test_only_the_current_epoch_or_the_previous_after_a_lost_response_is_valid(lab, member_id, epoch, owned, error):
    lab.join("a")
    lab.join("b")
    lab.beat_all("a", "b")
    before = state_of(lab)
    assert lab.ask(member_id, epoch, owned=owned).error is error
    assert state_of(lab) == before


@pytest.mark.parametrize(("may", "error"), [(0, ErrorCode.FENCED_MEMBER_EPOCH), (1, ErrorCode.NONE)])
def test_known_member_may_rejoin_with_epoch_0_where_the_release_allows_it(may, error):
    lab = ConsumersLab(consumer_may_come_anew=may)
    lab.topics.make("t", 2)
    lab.join("a")
    lab.join("b")
    lab.beat_all("a", "b")
    assert lab.join("a").error is error


def test_nonexistent_groups_are_not_found(lab):
    for epoch in (1, -1, -2):
        assert lab.ask("a", epoch, instance_id="i").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert not lab.shard.consumer_groups


def test_expired_session_removes_only_its_member(lab):
    lab.join("a")
    lab.join("b")
    lab.beat_all("a", "b")
    lab.pass_time(SESSION_MS - 1)
    lab.beat("b")
    lab.pass_time(1)
    assert list(lab.consumers.members) == ["b"]
    lab.gone("a")
    assert lab.beat_all("b") == {"b": [0, 1, 2, 3]}
    assert state_of(lab.replayed_again()) == state_of(lab)


def test_member_that_does_not_revoke_in_time_is_removed(lab):
    lab.join("a")
    lab.join("b")
    lab.beat("a")
    lab.pass_time(REBALANCE_MS - 1)
    assert lab.ask("a", 1).error is ErrorCode.NONE
    lab.pass_time(1)
    assert lab.ask("a", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    lab.gone("a")
    assert lab.beat_all("b") == {"b": [0, 1, 2, 3]}


def test_new_coordinator_restarts_session_and_rebalance_timeouts(lab):
    lab.join("a")
    lab.join("b")
    lab.beat("a")
    other = lab.replayed_again()
    other.pass_time(REBALANCE_MS)
    assert list(other.consumers.members) == ["b"]
    other.pass_time(SESSION_MS)
    assert other.consumers.state is ConsumerGroupState.EMPTY


def test_static_member_is_replaced_after_it_left_temporarily(lab):
    lab.join("a", instance_id="i")
    lab.join("b")
    lab.beat("a", instance_id="i")
    lab.beat("a", instance_id="i")
    lab.beat("b")
    assert lab.join("c", instance_id="i").error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert lab.ask("a", -2, instance_id="i").member_epoch == -2
    group_epoch = lab.consumers.group_epoch
    lab.gone("a")
    taken = lab.join("c", instance_id="i")
    assert (taken.assigned, lab.consumers.group_epoch) == ({T: (0, 1)}, group_epoch), "no other member is affected"
    assert lab.ask("a", 2, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert lab.ask("a", 2, instance_id="nobody").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert state_of(lab.replayed_again()) == state_of(lab)


def test_static_member_that_does_not_return_is_removed_after_its_session(lab):
    lab.join("a", instance_id="i")
    lab.ask("a", -2, instance_id="i")
    lab.pass_time(SESSION_MS)
    assert lab.consumers.members == {}


def test_full_group_rejects_new_members():
    lab = ConsumersLab(consumer_max_size=1)
    lab.topics.make("t", 1)
    lab.join("a")
    assert lab.join("b").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert lab.beat("a").error is ErrorCode.NONE


def test_new_partitions_and_topics_are_assigned(lab):
    lab.join("a", "t", "later")
    lab.topics.make("t", 5)
    assert lab.beat("a").assigned == {T: (0, 1, 2, 3, 4)}
    lab.topics.make("later", 1)
    assert lab.beat("a").assigned == {T: (0, 1, 2, 3, 4), id_of("later"): (0,)}


def test_regular_expression_subscribes_to_currently_matching_topics(lab):
    lab.join("a", subscribed_names=(), subscribed_regex="t|u.*")
    assert lab.owned["a"] == {T: (0, 1, 2, 3)}
    lab.topics.make("unit", 1)
    assert lab.beat("a").assigned == {T: (0, 1, 2, 3), id_of("unit"): (0,)}
    assert lab.consumers.resolved == {"t|u.*": ("t", "unit")}
    lab.beat("a", subscribed_regex="u.*")
    assert lab.consumers.resolved == {"u.*": ("unit",)}
    assert state_of(lab.replayed_again()) == state_of(lab)


def test_expression_is_resolved_once_while_topics_are_unchanged(lab, monkeypatch):
    """Otherwise the cost of members with different expressions would be quadratic."""
    looks = []
    names = lab.topics.names

    def counted():
        looks.append(None)
        return names()

    monkeypatch.setattr(lab.topics, "names", counted)
    members = [f"m{number}" for number in range(10)]
    for member in members:
        lab.join(member, subscribed_names=(), subscribed_regex=f"t|{member}")
    assert len(looks) == len(members)
    lab.topics.make("m3", 1)
    lab.beat("m3")
    assert lab.consumers.resolved["t|m3"] == ("m3", "t")
    assert len(looks) == 2 * len(members)


def test_target_assignment_is_computed_at_the_configured_interval():
    """KIP-1263: a member that joins in between has the epoch of the target and no partitions."""
    lab = ConsumersLab(consumer_assignment_interval_ms=1000, consumer_first_epoch=1, consumer_settles_empty=1)
    lab.topics.make("t", 4)
    assert lab.join("a").member_epoch == 2
    assert (lab.join("b").member_epoch, lab.consumers.group_epoch) == (2, 3)
    assert lab.beat("a").assigned is None
    lab.pass_time(1000)
    assert lab.beat_all("a", "b") == {"a": [0, 1], "b": [2, 3]}
    for name in ("a", "b"):
        lab.ask(name, -1)
    assert (lab.consumers.group_epoch, lab.consumers.assignment_epoch) == (5, 5)


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
def test_members_commit_in_their_present_epoch(lab, member_id, epoch, version, error):
    """Version None: inside a transaction."""
    lab.join("a")
    assert (lab.consumers.refuse_commit(member_id, epoch, version) or ErrorCode.NONE) is error


def test_empty_group_changes_type_and_keeps_offsets_after_failover(lab):
    lab.stable_classic()
    lab.commit(5)
    lab.join("a")
    assert GROUP not in lab.shard.groups
    assert [each.committed() for each in (lab, lab.replayed_again())] == [5, 5]
    lab.ask("a", -1)
    lab.classic_join()
    assert GROUP not in lab.shard.consumer_groups
    assert [each.committed() for each in (lab, lab.replayed_again())] == [5, 5]


def test_deleted_group_stays_deleted_after_failover(lab):
    lab.join("a")
    assert lab.shard.delete(GROUP, lab.now) is ErrorCode.NON_EMPTY_GROUP
    lab.ask("a", -1)
    assert lab.shard.delete(GROUP, lab.now) is ErrorCode.NONE
    lab.settle()
    assert not lab.shard.consumer_groups and not lab.replayed_again().shard.consumer_groups


def test_member_reconciliation_is_linear_in_its_partitions():
    """Including the lookup of the partitions that it owned before, whose epochs are kept."""
    topic_id, had = bytes(16), tuple(range(20_000))
    member = ConsumerMember(member_id="m", member_epoch=1, assigned={topic_id: had}, assignment_epochs={(topic_id, number): 1 for number in had})
    target = {topic_id: (*had, 20_000)}
    started = time.process_time()
    reached = reconciled(member, target_epoch=2, target=target, owned={topic_id: had}, is_taken=lambda topic, number: False)
    assert time.process_time() - started < 0.5
    assert [reached.assignment_epoch(topic_id, number) for number in (0, 19_999, 20_000)] == [1, 1, 2]


@pytest.mark.parametrize("takes_back", [True, False])
def test_unclaimed_revoked_partition_is_returned_immediately_since_4_0(takes_back):
    """CurrentAssignmentBuilder.computeNextAssignment of 4.0.2: no other member waits for a partition that the member
    itself was revoking.
    """
    topics = MadeTopics()
    topics.make("t", 4)
    lab = ConsumersLab(topics, consumer_takes_back=takes_back)
    lab.join("a")
    lab.join("b")
    assert lab.beat("a").assigned == {T: (0, 1)}
    lab.ask("b", -1)
    lab.gone("b")
    response = [lab.beat("a"), lab.beat("a")]
    assert [each.assigned for each in response] == ([{T: (0, 1, 2, 3)}, None] if takes_back else [None, {T: (0, 1, 2, 3)}])
    assert state_of(lab.replayed_again()) == state_of(lab)
