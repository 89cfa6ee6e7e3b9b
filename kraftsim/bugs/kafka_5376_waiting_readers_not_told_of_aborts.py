"""A fetch that had to wait is answered without the list of aborted transactions.

A read_committed reader waits at the end of a partition; a transaction is aborted, and its records are sent: nothing says that they are to be skipped.

Source: KAFKA-5376, fixed by handing the list on where a delayed fetch completes (DelayedFetch).
"""

from kraftsim.bugs.bug import Bug
from kraftsim.node.broker.aborted_lists import AbortedLists
from kraftsim.node.broker.hosted_partition import HostedPartition
from protocol.messages.k01_fetch import AbortedTransaction


class ForgottenWhileWaiting(AbortedLists):
    """Knows what was aborted only at the first look."""

    __slots__ = ()

    def of(self, hosted: HostedPartition, first_offset: int, end_offset: int, *, has_waited: bool) -> list[AbortedTransaction] | None:
        """Name the transactions that were aborted, to who has not waited."""
        return [] if has_waited else super().of(hosted, first_offset, end_offset, has_waited=has_waited)


BUG = Bug(
    name="KAFKA-5376",
    title="a fetch that waited is not told what was aborted",
    fixed_in=("0.11.0.0",),
    swap=lambda parts: parts.replacing(aborted_lists=ForgottenWhileWaiting),
    story="exactly_once_under_faults",
    caught_by=("read-committed-reads-committed-only", "transactions-atomic"),
)
