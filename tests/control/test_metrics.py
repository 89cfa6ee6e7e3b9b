"""Metrics: their values from snapshots that a test builds, their names in the manual, in the
dashboard and in the alert rules, and that a cluster in trouble shows in them.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from kraftsim.control.metrics import (
    METRICS,
    NodeDoesNotRun,
    NoSuchNode,
    exposition,
)
from kraftsim.control.state.cluster_snapshot import (
    ClusterSnapshot,
    GroupStatus,
    LiveCheckStatus,
    NodeCondition,
    NodeStatus,
    PartitionStatus,
    ProducerIdBlockStatus,
    ProducerStatus,
    QuorumReplicaStatus,
    QuorumStatus,
    RequestFaultEntry,
    TopicStatus,
    TransactionStatus,
)
from kraftsim.control.state.event_logs import NodeCounters

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "docker" / "grafana" / "dashboards" / "kraftsim.json"
ALERTS = ROOT / "docker" / "prometheus" / "alerts.yml"
SCRAPE = ROOT / "docker" / "prometheus" / "prometheus.yml"
PAGE = ROOT / "docs" / "live-page.md"
NAME = re.compile(r"\b(?:kafka|kraftsim)_[a-z0-9_]+\b")
UNDER_REPLICATED = "kafka_server_replicamanager_underreplicatedpartitions"


def partition(number: int, leader: int | None, isr: str, **offsets: int) -> PartitionStatus:
    """Return a partition with replicas on brokers 1, 2 and 3."""
    known = PartitionStatus(
        partition=number,
        leader=leader,
        leader_epoch=2,
        replicas=(1, 2, 3),
        isr=tuple(map(int, isr.split())),
    )
    return replace(known, **offsets)


def snapshot_of(**changes: object) -> ClusterSnapshot:
    """Return a cluster of three brokers, of which the third is down, and a controller."""
    nodes = [
        NodeStatus(
            name=f"broker-{number}",
            node_id=number,
            role="broker",
            condition=NodeCondition.DOWN if number == 3 else NodeCondition.UP,
            is_fenced=number == 3,
        )
        for number in (1, 2, 3)
    ]
    controller = NodeStatus(
        name="controller-101",
        node_id=101,
        role="controller",
        condition=NodeCondition.UP,
        is_active_controller=True,
    )
    topics = (
        TopicStatus(
            name="orders",
            is_internal=False,
            min_insync_replicas=2,
            partitions=(
                partition(0, 1, "1 2", high_watermark=10, last_stable_offset=4),
                partition(1, 2, "2", high_watermark=7, last_stable_offset=7, log_start_offset=3),
                partition(2, None, "3"),
                partition(3, 1, "1 2 3"),
            ),
        ),
    )
    fields: dict[str, object] = {
        "taken_ms": 60_000,
        "took_ms": 1.0,
        "name": "test",
        "bootstrap": "127.0.0.1:9092",
        "controller": 101,
        "metadata_version_level": 21,
        "nodes": (*nodes, controller),
        "topics": topics,
        "quorum": QuorumStatus(
            leader=101,
            leader_epoch=4,
            high_watermark=90,
            replicas=tuple(
                QuorumReplicaStatus(
                    node_id=node_id, is_voter=node_id == 101, log_end_offset=end, lag=100 - end
                )
                for node_id, end in ((101, 100), (1, 98), (2, 100), (3, 40))
            ),
        ),
        "producers": tuple(
            ProducerStatus(
                topic="orders",
                partition=number,
                producer_id=producer_id,
                producer_epoch=0,
                last_sequence=0,
            )
            for number, producer_id in ((0, 1), (0, 2), (1, 1))
        ),
        "transactions": (
            TransactionStatus(
                transactional_id="pay",
                producer_id=1,
                producer_epoch=0,
                state="Ongoing",
                coordinator=2,
                started_ms=18_000,
            ),
        ),
        "groups": (
            GroupStatus(
                group_id="a", coordinator=1, protocol_type="consumer", state="Stable", type=""
            ),
            GroupStatus(
                group_id="b",
                coordinator=1,
                protocol_type="consumer",
                state="Stable",
                type="consumer",
            ),
        ),
    }
    return ClusterSnapshot(**{**fields, **changes})  # type: ignore[arg-type]  # of many types


def counters_of() -> dict[str, NodeCounters]:
    """Return what two brokers have counted."""
    one, other = NodeCounters(), NodeCounters()
    one.messages_in.update(orders=10, __consumer_offsets=2)
    one.bytes_in.update(orders=1000)
    one.isr_shrinks = 3
    one.log_ends = {("orders", 0): 12, ("orders", 1): 5}
    other.log_ends = {("orders", 0): 9, ("orders", 1): 7}
    other.requests.update({(0, 9): 4})
    return {"broker-1": one, "broker-2": other}


def samples(text: bytes) -> "dict[tuple[str, frozenset[tuple[str, str]]], float]":
    """Return the samples by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def value(text: bytes, name: str, **labels: str) -> float | None:
    """Return a sample, if it is there."""
    return samples(text).get((name, frozenset(labels.items())))


