"""The metrics of a cluster as Prometheus text, under the names that Kafka's own have when the JMX
exporter publishes them with its example rules for Kafka.

So dashboards and alert rules of a real cluster work in a rehearsal. Each metric says what it is
measured from: a snapshot (requests that any client may send) or counters from event logs. What
kraftsim does not measure is not exported: it is never a zero. Series carry the label `node` where a
real scrape has a target of its own; a node that does not run has none, as if its JVM were gone.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, Metric, generate_latest
from prometheus_client.registry import Collector

from kraftsim.control.metrics_of_brokers import REPLICAS, TRAFFIC
from kraftsim.control.metrics_of_controllers import CONTROLLERS, COORDINATORS
from kraftsim.control.metrics_view import COUNTER, TOTAL, ClusterView, KafkaMetric, Row, runs
from kraftsim.control.state.cluster_snapshot import ClusterSnapshot
from kraftsim.control.state.event_logs import NodeCounters

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


class NoSuchNode(LookupError):
    """The cluster has no node of this name."""


class NodeDoesNotRun(RuntimeError):
    """The node is down or paused: a scrape of its JMX exporter would fail, too."""


# --------------------------------------------------------------------------------------------------
# What Kafka has no metric for


def _transactions(view: ClusterView) -> Iterator[Row]:
    names = {node_id: name for name, node_id in view.brokers.items()}
    counted = Counter((each.coordinator, each.state) for each in view.snapshot.transactions)
    for (coordinator, state), count in sorted(counted.items()):
        if coordinator in names:
            yield names[coordinator], {"state": state}, count


def _oldest_transaction(view: ClusterView) -> list[Row]:
    oldest: dict[int, float] = {}
    for each in view.snapshot.transactions:
        is_open = each.state in ("Ongoing", "PrepareCommit", "PrepareAbort")
        if is_open and each.started_ms is not None:
            age = max(0, view.snapshot.taken_ms - each.started_ms) / 1000
            oldest[each.coordinator] = max(age, oldest.get(each.coordinator, 0))
    return [(name, {}, oldest.get(node_id, 0)) for name, node_id in view.brokers.items()]


def _ids_left(view: ClusterView) -> Iterator[Row]:
    names = {node_id: name for name, node_id in view.brokers.items()}
    newest = {block.broker_id: block for block in view.snapshot.blocks}
    for broker, block in sorted(newest.items()):
        if broker in names:
            size = block.last_producer_id - block.first_producer_id + 1
            yield names[broker], {}, size - block.returned_count


def _faults(view: ClusterView) -> Iterator[Row]:
    for each in view.snapshot.request_faults:
        yield "", {"number": str(each.number), "fault": each.text}, each.effects


OWN: Final = (
    KafkaMetric(
        name="kraftsim_node_up",
        bean="",
        help="1 if the node runs; also there for nodes that do not",
        measured_from="the process, or Metadata",
        rows=lambda view: [
            (node.name, {"role": node.role}, runs(node)) for node in view.snapshot.nodes
        ],
    ),
    KafkaMetric(
        name="kraftsim_transactions",
        bean="",
        help="Transactional ids at their coordinator, by state",
        measured_from="ListTransactions",
        rows=_transactions,
    ),
    KafkaMetric(
        name="kraftsim_oldest_open_transaction_seconds",
        bean="",
        help="Age of the oldest transaction that is open or waits for its markers",
        measured_from="DescribeTransactions",
        rows=_oldest_transaction,
    ),
    KafkaMetric(
        name="kraftsim_producer_ids_left",
        bean="",
        help="Producer ids of the broker's newest block that no client has",
        measured_from="events ProducerIdBlockAllocated, ProducerIdReturned",
        rows=_ids_left,
    ),
    KafkaMetric(
        name="kraftsim_invariant_violations_total",
        bean="",
        help="Violations of invariants that the live checks found",
        measured_from="all event logs",
        rows=lambda view: (
            [] if view.snapshot.checks is None else [("", {}, view.snapshot.checks.violation_count)]
        ),
    ),
    KafkaMetric(
        name="kraftsim_request_fault_effects_total",
        bean="",
        help="Requests on which a fault of requests took effect",
        measured_from="the process that controls the cluster",
        rows=_faults,
    ),
    KafkaMetric(
        name="kraftsim_network_conditions",
        bean="",
        help="Conditions that are imposed on links",
        measured_from="the process that controls the cluster",
        rows=lambda view: [("", {}, len(view.snapshot.network))],
    ),
)

METRICS: Final[tuple[KafkaMetric, ...]] = (
    *REPLICAS,
    *TRAFFIC,
    *COORDINATORS,
    *CONTROLLERS,
    *OWN,
)


class _Snapshot(Collector):
    """All metrics of a view, in the form of the client library; `node` limits them to one."""

    def __init__(self, view: ClusterView, node: str | None) -> None:
        self._view = view
        self._node = node

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that have a row."""
        for each in METRICS:
            is_counter = each.kind == COUNTER
            family = Metric(
                each.name.removesuffix(TOTAL) if is_counter else each.name, each.help, each.kind
            )
            for node, labels, value in each.rows(self._view):
                if self._node is None or node == self._node:
                    whole = labels if not node or self._node else {"node": node, **labels}
                    family.add_sample(each.name, whole, float(value))
            if family.samples:
                yield family


def exposition(
    snapshot: ClusterSnapshot, counters: Mapping[str, NodeCounters], node: str | None = None
) -> bytes:
    """Return the metrics as Prometheus text.

    With `node`, those of one node and without the label, so that each node can be a scrape target
    of its own. Raises NoSuchNode, and NodeDoesNotRun where a real target would not answer.
    """
    if node is not None:
        known = {each.name: each for each in snapshot.nodes}
        if node not in known:
            raise NoSuchNode(f"no node is called {node} (there are: {', '.join(known)})")
        if not runs(known[node]):
            raise NodeDoesNotRun(f"{node} is {known[node].condition.value}")
    return generate_latest(_Snapshot(ClusterView(snapshot, counters), node))


def table() -> str:
    """Return all metrics as the table of the manual, in Markdown."""
    lines = ["| metric | what it is | measured from |", "|---|---|---|"]
    lines += [f"| `{each.name}` | {each.help} | {each.measured_from} |" for each in METRICS]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
