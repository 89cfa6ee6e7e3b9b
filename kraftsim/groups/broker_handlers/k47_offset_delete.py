"""OffsetDelete: delete committed offsets of topics to which the group is not subscribed.

Source: kafka.server.KafkaApis.handleOffsetDeleteRequest,
kafka.coordinator.group.GroupCoordinator.handleDeleteOffsets, KIP-496.
"""

from kraftsim.groups.group_coordinator import GroupTopicsBroker
from kraftsim.server.call import Answer, Call, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(broker: GroupTopicsBroker, call: Call) -> Answer:
    """Return a result for each partition, or a group-level error without partitions."""
    request = call.body
    assert isinstance(request, OffsetDeleteRequest), "dispatch decodes by API key"
    led = broker.groups.coordinated(request.group_id)
    if isinstance(led, ErrorCode):
        return OffsetDeleteResponse(error_code=led)
    asked = [
        (topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
    ]
    known = [partition for partition in asked if broker.image.partition(*partition) is not None]
    errors = led.settled(led.shard.delete_offsets(request.group_id, known, led.now()))
    if isinstance(errors, ErrorCode):
        return OffsetDeleteResponse(error_code=errors)
    found = dict(zip(known, errors, strict=True))
    return OffsetDeleteResponse(
        error_code=ErrorCode.NONE,
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=found.get(
                            (topic.name, each.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


HANDLER = Handler(
    key=ApiKey.OFFSET_DELETE,
    handle=handle,
    refuse=lambda call, error: OffsetDeleteResponse(error_code=error),
)
