"""Variants of fencing for offset commits in transactions, besides the shipped one: KIP-447's design
document, and its rejected alternative.

The document fences by generation only, and withholds pending offsets from every consumer, with or
without require_stable. It rejected a copy of the assignment at the transaction coordinator, as two
copies of one state diverge; a group with a delayed view of itself shows by how much. Without any
fencing there is the problem that the motivation of the KIP describes.
Source: KIP-447 and the document of its design; GroupCoordinator.validateOffsetCommit for what
shipped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from kraftsim.groups.rules_classic_group import ClassicGroup, GroupState
from kraftsim.groups.rules_committing import TransactionalCommitInput, TransactionalCommitting
from kraftsim.groups.rules_group_table import Group
from kraftsim.groups.rules_offsets import OffsetHolder, TopicPartition
from kraftsim.groups.rules_shard import FoundOffset, GroupShard
from kraftsim.groups.rules_timing import GroupMoment
from protocol.errors import ErrorCode

FENCED: Final = ErrorCode.ILLEGAL_GENERATION


class GenerationOnly(TransactionalCommitting):
    """A request with a generation must have the current one; the member id is not checked."""

    def refuse(self, group: Group, asked: TransactionalCommitInput) -> ErrorCode | None:
        """Return the error of a commit: ILLEGAL_GENERATION."""
        if not isinstance(group, ClassicGroup) or group.is_in(GroupState.DEAD):
            return super().refuse(group, asked)
        return (
            FENCED
            if asked.generation_id >= 0 and asked.generation_id != group.generation_id
            else None
        )


class DelayedAssignment(TransactionalCommitting):
    """Validates against the group as of `delay_ms` ago, like a coordinator with a replicated
    assignment.
    """

    delay_ms: ClassVar[int] = 1000
    _now_ms = 0

    def commit(
        self,
        group: Group,
        waiter: int,
        asked: TransactionalCommitInput,
        now: GroupMoment,
    ) -> None:
        """Commit offsets, or reply with an error."""
        self._now_ms = now.wall_ms
        super().commit(group, waiter, asked, now)

    def refuse(self, group: Group, asked: TransactionalCommitInput) -> ErrorCode | None:
        """Return the error of a commit: ILLEGAL_GENERATION of the delayed view."""
        if not isinstance(group, ClassicGroup) or group.is_in(GroupState.DEAD):
            return super().refuse(group, asked)
        return (
            FENCED
            if asked.generation_id >= 0 and asked.generation_id != self._delayed_generation(group)
            else None
        )

    def _delayed_generation(self, group: ClassicGroup) -> int:
        """Return the generation of the delayed view: the current one is visible `delay_ms` after
        the group is stable.
        """
        is_new = (
            group.is_in(GroupState.STABLE) and self._now_ms - group.state_since_ms < self.delay_ms
        )
        return (
            group.generation_id - 1
            if is_new or group.is_in(GroupState.COMPLETING_REBALANCE)
            else group.generation_id
        )


class Unfenced(TransactionalCommitting):
    """Accepts every commit."""

    def refuse(self, group: Group, asked: TransactionalCommitInput) -> ErrorCode | None:
        """Accept every commit."""
        return None


class DesignDocumentGroups(GroupShard):
    """Old consumers, which cannot request stable offsets, receive COORDINATOR_LOAD_IN_PROGRESS
    while offsets are pending.
    """

    transactional_committing_class = GenerationOnly

    def withholds(
        self, group: OffsetHolder, partition: TopicPartition, *, require_stable: bool
    ) -> bool:
        """Withhold pending offsets from every consumer."""
        return super().withholds(group, partition, require_stable=True)

    def fetch_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition] | None, *, require_stable: bool
    ) -> list[FoundOffset]:
        """Return the committed offsets of partitions."""
        found = super().fetch_offsets(group_id, partitions, require_stable=require_stable)
        held = (
            ErrorCode.UNSTABLE_OFFSET_COMMIT
            if require_stable
            else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        )
        return [
            replace(each, error=held) if each.error is ErrorCode.UNSTABLE_OFFSET_COMMIT else each
            for each in found
        ]


class GroupsOfCopiedAssignments(GroupShard):
    """Validate commits against a delayed copy of the assignment."""

    transactional_committing_class = DelayedAssignment


class UnfencedGroups(GroupShard):
    """Groups without KIP-447: no fencing, and no offset is withheld."""

    transactional_committing_class = Unfenced

    def withholds(
        self, group: OffsetHolder, partition: TopicPartition, *, require_stable: bool
    ) -> bool:
        """Withhold nothing."""
        return False


FENCINGS: Final[Mapping[str, type[GroupShard]]] = {
    "document": DesignDocumentGroups,
    "copied-assignment": GroupsOfCopiedAssignments,
    "none": UnfencedGroups,
}
"""By the value of `kraftsim.offset.fencing`; without it the shipped behaviour."""
