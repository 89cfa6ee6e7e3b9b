"""StreamsGroupTargetAssignmentMetadata (20): the group epoch for which a streams group's target
assignment was made.

If it is lower than the group epoch, the assignment is not computed yet.
Source: KIP-1071, KIP-1263; StreamsGroupTargetAssignmentMetadataKey.json,
StreamsGroupTargetAssignmentMetadataValue.json.
"""

from protocol.schema import int32, int64, message, string


@message(key=20, kind="coordinator-key", versions="0", flexible="none")
class StreamsGroupTargetAssignmentMetadataKey:
    """By group."""

    group_id: str = string()


@message(key=20, kind="coordinator-value", versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    """Written after the members' records of the same assignment."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, tagged="0+", ignorable=True)
