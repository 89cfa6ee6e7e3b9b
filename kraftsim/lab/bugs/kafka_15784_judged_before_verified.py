"""A group validates a transactional commit, waits for the transaction coordinator, and appends
without validating again.

In between the group rebalances: the offsets of a member that has lost its partitions are accepted,
and the new owners process the same records again.

Source: KAFKA-15784, fixed by validating and appending in one step after the verification
(GroupCoordinator.handleTxnCommitOffsets).
"""

from typing import TYPE_CHECKING

from kraftsim.groups.rules_committing import (
    TransactionalCommitInput,
    TransactionalCommitting,
)
from kraftsim.groups.rules_offsets import OffsetHolder
from kraftsim.groups.rules_shard import GroupShard
from kraftsim.groups.rules_timing import GroupMoment
from kraftsim.groups.transactional_commits import TransactionalCommits
from kraftsim.lab.bugs.bug import Bug
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kraftsim.groups.coordinated_partition import CoordinatedPartition


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


BUG = Bug(
    name="KAFKA-15784",
    title="a transactional offset commit is validated before the verification, not after it",
    fixed_in=("3.7.0",),
    swap=lambda parts: parts.replacing(
        transactional_commits=ValidatesFirst, group_shard=GroupsWithEarlyValidation
    ),
    scenario="zombie_fenced_by_generation",
    caught_by=("each-input-processed-once",),
)
