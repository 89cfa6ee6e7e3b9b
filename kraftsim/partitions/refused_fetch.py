"""A Fetch refused as a whole: before version 13 the error is returned for every requested
partition, because old clients have no other error field.

Source: org.apache.kafka.common.requests.FetchRequest.getErrorResponse.
"""

from kraftsim.server.call import Answer, Call
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

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
