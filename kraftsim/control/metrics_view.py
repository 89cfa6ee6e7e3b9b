"""What a metric is: a name, what it is measured from, and its rows, computed from a view of the
cluster.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kraftsim.control.state.cluster_snapshot import (
    ClusterSnapshot,
    NodeCondition,
    NodeStatus,
    PartitionStatus,
)
from kraftsim.control.state.event_logs import NodeCounters

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
TOTAL: Final = "_total"
"""The end of a counter's name."""
Labels = dict[str, str]
Row = tuple[str, Labels, float]
"""The name of a node, labels, and a value."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A snapshot, prepared for the metrics: the nodes that run, and the partitions that each broker
    leads and holds.
    """

    snapshot: ClusterSnapshot
    counters: Mapping[str, NodeCounters]
    brokers: dict[str, int] = field(default_factory=dict)
    controllers: dict[str, int] = field(default_factory=dict)
    led: dict[str, list[tuple[str, PartitionStatus]]] = field(default_factory=dict)
    held: dict[str, list[tuple[str, PartitionStatus]]] = field(default_factory=dict)
    min_isr: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Sort the partitions to their brokers."""
        for node in self.snapshot.nodes:
            if not runs(node):
                continue
            if "broker" in node.role:
                self.brokers[node.name] = node.node_id
                self.led[node.name], self.held[node.name] = [], []
            if "controller" in node.role or (node.is_active_controller and not self.has_quorum):
                self.controllers[node.name] = node.node_id
        names = {node_id: name for name, node_id in self.brokers.items()}
        for topic in self.snapshot.topics:
            if topic.min_insync_replicas is not None:
                self.min_isr[topic.name] = topic.min_insync_replicas
            for partition in topic.partitions:
                if partition.leader in names:
                    self.led[names[partition.leader]].append((topic.name, partition))
                for replica in partition.replicas:
                    if replica in names:
                        self.held[names[replica]].append((topic.name, partition))

    @property
    def has_quorum(self) -> bool:
        """Whether the controllers are nodes of their own (KRaft)."""
        return any("controller" in node.role for node in self.snapshot.nodes)

    def counted(self) -> Iterator[tuple[str, NodeCounters]]:
        """Yield the counters of the nodes that run."""
        for name in (*self.brokers, *(each for each in self.controllers if not self._both(each))):
            if name in self.counters:
                yield name, self.counters[name]

    def _both(self, name: str) -> bool:
        return name in self.brokers


def runs(node: NodeStatus) -> bool:
    """Return whether a node runs, as far as is known."""
    return node.condition in (NodeCondition.UP, NodeCondition.STARTING) or (
        node.condition is NodeCondition.UNKNOWN and node.is_active_controller
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaMetric:
    """One metric: its name, what it is measured from, and its rows.

    `bean` is Kafka's MBean or, for kraftsim's own, empty.
    """

    name: str
    bean: str
    help: str
    measured_from: str
    rows: Callable[[ClusterView], Iterable[Row]]

    @property
    def kind(self) -> str:
        """Its type: Prometheus names counters so."""
        return COUNTER if self.name.endswith(TOTAL) else GAUGE

    @property
    def needs_events(self) -> bool:
        """Whether it is absent without event logs."""
        return "event" in self.measured_from
