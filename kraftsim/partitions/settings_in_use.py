"""Reports which of a topic's own configurations the leader of each partition uses.

The values are read where appends, the high watermark, rolls and retention read them, not from the
metadata: a value that stays behind anywhere shows.
Source: kafka.cluster.Partition, kafka.server.metadata.DynamicConfigPublisher.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from kraftsim.events.event import Event
from kraftsim.metadata.events import TopicConfigInEffect
from kraftsim.metadata.topic_settings import TopicSettings
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.rules_leader import LeaderState

MIN_IN_SYNC: Final = "min.insync.replicas"

TopicIdPartition: TypeAlias = tuple[bytes, int]


class SettingsInUse:
    """Emits an event for each configuration of which a leader uses another value."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._reported: dict[TopicIdPartition, tuple[int, Mapping[str, str | None]]] = {}
        """The leader epoch, and what was reported in it."""

    def report(self, hosted: HostedPartition, own: Mapping[str, str]) -> None:
        """Emit what has changed since the last call, or since the leader was elected.

        `own` are the configurations of the topic itself. A replica that does not lead reports
        nothing.
        """
        leader_state = hosted.replica.leader_state
        if leader_state is None:
            return
        key = (hosted.topic_id, hosted.partition)
        leader_epoch = hosted.replica.leader_epoch
        before = self._reported.get(key)
        known = before[1] if before is not None and before[0] == leader_epoch else {}
        used = _used(hosted, leader_state)
        derived = _derived(hosted.settings)
        values = {
            name: _value(name, value, derived[name], own.get(name), hosted.settings.replica_count)
            for name, value in used.items()
        }
        self._reported[key] = leader_epoch, values
        for name, text in values.items():
            if known.get(name) != text:
                self._emit(
                    TopicConfigInEffect(
                        topic=hosted.topic, partition=hosted.partition, name=name, value=text
                    )
                )


def _used(hosted: HostedPartition, leader_state: LeaderState) -> dict[str, int]:
    return {
        "max.message.bytes": hosted.replica.rules.max_message_bytes,
        MIN_IN_SYNC: leader_state.rules.min_in_sync,
        "retention.bytes": hosted.settings.retention.retention_bytes,
        "retention.ms": hosted.settings.retention.retention_ms,
        "segment.bytes": hosted.log.roll_settings.segment_bytes,
    }


def _derived(settings: TopicSettings) -> dict[str, int]:
    """Return the values of the effective configurations, where others are derived from them."""
    return {
        "max.message.bytes": settings.rules.max_message_bytes,
        MIN_IN_SYNC: settings.rules.min_in_sync_replicas,
        "retention.bytes": settings.retention.retention_bytes,
        "retention.ms": settings.retention.retention_ms,
        "segment.bytes": settings.segments.segment_bytes,
    }


def _value(name: str, used: int, derived: int, own: str | None, replica_count: int) -> str | None:
    """Return the topic's own value if it is used, None if the topic has none and the effective one
    is used, else the value that is used.

    min.insync.replicas is used up to the number of replicas (since 3.7).
    """
    if own is None:
        return None if used == derived else str(used)
    wanted = int(own)
    is_bounded = name == MIN_IN_SYNC and used == min(wanted, replica_count)
    return own if used == wanted or is_bounded else str(used)
