"""Every event class by its kind; importing this module loads the whole catalogue."""

from kraftsim.events import (
    clients,
    connections,
    groups,
    lease_pid,
    metadata,
    migration,
    nodes,
    partition_transactions,
    partitions,
    producer_ids,
    raft,
    runs,
    tiered_storage,
    transactional_clients,
    transactions,
    zookeeper_controllers,
    zookeeper_mode,
)
from kraftsim.events.event import Event

MODULES = (
    nodes,
    connections,
    producer_ids,
    partitions,
    partition_transactions,
    transactions,
    metadata,
    migration,
    raft,
    groups,
    clients,
    transactional_clients,
    lease_pid,
    runs,
    tiered_storage,
    zookeeper_controllers,
    zookeeper_mode,
)

KINDS: dict[str, type[Event]] = dict(sorted(Event.kinds.items()))
"""kind -> event class, sorted by kind."""
