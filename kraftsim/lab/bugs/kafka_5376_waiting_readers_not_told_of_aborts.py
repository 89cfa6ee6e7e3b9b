"""A delayed fetch is answered without the list of aborted transactions.

A read_committed consumer waits at the end of a partition; a transaction is aborted, and its records
are returned without the aborted transaction that would make the consumer skip them.

Source: KAFKA-5376, fixed by returning the list when a delayed fetch completes (DelayedFetch).
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.partitions.fetch_responses import AbortedLists
from kraftsim.partitions.hosted_partition import HostedPartition
from protocol.messages.k01_fetch import AbortedTransaction


class OmittedAfterDelay(AbortedLists):
    """Returns aborted transactions only for fetches that complete at once."""

    __slots__ = ()

    def of(
        self, hosted: HostedPartition, first_offset: int, end_offset: int, *, has_waited: bool
    ) -> list[AbortedTransaction] | None:
        """Return the aborted transactions if the fetch was not delayed."""
        return (
            []
            if has_waited
            else super().of(hosted, first_offset, end_offset, has_waited=has_waited)
        )


BUG = Bug(
    name="KAFKA-5376",
    title="a delayed fetch returns no aborted transactions",
    fixed_in=("0.11.0.0",),
    swap=lambda parts: parts.replacing(aborted_lists=OmittedAfterDelay),
    scenario="exactly_once_under_faults",
    caught_by=("read-committed-isolation", "transactions-atomic"),
)
