"""ConsumerGroupTargetAssignmentMetadata (6): the group epoch for which a consumer group's target
assignment was made.

If it is lower than the group epoch, the assignment is not computed yet.
Source: KIP-848, KIP-1263; ConsumerGroupTargetAssignmentMetadataKey.json,
ConsumerGroupTargetAssignmentMetadataValue.json.
"""

from protocol.schema import int32, int64, message, string


@message(key=6, kind="coordinator-key", versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMetadataKey:
    """By group."""

    group_id: str = string()


@message(key=6, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """Written after the members' records of the same assignment."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, tagged="0+", ignorable=True)
