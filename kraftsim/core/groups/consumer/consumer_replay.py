"""Replay of the consumer group records of `__consumer_offsets`: when they are written, and when the
log is loaded.
"""

from collections.abc import Callable
from typing import Final

from kraftsim.core.groups.consumer.consumer_group import ConsumerGroup
from protocol.coordinator.g03_consumer_group_metadata import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from protocol.coordinator.g05_consumer_group_member_metadata import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from protocol.coordinator.g06_consumer_group_target_assignment_metadata import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from protocol.coordinator.g07_consumer_group_target_assignment_member import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
)
from protocol.coordinator.g08_consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from protocol.coordinator.g16_consumer_group_regular_expression import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from protocol.schema import Message

KEYS: Final = (
    ConsumerGroupMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)
NO_EPOCH: Final = 0


def replay_change(
    key: Message,
    value: Message | None,
    *,
    find: Callable[[str], ConsumerGroup | None],
    make: Callable[[str], ConsumerGroup],
    drop: Callable[[str], None],
) -> None:
    """Apply one record to a group.

    Tombstones of an unknown group, or of a group with members, have no effect.
    """
    assert isinstance(key, KEYS), "a key of a consumer group"
    group = find(key.group_id) if value is None else make(key.group_id)
    if group is None:
        return
    match key, value:
        case ConsumerGroupMetadataKey(), None:
            drop(key.group_id)
        case ConsumerGroupMetadataKey(), ConsumerGroupMetadataValue():
            group.replay_epoch(value.epoch, value.metadata_hash)
        case ConsumerGroupMemberMetadataKey(), None:
            group.replay_gone(key.member_id)
        case ConsumerGroupMemberMetadataKey(), ConsumerGroupMemberMetadataValue():
            group.replay_member(key.member_id, value)
        case ConsumerGroupTargetAssignmentMetadataKey(), None:
            group.replay_target_epoch(NO_EPOCH, 0)
        case (
            ConsumerGroupTargetAssignmentMetadataKey(),
            ConsumerGroupTargetAssignmentMetadataValue(),
        ):
            group.replay_target_epoch(value.assignment_epoch, value.assignment_timestamp)
        case ConsumerGroupTargetAssignmentMemberKey(), None:
            group.replay_target(key.member_id, None)
        case ConsumerGroupTargetAssignmentMemberKey(), ConsumerGroupTargetAssignmentMemberValue():
            group.replay_target(
                key.member_id,
                {row.topic_id: tuple(sorted(row.partitions)) for row in value.topic_partitions},
            )
        case ConsumerGroupCurrentMemberAssignmentKey(), None:
            group.replay_current(key.member_id, None)
        case ConsumerGroupCurrentMemberAssignmentKey(), ConsumerGroupCurrentMemberAssignmentValue():
            group.replay_current(key.member_id, value)
        case ConsumerGroupRegularExpressionKey(), None:
            group.resolved.pop(key.regular_expression, None)
        case ConsumerGroupRegularExpressionKey(), ConsumerGroupRegularExpressionValue():
            group.resolved[key.regular_expression] = tuple(value.topics)
