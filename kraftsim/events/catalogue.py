"""Every event class by its kind; importing this module loads the whole catalogue."""

from kraftsim.events import clients, connections, groups, metadata, nodes, partitions, producer_ids, raft, runs
from kraftsim.events.event import Event

MODULES = (nodes, connections, producer_ids, partitions, metadata, raft, groups, clients, runs)

KINDS: dict[str, type[Event]] = dict(sorted(Event.kinds.items()))
"""kind -> event class, sorted by kind."""
