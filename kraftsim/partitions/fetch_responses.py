"""Parts of Fetch responses: the list of aborted transactions, and the response to a Fetch that is
refused as a whole.
"""

from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.server.call import Answer, Call
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

# --------------------------------------------------------------------------------------------------
# The aborted-transaction list, by which read_committed consumers skip aborted records
#
# The list is built each time the log is read, for exactly the range that was read: the response
# of a Fetch that waited in purgatory includes transactions aborted in the meantime (KAFKA-5376).
# Source: UnifiedLog.collectAbortedTransactions, kafka.server.DelayedFetch.


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


# --------------------------------------------------------------------------------------------------
# A Fetch refused as a whole: before version 13 the error is returned for every requested
# partition, because old clients have no other error field
#
# Source: org.apache.kafka.common.requests.FetchRequest.getErrorResponse.

FIRST_VERSION_WITHOUT_PARTITIONS = 13
NO_OFFSET = -1


def refused_fetch(call: Call, error: ErrorCode) -> Answer:
    """Return the error response to a Fetch."""
    request = call.body
    assert isinstance(request, FetchRequest), "dispatch decodes by API key"
    response = FetchResponse(error_code=error, session_id=request.session_id)
    if call.api_version < FIRST_VERSION_WITHOUT_PARTITIONS:
        for topic in request.topics:
            rows = [_refused(partition.partition, error) for partition in topic.partitions]
            response.responses.append(FetchableTopicResponse(topic=topic.topic, partitions=rows))
    return response


def _refused(partition: int, error: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        error_code=error,
        high_watermark=NO_OFFSET,
        aborted_transactions=[],
        records=None,
    )
