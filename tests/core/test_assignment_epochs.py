"""The epoch in which a partition was assigned to a member, and which commits of a past epoch are
accepted because of it.
Source: KIP-1251.
"""

import pytest

from kraftsim.groups.rules_timing import CommitAnswer
from protocol.coordinator.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from protocol.coordinator.registry import CoordinatorTopic, parse_record
from protocol.errors import ErrorCode
from tests.core.consumers_harness import ConsumersHarness, MadeTopics, id_of, state_of
from tests.core.groups_harness import GROUP

T = id_of("t")
OK, STALE = None, ErrorCode.STALE_MEMBER_EPOCH
IN_TRANSACTION, BY_NAME = None, 9


def harness_with_topic(*, keeps: bool = True) -> ConsumersHarness:
    """A topic t of four partitions."""
    topics = MadeTopics()
    topics.make("t", 4)
    return ConsumersHarness(topics, consumer_keeps_assignment_epochs=keeps)


def shared(*, keeps: bool = True) -> ConsumersHarness:
    """Member a has had all partitions since epoch 1, member b took over 2 and 3 in epoch 2."""
    harness = harness_with_topic(keeps=keeps)
    harness.join("a")
    harness.join("b")
    assert harness.beat_all("a", "b") == {"a": [0, 1], "b": [2, 3]}
    assert harness.epochs == {"a": 2, "b": 2}
    return harness


@pytest.mark.parametrize("version", [BY_NAME, IN_TRANSACTION])
@pytest.mark.parametrize(
    ("member_id", "epoch", "numbers", "kept", "error"),
    [
        ("a", 2, (0, 1), OK, OK),
        ("a", 2, (2,), OK, OK),  # its current epoch may commit anything
        ("a", 1, (0, 1), OK, STALE),
        ("a", 1, (2,), STALE, STALE),
        ("a", 1, (0, 2), STALE, STALE),  # one invalid partition rejects all
        ("a", 0, (0,), STALE, STALE),
        ("a", -1, (0,), STALE, STALE),
        ("a", 3, (0,), STALE, STALE),
        ("b", 1, (2,), STALE, STALE),
        ("x", 1, (0,), ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_past_epoch_may_commit_partitions_assigned_since_then(
    member_id: str,
    epoch: int,
    numbers: tuple[int, ...],
    kept: ErrorCode | None,
    error: ErrorCode | None,
    version: int | None,
) -> None:
    """`error` is the error of releases before 4.3."""
    for keeps, expected in ((True, kept), (False, error)):
        group = shared(keeps=keeps).consumers
        assert (
            group.refuse_commit(member_id, epoch, version, [(T, number) for number in numbers])
            is expected
        )


def test_partitions_pending_revocation_may_be_committed_until_revoked() -> None:
    harness = harness_with_topic()
    harness.topics.make("u", 1)
    harness.join("a")
    harness.join("c", "u")
    harness.beat("a")
    assert harness.epochs["a"] == 2, "another topic is assigned"
    harness.join("b")
    harness.beat("a")
    assert harness.consumers.members["a"].pending_revocation == {T: (2, 3)}
    assert harness.consumers.refuse_commit("a", 1, BY_NAME, [(T, 0), (T, 3)]) is OK
    harness.beat("a")
    assert harness.consumers.refuse_commit("a", 1, BY_NAME, [(T, 3)]) is STALE


def test_reassigned_partition_has_the_later_epoch() -> None:
    harness = shared()
    harness.ask("b", -1)
    harness.gone("b")
    assert harness.beat_all("a") == {"a": [0, 1, 2, 3]}
    assert harness.epochs["a"] == 3
    assert [
        harness.consumers.refuse_commit("a", 2, BY_NAME, [(T, number)]) for number in range(4)
    ] == [OK, OK, STALE, STALE]


def test_new_coordinator_loads_assignment_epochs_from_the_log() -> None:
    harness = shared()
    other = harness.replayed_again()
    assert state_of(other) == state_of(harness)
    assert other.consumers.refuse_commit("a", 1, BY_NAME, [(T, 0)]) is OK
    assert other.consumers.refuse_commit("b", 1, BY_NAME, [(T, 2)]) is STALE


@pytest.mark.parametrize(("keeps", "epochs"), [(True, [1, 1]), (False, None)])
def test_records_contain_epochs_since_the_release_that_added_them(
    keeps: bool, epochs: list[int] | None
) -> None:
    harness = shared(keeps=keeps)
    parsed = [
        parse_record(CoordinatorTopic.CONSUMER_OFFSETS, record.key, record.value)
        for record in harness.records
    ]
    values = [
        value
        for key, value in filter(None, parsed)
        if key == ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="a")
    ]
    last = values[-1]
    assert isinstance(last, ConsumerGroupCurrentMemberAssignmentValue)
    assert [(row.partitions, row.assignment_epochs) for row in last.assigned_partitions] == [
        ([0, 1], epochs)
    ]


@pytest.mark.parametrize("epochs", [None, [1]])
def test_record_without_assignment_epochs_falls_back_to_the_member_epoch(
    epochs: list[int] | None,
) -> None:
    """A broker before 4.3 wrote it.

    A record is ignored unless it has as many epochs as partitions.
    """
    harness = shared()
    row = TopicPartitions(topic_id=T, partitions=[0, 1], assignment_epochs=epochs)
    harness.consumers.replay_current(
        "a",
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=7, previous_member_epoch=6, assigned_partitions=[row]
        ),
    )
    answers = [harness.consumers.refuse_commit("a", epoch, BY_NAME, [(T, 0)]) for epoch in (6, 7)]
    assert answers == [STALE, OK]


@pytest.mark.parametrize(
    ("number", "metadata", "error"), [(0, "", 0), (2, "", 113), (2, "x" * 5000, 12)]
)
def test_commit_is_checked_by_partition_unless_its_metadata_is_too_long(
    number: int, metadata: str, error: int
) -> None:
    harness = shared()
    waiter = harness.commit(
        5, member_id="a", generation_id=1, partition=number, metadata=metadata, version=BY_NAME
    )
    answer = harness.answers[waiter]
    assert isinstance(answer, CommitAnswer) and answer.errors == (error,)


@pytest.mark.parametrize(("number", "error"), [(0, 0), (2, 22)])
def test_transactional_commit_is_checked_by_partition(number: int, error: int) -> None:
    harness = shared()
    waiter = harness.commit_in_transaction(5, member_id="a", generation_id=1, partition=number)
    answer = harness.answers[waiter]
    assert isinstance(answer, CommitAnswer) and answer.errors == (error,)


def test_temporarily_left_static_member_passes_partitions_on_at_epoch_0() -> None:
    """ConsumerGroupMember.Builder.resetAssignedPartitionsEpochsToZero, of 4.3.1 and 4.4.0."""
    harness = harness_with_topic()
    harness.join("a", instance_id="i")
    harness.join("b")
    harness.beat("a", instance_id="i")
    assert set(harness.consumers.members["a"].assignment_epochs.values()) == {1}
    harness.ask("a", -2, instance_id="i")
    gone = harness.consumers.members["a"]
    assert gone.assignment_epochs == {(T, 0): 0, (T, 1): 0}
    harness.gone("a")
    harness.join("c", instance_id="i")
    assert harness.consumers.members["c"].member_epoch == 2
    assert [
        harness.consumers.refuse_commit("c", 0, BY_NAME, [(T, number)]) for number in (0, 1, 2)
    ] == [OK, OK, STALE]
    assert state_of(harness.replayed_again()) == state_of(harness)
