"""Offsets committed in transactions: who may commit, when they take effect, and what readers
receive meanwhile.
Source: KIP-98, KIP-447.
"""

from typing import TypedDict

import pytest

from kraftsim.groups.events import (
    OffsetCommitted,
    OffsetLoaded,
    OffsetMaterialised,
    PendingOffsetAdded,
    PendingOffsetDropped,
)
from kraftsim.groups.rules_offsets import CommittedOffset, GroupOffsets
from kraftsim.groups.rules_shard import GroupShard
from kraftsim.groups.rules_timing import CommitAnswer
from protocol.errors import ErrorCode
from tests.core.groups_harness import GROUP, PRODUCER_ID, GroupsHarness
from tools.claims.recording import Figures

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
RETENTION_MS = 10080 * 60_000


@pytest.mark.parametrize(
    ("member_id", "generation_id", "instance", "error"),
    [
        ("c-1", 1, None, ErrorCode.NONE),
        ("c-1", 0, None, ErrorCode.ILLEGAL_GENERATION),
        ("c-1", 2, None, ErrorCode.ILLEGAL_GENERATION),
        ("c-1", -1, None, ErrorCode.ILLEGAL_GENERATION),
        ("x", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, None, ErrorCode.NONE),
        ("i-s", 1, "i", ErrorCode.NONE),
        ("i-s", 0, "i", ErrorCode.ILLEGAL_GENERATION),
        ("c-1", 1, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("", -1, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("i-s", 1, "other", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_named_member_must_belong_to_the_current_generation(
    member_id: str, generation_id: int, instance: str | None, error: ErrorCode, figures: Figures
) -> None:
    """KIP-447.

    A commit that names none is not fenced: old clients, and producers without a group.
    """
    harness = GroupsHarness()
    waiters = [harness.join(fresh="1"), harness.join(fresh="s", instance="i")]
    harness.pass_time(6000)
    assert [harness.joined(each).generation_id for each in waiters] == [1, 1]
    harness.sync("c-1", 1, c_1=b"", i_s=b"")
    waiter = harness.commit_in_transaction(
        5, member_id=member_id, generation_id=generation_id, instance=instance
    )
    assert harness.answers[waiter] == CommitAnswer((error,))
    assert harness.committed(require_stable=True) == (UNSTABLE if error is ErrorCode.NONE else None)
    if member_id == "c-1" and instance is None:
        figures(**{f"member_in_generation_{generation_id}".replace("-", "minus_"): int(error)})


@pytest.mark.parametrize(
    ("member_id", "generation_id", "instance", "error"),
    [
        ("", -1, None, ErrorCode.NONE),
        ("anybody", -1, "any", ErrorCode.NONE),
        ("", 0, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", 3, None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_empty_group_accepts_commits_without_a_generation(
    member_id: str, generation_id: int, instance: str | None, error: ErrorCode, figures: Figures
) -> None:
    harness = GroupsHarness()
    waiter = harness.commit_in_transaction(
        5, member_id=member_id, generation_id=generation_id, instance=instance
    )
    assert harness.answers[waiter] == CommitAnswer((error,))
    assert GROUP in harness.shard.groups, (
        "the coordinator of 3.9 creates the group before it rejects the commit"
    )
    figures(**{f"generation_{generation_id}".replace("-", "minus_"): int(error)})


def test_pending_rebalance_rejects_no_commit() -> None:
    harness = GroupsHarness()
    waiter = harness.join(fresh="1")
    harness.pass_time(3000)
    committed = harness.commit_in_transaction(
        5, member_id="c-1", generation_id=harness.joined(waiter).generation_id
    )
    assert harness.answers[committed] == CommitAnswer((ErrorCode.NONE,))


def test_transactional_commit_does_not_renew_the_session() -> None:
    harness = GroupsHarness()
    harness.stable("1")
    harness.pass_time(9_000)
    harness.commit_in_transaction(5, member_id="c-1", generation_id=1)
    harness.pass_time(2_000)
    assert harness.member_ids == []


def test_too_long_metadata_is_rejected() -> None:
    harness = GroupsHarness(offset_metadata_max_bytes=3)
    assert harness.answers[harness.commit_in_transaction(5, metadata="abcd")] == CommitAnswer(
        (ErrorCode.OFFSET_METADATA_TOO_LARGE,)
    )
    assert harness.committed(require_stable=True) is None


@pytest.mark.parametrize(("commits", "expected"), [(True, 7), (False, 5)])
def test_marker_decides_and_until_then_only_unstable_reads_succeed(
    commits: bool, expected: int, figures: Figures
) -> None:
    harness = GroupsHarness()
    harness.commit(5)
    harness.commit_in_transaction(7)
    offsets = [
        (each.committed(), each.committed(require_stable=True))
        for each in (harness, harness.reloaded())
    ]
    assert offsets == [(5, UNSTABLE)] * 2
    other = harness.reloaded()
    for each in (harness, other):
        each.end_transaction(commits=commits)
    assert [
        each.committed(require_stable=True) for each in (harness, other, harness.reloaded())
    ] == [expected] * 3
    figures(
        offset_returned=offsets[0][0],
        **{"after_commit" if commits else "after_abort": harness.committed(require_stable=True)},
    )


@pytest.mark.parametrize("commits", [True, False])
def test_later_of_a_pending_and_a_plain_commit_wins(commits: bool) -> None:
    """KAFKA-5247: the order of the records decides, not that of the marker."""
    harness = GroupsHarness()
    harness.commit_in_transaction(5)
    harness.commit(7)
    harness.end_transaction(commits=commits)
    assert [each.committed(require_stable=True) for each in (harness, harness.reloaded())] == [7, 7]


def test_later_record_wins_whichever_transaction_ends_last() -> None:
    harness = GroupsHarness()
    harness.commit_in_transaction(5, producer_id=1)
    harness.commit_in_transaction(6, producer_id=2)
    harness.end_transaction(commits=True, producer_id=2)
    assert harness.committed(require_stable=True) is UNSTABLE, "the other transaction is still open"
    harness.end_transaction(commits=True, producer_id=1)
    assert [each.committed(require_stable=True) for each in (harness, harness.reloaded())] == [6, 6]


def test_second_of_two_commits_in_one_transaction_wins() -> None:
    harness = GroupsHarness()
    harness.commit_in_transaction(5)
    harness.commit_in_transaction(6)
    harness.end_transaction(commits=True)
    assert [each.committed(require_stable=True) for each in (harness, harness.reloaded())] == [6, 6]


def test_marker_without_pending_offsets_changes_nothing() -> None:
    harness = GroupsHarness()
    harness.commit(5)
    harness.end_transaction(commits=False)
    harness.commit_in_transaction(6)
    harness.end_transaction(commits=True)
    harness.end_transaction(commits=False)
    assert [each.committed(require_stable=True) for each in (harness, harness.reloaded())] == [6, 6]


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_failed_write_is_not_pending(error: ErrorCode, answer: ErrorCode) -> None:
    harness = GroupsHarness()
    harness.holds_back = True
    waiter = harness.commit_in_transaction(6)
    assert harness.committed(require_stable=True) is UNSTABLE
    harness.store(error)
    assert harness.answers[waiter] == CommitAnswer((answer,))
    assert harness.committed(require_stable=True) is None


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    ("ends", "expected"), [(ErrorCode.NONE, 6), (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)]
)
def test_timed_out_commit_is_rejected_but_pending_once_replicated(
    ends: ErrorCode, expected: int | None, times: int
) -> None:
    harness = GroupsHarness()
    harness.holds_back = True
    waiter = harness.commit_in_transaction(6)
    for _ in range(times):
        harness.store(ErrorCode.REQUEST_TIMED_OUT)
    assert harness.answers[waiter] == CommitAnswer((ErrorCode.REQUEST_TIMED_OUT,))
    harness.store(ends)
    harness.end_transaction(commits=True)
    assert harness.committed(require_stable=True) == expected


def test_marker_does_not_end_later_records() -> None:
    harness = GroupsHarness()
    harness.commit_in_transaction(5)
    harness.commit_in_transaction(6, partition=1)
    harness.shard.end_transaction(PRODUCER_ID, 0, 1, is_commit=True)
    assert (harness.committed(), harness.committed(1, require_stable=True)) == (5, UNSTABLE)


def test_offset_with_a_pending_replacement_does_not_expire() -> None:
    harness = GroupsHarness()
    harness.commit(5)
    harness.commit_in_transaction(7)
    harness.pass_time(RETENTION_MS)
    harness.settle(harness.shard.expire_offsets(harness.now))
    assert harness.committed() == 5
    harness.end_transaction(commits=True)
    harness.shard.expire_offsets(harness.now)
    assert harness.committed() is None


@pytest.mark.parametrize("how", ["offset", "group", "topic"])
def test_offset_deleted_during_its_transaction_never_takes_effect(how: str) -> None:
    harness = GroupsHarness()
    harness.commit_in_transaction(7)
    match how:
        case "offset":
            assert harness.deleted(harness.delete_offset()) == [ErrorCode.NONE]
        case "group":
            assert harness.deleted(harness.delete_group()) == [ErrorCode.NONE]
        case _:
            harness.settle(harness.shard.forget_topics(lambda topic: False, harness.now))
    harness.end_transaction(commits=True)
    assert [each.committed(require_stable=True) for each in (harness, harness.reloaded())] == [
        None,
        None,
    ]


class PartitionOfGroup(TypedDict):
    """The fields that all events of an offset have."""

    coordinator_partition: int
    group_id: str
    topic: str
    partition: int


class PartitionOfTransaction(PartitionOfGroup):
    """The fields that the events of a pending offset have."""

    producer_epoch: int


def test_every_step_of_an_offset_emits_an_event() -> None:
    harness = GroupsHarness()
    harness.commit(5)
    harness.commit_in_transaction(6, producer_id=1)
    harness.commit_in_transaction(7, producer_id=2)
    harness.commit(8)
    harness.end_transaction(commits=True, producer_id=1)
    harness.end_transaction(commits=False, producer_id=2)
    harness.commit_in_transaction(9)
    row: PartitionOfGroup = {
        "coordinator_partition": 7,
        "group_id": GROUP,
        "topic": "t",
        "partition": 0,
    }
    by: PartitionOfTransaction = {"producer_epoch": 0, **row}
    assert harness.events == [
        OffsetCommitted(offset=5, record_offset=0, is_current=True, **row),
        PendingOffsetAdded(offset=6, record_offset=1, producer_id=1, transactional_id="x", **by),
        PendingOffsetAdded(offset=7, record_offset=2, producer_id=2, transactional_id="x", **by),
        OffsetCommitted(offset=8, record_offset=3, is_current=True, **row),
        OffsetMaterialised(
            offset=6, record_offset=1, producer_id=1, marker_offset=4, is_current=False, **by
        ),
        PendingOffsetDropped(offset=7, record_offset=2, producer_id=2, marker_offset=5, **by),
        PendingOffsetAdded(
            offset=9, record_offset=6, producer_id=PRODUCER_ID, transactional_id="x", **by
        ),
    ]
    assert harness.reloaded().events == [
        OffsetLoaded(offset=8, record_offset=3, **row),
        OffsetLoaded(offset=9, record_offset=6, producer_id=PRODUCER_ID, **row),
    ]


def test_rules_can_be_replaced_by_the_former_ones() -> None:
    """KAFKA-5247 and KAFKA-9346, as injected bugs."""

    class InOrderOfMarkers(GroupOffsets):
        def materialise(self, partition: tuple[str, int], stored: CommittedOffset) -> bool:
            self.committed[partition] = stored
            return True

    class NeverWithholds(GroupShard):
        offsets_class = InOrderOfMarkers

        def withholds(
            self, group: object, partition: tuple[str, int], *, require_stable: bool
        ) -> bool:
            return False

    harness = GroupsHarness(NeverWithholds)
    harness.commit_in_transaction(5)
    harness.commit(7)
    assert harness.committed(require_stable=True) == 7
    harness.end_transaction(commits=True)
    assert harness.committed(require_stable=True) == 5
