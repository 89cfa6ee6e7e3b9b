"""The aborted-transaction list of a Fetch response, by which read_committed consumers skip aborted
records.

The list is built each time the log is read, for exactly the range that was read: the response of a
Fetch that waited in purgatory includes transactions aborted in the meantime (KAFKA-5376).
Source: UnifiedLog.collectAbortedTransactions, kafka.server.DelayedFetch.
"""

from kraftsim.partitions.hosted_partition import HostedPartition
from protocol.messages.k01_fetch import AbortedTransaction


class AbortedLists:
    """A replaceable component, so that scenarios can show consumers that receive an incomplete
    list.
    """

    __slots__ = ()

    def of(
        self, hosted: HostedPartition, first_offset: int, end_offset: int, *, has_waited: bool
    ) -> list[AbortedTransaction] | None:
        """Return the aborted transactions with records in [first_offset, end_offset); None is the
        value for read_uncommitted.
        """
        aborted = hosted.log.aborted_between(first_offset, end_offset)
        return [
            AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in aborted
        ]
