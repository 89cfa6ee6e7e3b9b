"""Share groups in their coordinator: members, epochs, and share-partitions that begin and end with
the group (KIP-932).

Source: org.apache.kafka.coordinator.group.GroupMetadataManager.
"""

import pytest

from kraftsim.groups.rules_share_group import ShareGroup
from protocol.coordinator.share_groups import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)
from protocol.errors import ErrorCode
from tests.core.consumers_harness import id_of
from tests.core.groups_harness import GROUP
from tests.core.share_groups_harness import ShareGroupsHarness, keys_of

T = id_of("t")


@pytest.fixture
def harness() -> ShareGroupsHarness:
    made = ShareGroupsHarness()
    made.topics.make("t", 2)
    return made


def test_first_member_gets_partitions_once_their_states_are_initialized(
    harness: ShareGroupsHarness,
) -> None:
    joined = harness.beat("a", 0, "t")
    assert (joined.member_epoch, joined.assigned) == (2, {})
    assert harness.asked == [(key, 2, -1) for key in keys_of(T, 0, 1)]
    assert harness.beat("a", 2).member_epoch == 2, "the states are being initialized"
    harness.initialize()
    harness.asked.clear()
    moved = harness.beat("a", 2)
    assert (moved.member_epoch, moved.assigned) == (3, {T: (0, 1)})
    assert harness.beat("a", 3).assigned is None, "unchanged"
    assert not harness.asked


def test_join_writes_the_records_in_the_order_of_apache_kafka(harness: ShareGroupsHarness) -> None:
    harness.beat("a", 0, "t")
    keys = [type(key) for key, _ in harness.records_since(0)]
    assert keys == [
        ShareGroupMemberMetadataKey,
        ShareGroupMetadataKey,
        ShareGroupTargetAssignmentMemberKey,
        ShareGroupTargetAssignmentMetadataKey,
        ShareGroupCurrentMemberAssignmentKey,
        ShareGroupStatePartitionMetadataKey,
    ]
    assert len(harness.log) == 1, "in one batch"


def test_two_members_share_partitions_or_split_them(harness: ShareGroupsHarness) -> None:
    harness.assigned("a")
    joined = harness.beat("b", 0, "t")
    assert joined.assigned == {T: (0,)} or joined.assigned == {T: (1,)}
    (mine,) = (joined.assigned or {}).values()
    other = harness.beat("a", 3)
    assert other.assigned == {T: tuple({0, 1} - set(mine))}
    third = harness.beat("c", 0, "t")
    assert sum(map(len, (third.assigned or {}).values())) == 1, "a partition has two members"


@pytest.mark.parametrize(
    ("member_id", "epoch", "error", "why"),
    [
        ("b", 3, ErrorCode.UNKNOWN_MEMBER_ID, "Member b is not a member of group g."),
        (
            "a",
            4,
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The share group member has a greater member epoch (4) than the one known by the group "
            "coordinator (3). The member must abandon all its partitions and rejoin.",
        ),
        (
            "a",
            1,
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The share group member has a smaller member epoch (1) than the one known by the group "
            "coordinator (3), and it does not match the previous member epoch (2). The member must "
            "abandon all its partitions and rejoin.",
        ),
    ],
)
def test_stale_heartbeats_are_fenced(
    harness: ShareGroupsHarness, member_id: str, epoch: int, error: ErrorCode, why: str
) -> None:
    harness.assigned("a")
    count = len(harness.records)
    answer = harness.beat(member_id, epoch)
    assert (answer.error, answer.why) == (error, why)
    assert len(harness.records) == count


def test_previous_epoch_is_accepted_as_the_response_may_be_lost(
    harness: ShareGroupsHarness,
) -> None:
    harness.assigned("a")
    assert harness.beat("a", 2).member_epoch == 3


def test_group_has_at_most_as_many_members_as_configured() -> None:
    harness = ShareGroupsHarness(share_max_size=1)
    harness.topics.make("t", 1)
    harness.assigned("a")
    refused = harness.beat("b", 0, "t")
    assert (refused.error, refused.why) == (
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        "The share group has reached its maximum capacity of 1 members.",
    )
    assert harness.beat("a", 0, "t").error is ErrorCode.NONE, "a member may join again"


