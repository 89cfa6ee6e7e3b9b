"""Consumer groups of KIP-848: epochs, targets, and how members come to them.   Source: KIP-848; asked of Apache Kafka 4.1.2 and 4.4.0."""

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
    """A topic t of four partitions, and nobody who reads it."""
    topics = MadeTopics()
    topics.make("t", 4)
    return ConsumersLab(topics)


def test_a_partition_is_given_to_somebody_else_only_when_it_was_given_up(lab):
    assert lab.join("a").assigned == {T: (0, 1, 2, 3)}
    joined = lab.join("b")
    assert (joined.member_epoch, joined.assigned) == (2, {})
    assert lab.consumers.state is ConsumerGroupState.RECONCILING
    told = lab.beat("a")
    assert (told.member_epoch, told.assigned) == (1, {T: (0, 1)})
    assert lab.consumers.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert lab.beat("b").assigned is None, "not yet"
    assert lab.beat("a").member_epoch == 2
    assert lab.beat("b").assigned == {T: (2, 3)}
    assert lab.consumers.state is ConsumerGroupState.STABLE
    assert lab.beat("b").assigned is None, "told once"


def test_a_member_that_does_not_say_what_it_has_is_believed_to_have_all_of_it(lab):
    lab.join("a")
    lab.join("b")
    lab.beat("a")
    assert lab.ask("a", 1).member_epoch == 1
    assert lab.consumers.members["a"].state is MemberState.UNREVOKED_PARTITIONS


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a"), ("a", "b", "c"), tuple("abcdefg")])
def test_whoever_comes_and_goes_all_is_shared_in_the_end_and_the_next_coordinator_knows_it(lab, names):
    for name in names:
        lab.join(name)
    shares = lab.beat_all(*names)
    assert sorted(number for numbers in shares.values() for number in numbers) == [0, 1, 2, 3]
    assert max(map(len, shares.values())) - min(map(len, shares.values())) <= 1
    assert {lab.epochs[name] for name in names} == {len(names)}
    other = lab.read_again()
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
def test_only_the_present_epoch_is_taken_and_the_one_before_of_whoever_missed_an_answer(lab, member_id, epoch, owned, error):
    lab.join("a")
    lab.join("b")
    lab.beat_all("a", "b")
    before = state_of(lab)
    assert lab.ask(member_id, epoch, owned=owned).error is error
    assert state_of(lab) == before


@pytest.mark.parametrize(("may", "error"), [(0, ErrorCode.FENCED_MEMBER_EPOCH), (1, ErrorCode.NONE)])
def test_a_member_may_come_anew_where_the_release_lets_it(may, error):
    lab = ConsumersLab(consumer_may_come_anew=may)
    lab.topics.make("t", 2)
    lab.join("a")
    lab.join("b")
    lab.beat_all("a", "b")
    assert lab.join("a").error is error


def test_groups_that_nobody_made_are_not_found(lab):
    for epoch in (1, -1, -2):
        assert lab.ask("a", epoch, instance_id="i").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert not lab.shard.consumer_groups


def test_the_session_of_a_member_ends_and_the_others_go_on(lab):
    lab.join("a")
    lab.join("b")
    lab.beat_all("a", "b")
    lab.pass_time(SESSION_MS - 1)
    lab.beat("b")
    lab.pass_time(1)
    assert list(lab.consumers.members) == ["b"]
    lab.gone("a")
    assert lab.beat_all("b") == {"b": [0, 1, 2, 3]}
    assert state_of(lab.read_again()) == state_of(lab)


