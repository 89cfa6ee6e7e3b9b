"""A group judges a transactional commit, waits for the transaction's coordinator, and writes without judging again.

Between the two the group is rebalanced: the offsets of a member that has lost its partitions are taken, and whoever reads them now reads them again.

Source: KAFKA-15784, fixed by judging and writing in one step after the verification (GroupCoordinator.handleTxnCommitOffsets).
"""

from typing import TYPE_CHECKING

from kraftsim.bugs.bug import Bug
from kraftsim.core.groups.group_offsets import OffsetHolder
from kraftsim.core.groups.group_shard import GroupShard
from kraftsim.core.groups.moment import Moment
from kraftsim.core.groups.transactional_committing import TransactionalCommitAsked, TransactionalCommitting
from kraftsim.node.broker.groups.transactional_commits import TransactionalCommits
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kraftsim.node.broker.groups.coordinated_partition import CoordinatedPartition


class JudgesFirst(TransactionalCommits):
    """Asks the group before it asks the coordinator."""

    def judge_early(self, led: "CoordinatedPartition", asked: TransactionalCommitAsked) -> ErrorCode | None:
        """Return why the group refuses now."""
        return led.shard.refuse_in_transaction(asked, led.now())


class WasJudged(TransactionalCommitting):
    """Writes what comes."""

    def commit(self, group: OffsetHolder, waiter: int, asked: TransactionalCommitAsked, now: Moment) -> None:
        """Take offsets."""
        self._store(group, waiter, asked, now)  # right: ask `refuse` here, in one step with the append


class GroupsThatWereAsked(GroupShard):
    """Writes transactional commits so."""

    transactional_committing_class = WasJudged


BUG = Bug(
    name="KAFKA-15784",
    title="a group judges a transactional commit, and writes it when it may have changed its mind",
    fixed_in=("3.7.0",),
    swap=lambda parts: parts.replacing(transactional_commits=JudgesFirst, group_shard=GroupsThatWereAsked),
    story="zombie_fenced_by_generation",
    caught_by=("every-input-copied-once",),
)