def test_heartbeats_of_unknown_groups_and_other_types_are_refused(
    harness: ShareGroupsHarness,
) -> None:
    assert harness.beat("a", 1).why == "Share group g not found."
    assert harness.beat("a", -1).why == "Group g not found."
    harness.commit(5)
    for epoch in (0, 1, -1):
        refused = harness.beat("a", epoch, "t")
        assert (refused.error, refused.why) == (
            ErrorCode.GROUP_ID_NOT_FOUND,
            "Group g is not a share group.",
        )


def test_other_protocols_are_refused_by_a_share_group(harness: ShareGroupsHarness) -> None:
    harness.assigned("a")
    waiter = harness.join("")
    assert harness.answers[waiter].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[union-attr]  # a JoinAnswer
    assert harness.committed() is None
    assert harness.deleted(harness.delete_offset()) is ErrorCode.GROUP_ID_NOT_FOUND
    waiter = harness.commit(5)
    assert harness.answers[waiter].errors == (ErrorCode.GROUP_ID_NOT_FOUND,)  # type: ignore[union-attr]  # a CommitAnswer
    assert isinstance(harness.shard.find(GROUP), ShareGroup)


def test_last_member_that_leaves_settles_the_group(harness: ShareGroupsHarness) -> None:
    harness.assigned("a")
    left = harness.beat("a", -1)
    assert (left.error, left.member_epoch) == (ErrorCode.NONE, -1)
    group = harness.share_group
    assert (group.state_name, group.group_epoch, group.assignment_epoch) == ("Empty", 4, 4)
    assert harness.shard.timers.take_due(10**9) is None
    before = ShareGroupsHarness(share_settles_empty=False)
    before.topics.make("t", 2)
    before.assigned("a")
    before.beat("a", -1)
    assert (before.share_group.group_epoch, before.share_group.assignment_epoch) == (4, 3)


def test_silent_member_is_removed_after_its_session(harness: ShareGroupsHarness) -> None:
    harness.assigned("a")
    harness.pass_time(44_999)
    assert list(harness.share_group.members) == ["a"]
    harness.pass_time(1)
    assert harness.share_group.state_name == "Empty"


def test_changed_subscription_takes_partitions_away_at_once(harness: ShareGroupsHarness) -> None:
    harness.topics.make("u", 1)
    harness.assigned("a")
    moved = harness.beat("a", 3, "u")
    assert (moved.member_epoch, moved.assigned) == (4, {})
    assert [key for key, _, _ in harness.asked] == list(keys_of(id_of("u"), 0))


def test_failed_initialization_is_tried_again_by_the_next_heartbeat(
    harness: ShareGroupsHarness,
) -> None:
    harness.beat("a", 0, "t")
    harness.initialize(succeeds=False)
    assert harness.share_group.partitions is not None
    assert not harness.share_group.partitions.initializing
    harness.beat("a", 2)
    assert [key for key, _, _ in harness.asked] == list(keys_of(T, 0, 1))


def test_unanswered_initialization_is_tried_again_after_the_interval(
    harness: ShareGroupsHarness,
) -> None:
    harness.beat("a", 0, "t")
    harness.asked.clear()
    harness.pass_time(29_999)
    harness.beat("a", 2)
    assert not harness.asked
    harness.pass_time(1)
    harness.beat("a", 2)
    assert [key for key, _, _ in harness.asked] == list(keys_of(T, 0, 1))


def test_added_partitions_begin_at_their_start_since_4_4() -> None:
    for reads_whole, start_offset in ((True, 0), (False, -1)):
        harness = ShareGroupsHarness(share_reads_added_whole=reads_whole)
        harness.topics.make("t", 1)
        harness.assigned("a")
        harness.topics.make("t", 2)
        harness.beat("a", 3)
        assert harness.asked == [(*keys_of(T, 1), 4, start_offset)]


def test_deleted_topic_is_forgotten(harness: ShareGroupsHarness) -> None:
    harness.assigned("a")
    harness.topics._counts.clear()  # the harness has no deletion
    harness.topics.version += 1
    harness.settle(harness.shard.forget_topics(lambda name: False, harness.now))
    assert not harness.share_group.initialized
    moved = harness.beat("a", 3)
    assert (moved.member_epoch, moved.assigned) == (4, {})


