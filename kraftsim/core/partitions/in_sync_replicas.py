"""The in-sync replicas of a partition as its leader knows them: what the controller has agreed to, and the one change that it was asked for.

A replica that shall join counts at once where a record must be, for the controller may have agreed already. One that shall leave counts until the
controller has agreed: no record is called committed that a leader elected meanwhile could lack.
Source: KIP-497, kafka.cluster.{CommittedPartitionState, PendingExpandIsr, PendingShrinkIsr}, Partition.{prepareIsrExpand, handleAlterPartitionError}.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from protocol.errors import ErrorCode

UNCHECKED_BROKER_EPOCH: Final = -1

TAKEN_BACK: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""The controller did nothing, and will not: the leader may go on from what was agreed before."""
SETTLED_BY_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""Something else was decided, which the metadata will tell: until then the proposal stands, for it may be what was decided."""


class After(Enum):
    """What the leader does once the controller has answered."""

    NOTHING = auto()
    RETRY = auto()
    CHANGED = auto()
    """There is a new agreed set: the high watermark may move."""


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """What the controller is asked for: this set, in this order, if the partition is still at these epochs. `broker_epochs` stand beside `isr`."""

    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class InSyncReplicas:
    """One leader's knowledge of the set, for one leader epoch."""

    __slots__ = ("agreed", "leader_epoch", "partition_epoch", "proposal")

    def __init__(self, isr: Iterable[int], *, leader_epoch: int, partition_epoch: int) -> None:
        self.agreed = tuple(isr)
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.proposal: IsrProposal | None = None

    def __contains__(self, replica_id: int) -> bool:
        return replica_id in self.agreed

    def __len__(self) -> int:
        return len(self.agreed)

    @property
    def maximal(self) -> tuple[int, ...]:
        """Everybody who may be in the set by now."""
        return self.agreed if self.proposal is None else (*self.agreed, *(each for each in self.proposal.isr if each not in self.agreed))

    def propose(self, isr: Iterable[int], broker_epochs: Iterable[int]) -> IsrProposal:
        """Ask for another set. One change at a time."""
        assert self.proposal is None, f"{self.proposal} is under way"
        self.proposal = IsrProposal(tuple(isr), tuple(broker_epochs), self.leader_epoch, self.partition_epoch)
        return self.proposal

    def take(self, isr: Iterable[int], partition_epoch: int) -> bool:
        """Learn from the metadata what was agreed; what is older than what is known says nothing. Tell whether it was news."""
        if partition_epoch < self.partition_epoch or (partition_epoch == self.partition_epoch and self.proposal is None):
            return False
        self.agreed, self.partition_epoch, self.proposal = tuple(isr), partition_epoch, None
        return True

    def on_answer(self, proposal: IsrProposal, *, leader_epoch: int, partition_epoch: int, isr: Iterable[int]) -> After:
        """The controller agreed: these are the epochs and the set as they are now."""
        if self.proposal is not proposal or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return After.NOTHING
        self.agreed, self.partition_epoch, self.proposal = tuple(isr), partition_epoch, None
        return After.CHANGED

    def on_error(self, proposal: IsrProposal, error: ErrorCode) -> After:
        """The controller refused, or could not be asked."""
        if self.proposal is not proposal or error in SETTLED_BY_METADATA:
            return After.NOTHING
        if error in TAKEN_BACK:
            self.proposal = None
            return After.NOTHING
        return After.RETRY