@pytest.mark.parametrize(
    ("name", "node", "expected"),
    [
        ("kafka_server_replicamanager_leadercount", "broker-1", 2),
        ("kafka_server_replicamanager_partitioncount", "broker-2", 4),
        (UNDER_REPLICATED, "broker-1", 1),
        (UNDER_REPLICATED, "broker-2", 1),
        ("kafka_server_replicamanager_underminisrpartitioncount", "broker-1", 0),
        ("kafka_server_replicamanager_underminisrpartitioncount", "broker-2", 1),
        ("kafka_server_replicamanager_atminisrpartitioncount", "broker-1", 1),
        ("kafka_server_replicamanager_produceridcount", "broker-1", 3),
        ("kafka_server_replicamanager_isrshrinks_total", "broker-1", 3),
        ("kafka_server_brokertopicmetrics_messagesin_total", "broker-1", 12),
        ("kafka_server_kafkaserver_brokerstate", "broker-1", 3),
        ("kafka_controller_kafkacontroller_activecontrollercount", "controller-101", 1),
        ("kafka_controller_kafkacontroller_activebrokercount", "controller-101", 2),
        ("kafka_controller_kafkacontroller_fencedbrokercount", "controller-101", 1),
        ("kafka_controller_kafkacontroller_offlinepartitionscount", "controller-101", 1),
        ("kafka_controller_kafkacontroller_preferredreplicaimbalancecount", "controller-101", 2),
        ("kafka_controller_kafkacontroller_globalpartitioncount", "controller-101", 4),
        ("kafka_server_raft_metrics_current_epoch", "broker-1", 4),
        ("kafka_server_raft_metrics_log_end_offset", "broker-1", 98),
        ("kafka_server_raft_metrics_number_of_voters", "controller-101", 1),
        ("kafka_server_raft_metrics_number_of_observers", "controller-101", 3),
        ("kafka_server_raft_metrics_number_of_observers", "broker-1", None),
        ("kafka_coordinator_group_groupmetadatamanager_numgroupsstable", "broker-1", 1),
        ("kafka_server_group_coordinator_metrics_protocol_consumer_group_count", "broker-1", 1),
        ("kafka_server_metadataloader_currentmetadataversion", "broker-2", 21),
        ("kraftsim_oldest_open_transaction_seconds", "broker-2", 42),
    ],
)
def test_values_come_from_the_snapshot(name: str, node: str, expected: float | None) -> None:
    assert value(exposition(snapshot_of(), counters_of()), name, node=node) == expected


def test_values_of_partitions_come_from_their_leaders() -> None:
    text = exposition(snapshot_of(), counters_of())
    place = {"topic": "orders", "partition": "0"}
    lag = "kafka_cluster_partition_laststableoffsetlag"
    assert value(text, lag, node="broker-1", **place) == 6
    assert value(text, lag, node="broker-2", **place) is None
    end = "kafka_log_log_logendoffset"
    assert value(text, end, node="broker-1", **place) == 12
    assert value(text, end, node="broker-2", **place) == 9
    counted = "kafka_server_brokertopicmetrics_messagesin_total"
    assert value(text, counted, node="broker-1", topic="orders") == 10
    requests = "kafka_network_requestmetrics_requests_total"
    assert value(text, requests, node="broker-2", request="Produce", version="9") == 4
    state = "kafka_server_raft_metrics_current_state"
    assert value(text, state, node="broker-1", state="observer") == 1


def test_the_lag_is_that_below_the_high_watermark() -> None:
    """A follower has to have what is below it; of broker 2 in partition 0 a record is missing."""
    lag = "kafka_server_replicafetchermanager_maxlag"
    text = exposition(snapshot_of(), counters_of())
    assert value(text, lag, node="broker-2", clientId="Replica") == 1
    assert value(text, lag, node="broker-1", clientId="Replica") == 2
    behind = exposition(snapshot_of(unread_bytes=1), counters_of())
    assert value(behind, lag, node="broker-1", clientId="Replica") is None