def test_who_gives_nothing_up_in_time_is_out(lab):
    lab.join("a")
    lab.join("b")
    lab.beat("a")
    lab.pass_time(REBALANCE_MS - 1)
    assert lab.ask("a", 1).error is ErrorCode.NONE
    lab.pass_time(1)
    assert lab.ask("a", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    lab.gone("a")
    assert lab.beat_all("b") == {"b": [0, 1, 2, 3]}


def test_after_a_change_of_the_coordinator_sessions_and_time_outs_begin_anew(lab):
    lab.join("a")
    lab.join("b")
    lab.beat("a")
    other = lab.read_again()
    other.pass_time(REBALANCE_MS)
    assert list(other.consumers.members) == ["b"]
    other.pass_time(SESSION_MS)
    assert other.consumers.state is ConsumerGroupState.EMPTY


def test_a_static_member_is_replaced_by_whoever_comes_after_it_has_gone(lab):
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
    assert (taken.assigned, lab.consumers.group_epoch) == ({T: (0, 1)}, group_epoch), "nobody else notices"
    assert lab.ask("a", 2, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert lab.ask("a", 2, instance_id="nobody").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert state_of(lab.read_again()) == state_of(lab)


def test_a_static_member_that_does_not_come_back_is_out_after_its_session(lab):
    lab.join("a", instance_id="i")
    lab.ask("a", -2, instance_id="i")
    lab.pass_time(SESSION_MS)
    assert lab.consumers.members == {}


def test_a_full_group_takes_nobody_new():
    lab = ConsumersLab(consumer_max_size=1)
    lab.topics.make("t", 1)
    lab.join("a")
    assert lab.join("b").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert lab.beat("a").error is ErrorCode.NONE


def test_topics_that_grow_or_come_later_are_shared_out(lab):
    lab.join("a", "t", "later")
    lab.topics.make("t", 5)
    assert lab.beat("a").assigned == {T: (0, 1, 2, 3, 4)}
    lab.topics.make("later", 1)
    assert lab.beat("a").assigned == {T: (0, 1, 2, 3, 4), id_of("later"): (0,)}


def test_a_regular_expression_means_what_it_matches_now(lab):
    lab.join("a", subscribed_names=(), subscribed_regex="t|u.*")
    assert lab.owned["a"] == {T: (0, 1, 2, 3)}
    lab.topics.make("unit", 1)
    assert lab.beat("a").assigned == {T: (0, 1, 2, 3), id_of("unit"): (0,)}
    assert lab.consumers.resolved == {"t|u.*": ("t", "unit")}
    lab.beat("a", subscribed_regex="u.*")
    assert lab.consumers.resolved == {"u.*": ("unit",)}
    assert state_of(lab.read_again()) == state_of(lab)


def test_an_expression_is_looked_at_once_as_long_as_the_topics_are_the_same(lab, monkeypatch):
    """Otherwise members with expressions of their own would cost the square of their number."""
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


def test_targets_are_worked_out_once_in_a_while_where_that_is_wanted():
    """KIP-1263: who comes meanwhile is in the epoch of the target, and has nothing."""
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


def test_an_empty_group_changes_its_kind_and_keeps_its_offsets_also_for_the_next_coordinator(lab):
    lab.stable_classic()
    lab.commit(5)
    lab.join("a")
    assert GROUP not in lab.shard.groups
    assert [each.committed() for each in (lab, lab.read_again())] == [5, 5]
    lab.ask("a", -1)
    lab.classic_join()
    assert GROUP not in lab.shard.consumer_groups
    assert [each.committed() for each in (lab, lab.read_again())] == [5, 5]


def test_a_deleted_group_is_gone_for_the_next_coordinator_too(lab):
    lab.join("a")
    assert lab.shard.delete(GROUP, lab.now) is ErrorCode.NON_EMPTY_GROUP
    lab.ask("a", -1)
    assert lab.shard.delete(GROUP, lab.now) is ErrorCode.NONE
    lab.settle()
    assert not lab.shard.consumer_groups and not lab.read_again().shard.consumer_groups


def test_a_step_of_a_member_takes_a_time_that_grows_with_its_partitions():
    """Also to tell which partitions it had before, whose epochs stay."""
    topic_id, had = bytes(16), tuple(range(20_000))
    member = ConsumerMember(member_id="m", member_epoch=1, assigned={topic_id: had}, assignment_epochs={(topic_id, number): 1 for number in had})
    target = {topic_id: (*had, 20_000)}
    started = time.process_time()
    reached = reconciled(member, target_epoch=2, target=target, owned={topic_id: had}, is_taken=lambda topic, number: False)
    assert time.process_time() - started < 0.5
    assert [reached.assignment_epoch(topic_id, number) for number in (0, 19_999, 20_000)] == [1, 1, 2]


@pytest.mark.parametrize("takes_back", [True, False])
def test_what_a_member_has_given_up_for_nobody_comes_back_at_once_since_4_0(takes_back):
    """CurrentAssignmentBuilder.computeNextAssignment of 4.0.2: what the member itself was giving up is nobody else's."""
    topics = MadeTopics()
    topics.make("t", 4)
    lab = ConsumersLab(topics, consumer_takes_back=takes_back)
    lab.join("a")
    lab.join("b")
    assert lab.beat("a").assigned == {T: (0, 1)}
    lab.ask("b", -1)
    lab.gone("b")
    told = [lab.beat("a"), lab.beat("a")]
    assert [each.assigned for each in told] == ([{T: (0, 1, 2, 3)}, None] if takes_back else [None, {T: (0, 1, 2, 3)}])
    assert state_of(lab.read_again()) == state_of(lab)
