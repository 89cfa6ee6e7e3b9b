"""Other ways to fence who commits offsets in transactions, beside the one that shipped: what KIP-447's documents say, and what they rejected.

The document fences by the generation alone, and holds everybody off while offsets are pending: who asks for stable ones and who cannot. It rejected a
copy of the assignment at the transaction coordinator, for two copies of one state drift apart: how far, is played here with a group that is judged by
what it was a while ago. Without any of it there is what the motivation describes.
Source: KIP-447 and the document of its design; GroupCoordinator.validateOffsetCommit for what shipped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from kraftsim.core.groups.classic_group import ClassicGroup, GroupState
from kraftsim.core.groups.consumer.consumer_group import ConsumerGroup
from kraftsim.core.groups.group_offsets import OffsetHolder, TopicPartition
from kraftsim.core.groups.group_shard import FoundOffset, GroupShard
from kraftsim.core.groups.moment import Moment
from kraftsim.core.groups.transactional_committing import TransactionalCommitAsked, TransactionalCommitting
from protocol.errors import ErrorCode

FENCED: Final = ErrorCode.ILLEGAL_GENERATION


class GenerationOnly(TransactionalCommitting):
    """Whoever names a generation must name the present one; who that is does not matter."""

    def refuse(self, group: ClassicGroup | ConsumerGroup, asked: TransactionalCommitAsked) -> ErrorCode | None:
        """Return why a group does not take offsets: ILLEGAL_GENERATION."""
        if isinstance(group, ConsumerGroup) or group.is_in(GroupState.DEAD):
            return super().refuse(group, asked)
        return FENCED if asked.generation_id >= 0 and asked.generation_id != group.generation_id else None


class CopiedAssignment(TransactionalCommitting):
    """Judges by what the group was `delay_ms` ago, as a coordinator does that hears of assignments from another one."""

    delay_ms: ClassVar[int] = 1000
    _now_ms = 0

    def commit(self, group: ClassicGroup | ConsumerGroup, waiter: int, asked: TransactionalCommitAsked, now: Moment) -> None:
        """Take offsets, or say why not."""
        self._now_ms = now.wall_ms
        super().commit(group, waiter, asked, now)

    def refuse(self, group: ClassicGroup | ConsumerGroup, asked: TransactionalCommitAsked) -> ErrorCode | None:
        """Return why a group does not take offsets: ILLEGAL_GENERATION of the copy."""
        if isinstance(group, ConsumerGroup) or group.is_in(GroupState.DEAD):
            return super().refuse(group, asked)
        return FENCED if asked.generation_id >= 0 and asked.generation_id != self._told_generation(group) else None

    def _told_generation(self, group: ClassicGroup) -> int:
        """Return the generation whose assignment has arrived: of the present one it does so some time after all members have it."""
        is_new = group.is_in(GroupState.STABLE) and self._now_ms - group.state_since_ms < self.delay_ms
        return group.generation_id - 1 if is_new or group.is_in(GroupState.COMPLETING_REBALANCE) else group.generation_id


class Unfenced(TransactionalCommitting):
    """Takes whatever comes."""

    def refuse(self, group: ClassicGroup | ConsumerGroup, asked: TransactionalCommitAsked) -> ErrorCode | None:
        """Refuse nobody."""
        return None


class GroupsOfTheDocument(GroupShard):
    """Old consumers, who cannot ask for stable offsets, are told COORDINATOR_LOAD_IN_PROGRESS while any are pending."""

    transactional_committing_class = GenerationOnly

    def withholds(self, group: OffsetHolder, partition: TopicPartition, *, require_stable: bool) -> bool:
        """Tell nobody what may be replaced."""
        return super().withholds(group, partition, require_stable=True)

    def fetch_offsets(self, group_id: str, partitions: Sequence[TopicPartition] | None, *, require_stable: bool) -> list[FoundOffset]:
        """Return the committed offsets of partitions."""
        found = super().fetch_offsets(group_id, partitions, require_stable=require_stable)
        held = ErrorCode.UNSTABLE_OFFSET_COMMIT if require_stable else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return [replace(each, error=held) if each.error is ErrorCode.UNSTABLE_OFFSET_COMMIT else each for each in found]


class GroupsOfCopies(GroupShard):
    """Judged by a copy of their assignment."""

    transactional_committing_class = CopiedAssignment


class UnfencedGroups(GroupShard):
    """Groups of before KIP-447: nobody is fenced, and nothing is withheld."""

    transactional_committing_class = Unfenced

    def withholds(self, group: OffsetHolder, partition: TopicPartition, *, require_stable: bool) -> bool:
        """Withhold nothing."""
        return False


FENCINGS: Final[Mapping[str, type[GroupShard]]] = {
    "document": GroupsOfTheDocument,
    "copied-assignment": GroupsOfCopies,
    "none": UnfencedGroups,
}
"""By the name that `kraftsim.offset.fencing` gives them; without one it is as shipped."""