def test_a_node_that_does_not_run_has_no_series_of_kafka() -> None:
    found = samples(exposition(snapshot_of(), counters_of()))
    of_third = [name for name, labels in found if ("node", "broker-3") in labels]
    assert of_third == ["kraftsim_node_up"]
    assert found["kraftsim_node_up", frozenset({("node", "broker-3"), ("role", "broker")})] == 0


def test_a_node_can_be_a_target_of_its_own() -> None:
    snapshot, counters = snapshot_of(), counters_of()
    text = exposition(snapshot, counters, "broker-1")
    assert value(text, UNDER_REPLICATED) == 1
    assert not any(name == "node" for _, labels in samples(text) for name, _ in labels)
    assert value(text, "kafka_controller_kafkacontroller_activecontrollercount") is None
    with pytest.raises(NodeDoesNotRun, match="broker-3 is down"):
        exposition(snapshot, counters, "broker-3")
    with pytest.raises(NoSuchNode, match="no node is called broker-4"):
        exposition(snapshot, counters, "broker-4")


def test_without_event_logs_what_needs_them_is_absent_and_not_zero() -> None:
    found = {name for name, _ in samples(exposition(snapshot_of(), {}))}
    for metric in METRICS:
        if metric.needs_events:
            assert metric.name not in found, metric.name


def test_every_metric_has_a_row_somewhere() -> None:
    """A metric that no cluster can show would never fire an alert."""
    snapshot = snapshot_of(
        request_faults=(RequestFaultEntry(number=1, text="* blackhole", matched=1, effects=1),),
        blocks=(
            ProducerIdBlockStatus(
                broker_id=1, first_producer_id=0, last_producer_id=999, returned_count=4
            ),
        ),
        checks=LiveCheckStatus(
            violations=(),
            violation_count=0,
            checked=(),
            idle=(),
            event_count=0,
            behind_ms=None,
        ),
    )
    counters = {**counters_of(), "controller-101": NodeCounters()}
    found = {name for name, _ in samples(exposition(snapshot, counters))}
    assert found == {metric.name for metric in METRICS}


def test_names_and_helps_are_unique() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert NAME.fullmatch(metric.name)
        assert metric.name.startswith("kraftsim_") == (metric.bean == "")


def test_labels_of_any_text_are_escaped() -> None:
    odd = 'a"b\\c\nd'
    snapshot = snapshot_of(
        request_faults=(RequestFaultEntry(number=1, text=odd, matched=1, effects=5),)
    )
    text = exposition(snapshot, {})
    assert value(text, "kraftsim_request_fault_effects_total", number="1", fault=odd) == 5


# --------------------------------------------------------------------------------------------------
# The manual, the dashboard and the rules


def expressions() -> Iterator[tuple[str, str]]:
    """Yield the expressions of the dashboard and of the alert rules, with their places."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield f"panel {panel['title']}", target["expr"]
    for variable in json.loads(DASHBOARD.read_text())["templating"]["list"]:
        if variable["type"] == "query":
            yield f"variable {variable['name']}", variable["query"]["query"]
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            yield f"rule {rule['alert']}", rule["expr"]


def test_dashboard_and_rules_use_exported_metrics() -> None:
    exported = {metric.name for metric in METRICS}
    places = list(expressions())
    assert len(places) > 30
    for place, expression in places:
        names = NAME.findall(expression)
        assert names, f"{place} uses no metric: {expression}"
        assert not set(names) - exported, f"{place}: {sorted(set(names) - exported)}"


def test_the_dashboard_has_unique_panels_inside_the_grid() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: dict[tuple[int, int], str] = {}
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} over {taken.get((x, y))}"
                taken[x, y] = panel["title"]


def test_the_scrape_settings_name_the_rules_and_ask_for_one_node_each() -> None:
    settings = yaml.safe_load(SCRAPE.read_text())
    assert settings["rule_files"] == [ALERTS.name]
    jobs: Mapping[str, Mapping[str, object]] = {
        job["job_name"]: job for job in settings["scrape_configs"]
    }
    assert "__param_node" in str(jobs["kafka"]["relabel_configs"])
    assert jobs["kraftsim"]["honor_labels"] is True


def test_the_manual_lists_every_metric() -> None:
    rows = {}
    for line in PAGE.read_text().splitlines():
        found = re.match(r"\| `((?:kafka|kraftsim)_\w+)` \| (.+) \| (.+) \|$", line)
        if found:
            rows[found[1]] = found[2], found[3]
    assert rows == {metric.name: (metric.help, metric.measured_from) for metric in METRICS}, (
        "print the table by: python -m kraftsim.control.metrics"
    )
