"""One member of a consumer group: subscription, epochs, assigned partitions, and partitions pending
revocation.

Source: KIP-848, org.apache.kafka.coordinator.group.modern.consumer.{ConsumerGroupMember,
MemberState}.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from kraftsim.core.groups.consumer.server_assignors import Shares
from kraftsim.core.groups.member import Protocols

LEFT_FOR_A_WHILE: Final = -2
"""The member epoch of a static member that has left and will return."""


class MemberState(IntEnum):
    """The reconciliation state of a member; the numbers are those of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to revoke partitions."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have not released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicTerms:
    """The classic-protocol properties of a member, in a group that migrates between the
    protocols.
    """

    session_timeout_ms: int
    protocols: Protocols

    @property
    def protocol_name(self) -> str:
        """The protocol returned to the member: its own first one, as the coordinator assigns."""
        return self.protocols[0][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """A member, as its records have it; `rebalance_timeout_ms` -1 and `server_assignor` None are
    unset.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_names: tuple[str, ...] = ()
    subscribed_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Shares = field(default_factory=dict)
    pending_revocation: Shares = field(default_factory=dict)
    assignment_epochs: Mapping[tuple[bytes, int], int] = field(default_factory=dict)
    """By topic id and partition: the epoch in which each assigned or pending-revocation partition
    was assigned (KIP-1251).
    """
    classic: ClassicTerms | None = None
    """None for a member that uses the consumer protocol."""

    def assignment_epoch(self, topic_id: bytes, number: int) -> int:
        """Return the epoch in which an assigned or pending-revocation partition was assigned; the
        current member epoch for any other.
        """
        return self.assignment_epochs.get((topic_id, number), max(self.member_epoch, 0))

    def gone_for_a_while(self) -> "ConsumerMember":
        """Return a static member that has left temporarily: its next incarnation may commit its
        partitions in any epoch since 0.
        """
        epochs = {
            (topic_id, number): 0
            for topic_id, numbers in self.assigned.items()
            for number in numbers
        }
        return replace(
            self, member_epoch=LEFT_FOR_A_WHILE, pending_revocation={}, assignment_epochs=epochs
        )

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether its current assignment is its target at an epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    @property
    def has_left_for_a_while(self) -> bool:
        """Whether it is a static member that has left temporarily."""
        return self.member_epoch == LEFT_FOR_A_WHILE
