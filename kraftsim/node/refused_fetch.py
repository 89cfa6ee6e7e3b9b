"""A Fetch that is refused as a whole: before version 13 every partition that was asked for says why, for old readers know no other error.

Source: org.apache.kafka.common.requests.FetchRequest.getErrorResponse.
"""

from kraftsim.node.call import Answer, Call
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

FIRST_VERSION_WITHOUT_PARTITIONS = 13
NO_OFFSET = -1


def refused_fetch(call: Call, error: ErrorCode) -> Answer:
    """Return the answer to a Fetch that could not be looked into."""
    request = call.body
    assert isinstance(request, FetchRequest), "dispatch decodes by API key"
    response = FetchResponse(error_code=error, session_id=request.session_id)
    if call.api_version < FIRST_VERSION_WITHOUT_PARTITIONS:
        for topic in request.topics:
            rows = [_refused(partition.partition, error) for partition in topic.partitions]
            response.responses.append(FetchableTopicResponse(topic=topic.topic, partitions=rows))
    return response


def _refused(partition: int, error: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=partition, error_code=error, high_watermark=NO_OFFSET, aborted_transactions=[], records=None)
