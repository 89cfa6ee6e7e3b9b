"""The ISR of a partition on its leader: the committed set, and one pending change.

A replica that is being added counts at once for the high watermark, as the controller may have
accepted already. One that is being removed counts until the controller has accepted: no record is
committed that a leader elected meanwhile could lack.
Source: KIP-497, kafka.cluster.{CommittedPartitionState, PendingExpandIsr, PendingShrinkIsr},
Partition.{prepareIsrExpand, handleAlterPartitionError}.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from protocol.errors import ErrorCode

UNCHECKED_BROKER_EPOCH: Final = -1

TAKEN_BACK: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""The controller did not change the ISR, and will not: the leader reverts to the committed set."""
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
"""The controller's state differs, and the metadata will have it: until then the proposal stays
pending, as it may have been accepted.
"""


class After(Enum):
    """The next step after the controller's response."""

    NOTHING = auto()
    RETRY = auto()
    CHANGED = auto()
    """The committed ISR changed: the high watermark may advance."""


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """The AlterPartition request: this ISR, in this order, if the partition is still at these
    epochs.

    `broker_epochs` correspond to `isr`.
    """

    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class InSyncReplicas:
    """The ISR of one leader epoch."""

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
        """The maximal ISR: all replicas that may be in the ISR by now."""
        return (
            self.agreed
            if self.proposal is None
            else (*self.agreed, *(each for each in self.proposal.isr if each not in self.agreed))
        )

    def propose(self, isr: Iterable[int], broker_epochs: Iterable[int]) -> IsrProposal:
        """Propose another ISR. One change at a time."""
        assert self.proposal is None, f"{self.proposal} is pending"
        self.proposal = IsrProposal(
            tuple(isr), tuple(broker_epochs), self.leader_epoch, self.partition_epoch
        )
        return self.proposal

    def take(self, isr: Iterable[int], partition_epoch: int) -> bool:
        """Apply the ISR of the metadata; older states are ignored. Return whether it changed."""
        if partition_epoch < self.partition_epoch or (
            partition_epoch == self.partition_epoch and self.proposal is None
        ):
            return False
        self.agreed, self.partition_epoch, self.proposal = tuple(isr), partition_epoch, None
        return True

    def on_answer(
        self, proposal: IsrProposal, *, leader_epoch: int, partition_epoch: int, isr: Iterable[int]
    ) -> After:
        """The controller accepted: the current epochs and ISR."""
        if (
            self.proposal is not proposal
            or leader_epoch != self.leader_epoch
            or partition_epoch < self.partition_epoch
        ):
            return After.NOTHING
        self.agreed, self.partition_epoch, self.proposal = tuple(isr), partition_epoch, None
        return After.CHANGED

    def on_error(self, proposal: IsrProposal, error: ErrorCode) -> After:
        """The controller refused, or is not reachable."""
        if self.proposal is not proposal or error in SETTLED_BY_METADATA:
            return After.NOTHING
        if error in TAKEN_BACK:
            self.proposal = None
            return After.NOTHING
        return After.RETRY
