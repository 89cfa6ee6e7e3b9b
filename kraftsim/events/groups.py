"""What happens to consumer groups.   Source: KIP-62, kafka.coordinator.group."""

from kraftsim.events.event import Event


class GroupsLoaded(Event):
    """A broker answers for the groups of a partition of `__consumer_offsets` from now on; it has read the log up to next_offset."""

    partition: int
    group_count: int
    next_offset: int


class GroupsUnloaded(Event):
    """A broker answers for the groups of a partition of `__consumer_offsets` no longer."""

    partition: int
