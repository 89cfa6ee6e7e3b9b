"""What readers of committed data are told of aborted transactions, so that they skip their records.

The list is made anew each time the log is read, for exactly what was read: an answer that waited for more records names what was aborted meanwhile
(KAFKA-5376).   Source: UnifiedLog.collectAbortedTransactions, kafka.server.DelayedFetch.
"""

from kraftsim.node.broker.hosted_partition import HostedPartition
from protocol.messages.k01_fetch import AbortedTransaction


class AbortedLists:
    """A part, so that it can be played what became of readers who were told less."""

    __slots__ = ()

    def of(self, hosted: HostedPartition, first_offset: int, end_offset: int, *, has_waited: bool) -> list[AbortedTransaction] | None:
        """Name the transactions with records from first_offset on and below end_offset; None is what readers of everything are told."""
        aborted = hosted.log.aborted_between(first_offset, end_offset)
        return [AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset) for each in aborted]
