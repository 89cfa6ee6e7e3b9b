"""Bugs of offsets that a group commits in transactions.

Such an offset is pending until the marker of its transaction arrives. Meanwhile other members may
fetch or commit offsets of the same partition, and the group may rebalance: a stale or early answer
lets two members process the same records.
"""

from typing import TYPE_CHECKING

from kraftsim.groups.rules_committing import TransactionalCommitInput, TransactionalCommitting
from kraftsim.groups.rules_offsets import (
    CommittedOffset,
    GroupOffsets,
    OffsetHolder,
    TopicPartition,
)
from kraftsim.groups.rules_shard import GroupShard
from kraftsim.groups.rules_timing import GroupMoment
from kraftsim.groups.transactional_commits import TransactionalCommits
from kraftsim.lab.bugs.bug import Bug
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kraftsim.groups.coordinated_partition import CoordinatedPartition


KAFKA_5247 = Bug(
    name="KAFKA-5247",
    title="transactional offsets apply in the order of markers, not of the log",
    about="""The offsets of a transaction apply in the order of markers, regardless of later
        commits.

        A group commits offset 5 in a transaction and 7 outside of it, then the transaction ends:
        the coordinator returns 5. After a load from the log it returns 7, which is after 5.

        Source: KAFKA-5247, fixed by comparing the log positions of the commits
        (GroupMetadata.completePendingTxnOffsetCommit).
        """,
    fixed_in=("0.11.0.0", "1.0.0"),
    swap=lambda parts: parts.replacing(group_shard=GroupsOfMarkers),
    scenario="offset_commits_pre_and_post_kip_447",
    caught_by=(
        "group-offsets-equal-log",
        "loaded-offsets-equal-log",
    ),
)


class LatestMarkerWins(GroupOffsets):
    """Ignores the log position of a commit."""

    __slots__ = ()

    def materialise(self, partition: TopicPartition, stored: CommittedOffset) -> bool:
        """Apply a pending offset."""
        self.committed[partition] = stored  # right: only if no later commit is in the log
        return True


class GroupsOfMarkers(GroupShard):
    """Stores offsets this way."""

    offsets_class = LatestMarkerWins


KAFKA_9346 = Bug(
    name="KAFKA-9346",
    title="OffsetFetch with require_stable returns offsets with a pending transactional commit",
    about="""A consumer that fetches stable offsets gets the previous offset while an open
        transaction may replace it.

        The group has assigned a partition to another member; the previous owner has committed its
        offsets in a transaction that is still open. Both process the same records.

        Source: KAFKA-9346, what KIP-447 added: UNSTABLE_OFFSET_COMMIT
        (GroupMetadataManager.getOffsets).
        """,
    fixed_in=("2.5.0",),
    swap=lambda parts: parts.replacing(group_shard=ReturnsUnstableOffsets),
    scenario="exactly_once_under_faults",
    caught_by=("fetched-offsets-stable", "each-input-processed-once"),
)


class ReturnsUnstableOffsets(GroupShard):
    """Ignores require_stable."""

    def withholds(
        self, group: OffsetHolder, partition: TopicPartition, *, require_stable: bool
    ) -> bool:
        """Return every offset."""
        # right: an offset that a transaction may replace is not returned to a client that requires
        # stable offsets
        return False


KAFKA_15784 = Bug(
    name="KAFKA-15784",
    title="a transactional offset commit is validated before the verification, not after it",
    about="""A group validates a transactional commit, waits for the transaction coordinator,
        and appends without validating again.

        In between the group rebalances: the offsets of a member that has lost its partitions are
        accepted, and the new owners process the same records again. Where the new owners have
        committed already, the committed offset goes back behind them, and stays there: they have
        nothing left to commit.

        Source: KAFKA-15784, fixed by validating and appending in one step after the verification
        (GroupCoordinator.handleTxnCommitOffsets).
        """,
    fixed_in=("3.7.0",),
    swap=lambda parts: parts.replacing(
        transactional_commits=ValidatesFirst, group_shard=GroupsWithEarlyValidation
    ),
    scenario="zombie_fenced_by_generation",
    caught_by=("each-input-processed-once", "recovers-after-heal"),
)


class ValidatesFirst(TransactionalCommits):
    """Validates in the group before the coordinator verifies."""

    def check_early(
        self, led: "CoordinatedPartition", asked: TransactionalCommitInput
    ) -> ErrorCode | None:
        """Return the error of the group at this point, if any."""
        return led.shard.refuse_in_transaction(asked, led.now())


class AppendsWithoutValidation(TransactionalCommitting):
    """Appends without validation."""

    def commit(
        self, group: OffsetHolder, waiter: int, asked: TransactionalCommitInput, now: GroupMoment
    ) -> None:
        """Append the offsets."""
        self._store(
            group, waiter, asked, now
        )  # right: ask `refuse` here, in one step with the append


class GroupsWithEarlyValidation(GroupShard):
    """Appends transactional commits this way."""

    transactional_committing_class = AppendsWithoutValidation


KAFKA_19163 = Bug(
    name="KAFKA-19163",
    title="a group with nothing but pending transactional offsets is deleted",
    about="""The check for expired offsets deletes a group that has neither members nor committed
        offsets, although offsets of an open transaction are pending.

        The transaction commits successfully, and its offsets are nowhere: the application processes
        the same records again.

        Source: KAFKA-19163, KAFKA-19164; affects Apache Kafka 4.0.0, fixed by looking at pending
        offsets, too (OffsetMetadataManager.cleanupExpiredOffsets).
        """,
    fixed_in=("4.0.1", "4.1.0"),
    swap=lambda parts: parts.replacing(group_shard=GroupsWithoutPendingOffsets),
    scenario="transaction_of_group_without_members",
    caught_by=("committed-offsets-returned", "pending-offsets-do-not-expire"),
)


class IgnoresPendingOffsets(GroupOffsets):
    """Counts committed offsets only."""

    @property
    def is_empty(self) -> bool:
        """Whether no offset is committed."""
        return not self.committed  # right: nor in flight, nor pending in a transaction


class GroupsWithoutPendingOffsets(GroupShard):
    """Stores offsets this way."""

    offsets_class = IgnoresPendingOffsets


BUGS = (
    KAFKA_5247,
    KAFKA_9346,
    KAFKA_15784,
    KAFKA_19163,
)