def test_alteration_needs_an_empty_group_and_creates_an_unknown_one() -> None:
    harness = ShareGroupsHarness()
    harness.topics.make("t", 2)
    altered = harness.alter(("t", 1, 7), ("t", 2, 8), ("u", 0, 9))
    assert altered.initial == ((*keys_of(T, 1), 1, 7),)
    assert harness.share_group.state_name == "Empty"
    harness.assigned("a")
    assert harness.alter(("t", 1, 7)).error is ErrorCode.NON_EMPTY_GROUP
    before = ShareGroupsHarness(share_alters_unknown=False)
    assert before.alter(("t", 1, 7)).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_deletion_of_offsets_goes_through_deleting(harness: ShareGroupsHarness) -> None:
    harness.topics.make("u", 1)
    harness.assigned("a")
    assert harness.delete_offsets("t").error is ErrorCode.NON_EMPTY_GROUP
    harness.beat("a", -1)
    deleting = harness.delete_offsets("t", "u", "missing")
    assert (deleting.keys, deleting.unknown) == (keys_of(T, 0, 1), ("u", "missing"))
    assert harness.share_group.partitions is not None
    assert list(harness.share_group.partitions.deleting) == [T]
    assert harness.delete_offsets("t").keys == keys_of(T, 0, 1), "tried again"
    assert harness.deleted_states(T) is ErrorCode.NONE
    assert not harness.share_group.partitions.deleting


def test_group_is_deleted_after_its_states(harness: ShareGroupsHarness) -> None:
    harness.assigned("a")
    refused = harness.begin_deletion(GROUP, "other")
    assert (refused.keys, refused.errors) == ({}, {GROUP: ErrorCode.NON_EMPTY_GROUP})
    harness.beat("a", -1)
    assert harness.begin_deletion().keys == {GROUP: keys_of(T, 0, 1)}
    assert harness.deleted(harness.delete_group()) == [ErrorCode.NONE]
    assert harness.shard.find(GROUP) is None
    assert harness.loaded_again().shard.find(GROUP) is None


def test_empty_share_group_does_not_expire(harness: ShareGroupsHarness) -> None:
    harness.assigned("a")
    harness.beat("a", -1)
    harness.pass_time(10**10)
    harness.settle(harness.shard.expire_offsets(harness.now))
    assert isinstance(harness.shard.find(GROUP), ShareGroup)


def test_another_coordinator_loads_the_same_group(harness: ShareGroupsHarness) -> None:
    harness.topics.make("u", 20)
    harness.assigned("a", "t", "u")
    harness.beat("b", 0, "u")
    harness.pass_time(1000)
    other = harness.loaded_again()
    ours, theirs = harness.share_group, other.share_group
    assert theirs.members == ours.members
    assert theirs.targets == ours.targets
    assert theirs.partitions == ours.partitions or theirs.partitions is not None
    assert (theirs.group_epoch, theirs.metadata_hash, theirs.assignment_epoch) == (
        ours.group_epoch,
        ours.metadata_hash,
        ours.assignment_epoch,
    )
    other.pass_time(45_000)
    assert theirs.is_empty, "sessions start again"


def test_heartbeat_is_answered_once_its_records_are_replicated(
    harness: ShareGroupsHarness,
) -> None:
    harness.assigned("a")
    harness.holds_back = True
    with pytest.raises(KeyError):
        harness.beat("a", -1)
    harness.store()
    assert harness.share_group.is_empty


def test_states_record_has_names_of_topics(harness: ShareGroupsHarness) -> None:
    harness.beat("a", 0, "t")
    value = harness.records_since(0)[-1][1]
    assert isinstance(value, ShareGroupStatePartitionMetadataValue)
    (row,) = value.initializing_topics
    assert (row.topic_id, row.topic_name, row.partitions) == (T, "t", [0, 1])


def test_events_name_what_the_log_says(harness: ShareGroupsHarness) -> None:
    harness.assigned("a")
    kinds = [type(event).__name__ for event in harness.events]
    assert kinds == [
        "ShareMemberSubscribed",
        "ShareMemberEpochSet",
        "SharePartitionsRecorded",
        "SharePartitionsRecorded",
        "SharePartitionInitialized",
        "SharePartitionInitialized",
        "ShareMemberEpochSet",
        "SharePartitionGiven",
        "SharePartitionGiven",
    ]
    loaded = harness.loaded_again()
    assert [type(event).__name__ for event in loaded.events] == [
        "ShareMemberSubscribed",
        "ShareMemberEpochSet",
        "SharePartitionsRecorded",
        "SharePartitionInitialized",
        "SharePartitionInitialized",
    ], "not what is assigned: what that rests on may be overwritten"
