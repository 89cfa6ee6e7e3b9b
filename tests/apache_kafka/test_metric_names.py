"""The names, labels, types and values of our metrics are those of Apache Kafka's own: the JMX
exporter's agent from Maven publishes them from a running broker, and both are compared.

The rules below give the names that the exporter's example for Kafka in KRaft mode gives, which is
what dashboards and alert rules are written for.
"""

import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kraftsim.cluster.ports import free_port_range
from kraftsim.control.metrics import METRICS, exposition
from kraftsim.control.state.snapshot_reader import SnapshotReader
from tests.apache_kafka.class_path import CACHE, MAVEN_SECONDS, NEWEST_RELEASE, Missing, maven
from tests.apache_kafka.harness import QUICK_JVM, ApacheKafka

pytestmark = pytest.mark.interop

AGENT = "jmx_prometheus_javaagent"
AGENT_VERSION = "1.0.1"
ABSENT = {
    "kafka_server_raft_metrics_current_state_info": "the agent drops this suffix since 1.0",
}
"""Metrics that this agent does not publish, and why we have them."""
MOVING = (
    "kafka_server_raft_metrics_high_watermark",
    "kafka_server_raft_metrics_log_end_offset",
    "kafka_coordinator_group_groupmetadatamanager_numgroups",
)
"""Beginnings of names of values that differ for a while: the active controller writes a record
every half second, and the coordinator counts its groups once a minute.
"""
NODE = "broker-1"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

TWO = r", (.+)=(.+), (.+)=(.+)"
ONE = r", (.+)=(.+)"
PER_SECOND = r"kafka.(\w+)<type=(.+), name=(.+)PerSec\w*"
VALUE = r"kafka.(\w+)<type=(.+), name=(.+)"
RULES: tuple[tuple[str, str, str, tuple[tuple[str, str], ...]], ...] = (
    (
        r"kafka.coordinator.(\w+)<type=(.+), name=(.+)><>Value",
        "kafka_coordinator_$1_$2_$3",
        "GAUGE",
        (),
    ),
    (r"kafka.server<type=(.+)><>([a-z-]+)-total", "kafka_server_$1_$2_total", "COUNTER", ()),
    (r"kafka.server<type=(.+)><>([a-z-]+)", "kafka_server_$1_$2", "GAUGE", ()),
    (
        f"{PER_SECOND}{TWO}><>Count",
        "kafka_$1_$2_$3_total",
        "COUNTER",
        (("$4", "$5"), ("$6", "$7")),
    ),
    (f"{PER_SECOND}{ONE}><>Count", "kafka_$1_$2_$3_total", "COUNTER", (("$4", "$5"),)),
    (f"{PER_SECOND}><>Count", "kafka_$1_$2_$3_total", "COUNTER", ()),
    (f"{VALUE}{TWO}><>Value", "kafka_$1_$2_$3", "GAUGE", (("$4", "$5"), ("$6", "$7"))),
    (f"{VALUE}{ONE}><>Value", "kafka_$1_$2_$3", "GAUGE", (("$4", "$5"),)),
    (f"{VALUE}><>Value", "kafka_$1_$2_$3", "GAUGE", ()),
)
STATE_RULE = """
- pattern: 'kafka.server<type=raft-metrics><>current-state: ([a-z]+)'
  name: kafka_server_raft_metrics_current_state_info
  type: GAUGE
  value: 1
  labels: {"state": "$1"}
"""


def rules_text() -> str:
    """Return the rules in the agent's form."""
    lines = ["lowercaseOutputName: true", "rules:", STATE_RULE]
    for pattern, name, kind, labels in RULES:
        pairs = ", ".join(f'"{key}": "{value}"' for key, value in labels)
        lines.append(f"- pattern: '{pattern}'\n  name: {name}\n  type: {kind}")
        if pairs:
            lines.append(f"  labels: {{{pairs}}}")
    return "\n".join(lines)


def agent() -> Path:
    """Return the agent's jar; Maven brings it once. Raises Missing."""
    jar = CACHE / f"{AGENT}-{AGENT_VERSION}.jar"
    if not jar.exists():
        command = [
            maven(),
            "-B",
            "-q",
            "dependency:copy",
            f"-Dartifact=io.prometheus.jmx:{AGENT}:{AGENT_VERSION}",
            f"-DoutputDirectory={CACHE}",
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=MAVEN_SECONDS, check=False
        )
        if not jar.exists():
            raise Missing(f"Maven could not bring the JMX exporter: {done.stdout[-500:]}")
    return jar


@dataclass(frozen=True)
class Scraped:
    """What both publish of the same broker: samples, and types by name."""

    theirs: Samples
    their_types: dict[str, str]
    ours: Samples
    our_types: dict[str, str]


def parsed(text: str) -> tuple[Samples, dict[str, str]]:
    """Return the samples, and the type of each name."""
    samples: Samples = {}
    types = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples[sample.name, frozenset(sample.labels.items())] = sample.value
            types[sample.name] = family.type
    return samples, types


async def read_snapshot(bootstrap: str) -> str:
    """Return our metrics of the broker: what requests tell."""
    reader = SnapshotReader(bootstrap)
    snapshot = await reader.snapshot()
    await reader.close()
    assert {"blocks", "checks"} == set(snapshot.missing), snapshot.missing
    return exposition(snapshot, reader.counters, NODE).decode()


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """Apache Kafka with topics, an idempotent producer and a group, and the same seen by us."""
    import asyncio

    rules = tmp_path_factory.mktemp("jmx") / "rules.yml"
    rules.write_text(rules_text())
    port = free_port_range(1)
    jvm = (*QUICK_JVM, f"-javaagent:{agent()}=127.0.0.1:{port}:{rules}")
    with ApacheKafka(NEWEST_RELEASE, jvm=jvm) as kafka:
        kafka.tool("topics", "--create", "--topic", "orders", "--partitions", "3")
        kafka.tool("console-producer", "--topic", "orders", stdin="one\ntwo\nthree\n")
        kafka.tool(
            "console-consumer",
            *("--topic", "orders", "--group", "billing", "--from-beginning"),
            *("--max-messages", "3"),
        )
        ours, our_types = parsed(asyncio.run(read_snapshot(kafka.bootstrap)))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            theirs, their_types = parsed(answer.read().decode())
    yield Scraped(theirs, their_types, ours, our_types)


def test_every_name_is_one_that_kafka_publishes(scraped: Scraped) -> None:
    names = {name for name, _ in scraped.theirs}
    for metric in METRICS:
        if metric.bean and metric.name not in ABSENT:
            assert metric.name in names, metric.bean


def test_types_are_kafkas(scraped: Scraped) -> None:
    for metric in METRICS:
        known = scraped.their_types.get(metric.name)
        assert known in (None, metric.kind), metric.name
        assert scraped.our_types.get(metric.name) in (None, metric.kind)


def test_every_sample_has_kafkas_labels_and_value(scraped: Scraped) -> None:
    """What is measured from requests is what the broker counts itself."""
    compared = 0
    for (name, labels), value in scraped.ours.items():
        if name.startswith("kraftsim_") or name in ABSENT:
            continue
        assert (name, labels) in scraped.theirs, f"{name} {sorted(labels)}"
        if not name.startswith(MOVING) and not name.endswith("_group_count"):
            assert scraped.theirs[name, labels] == value, f"{name} {sorted(labels)}"
            compared += 1
    assert compared > 50


def test_labels_of_counters_from_events_are_kafkas(scraped: Scraped) -> None:
    """Those have no counterpart here, for Apache Kafka writes no event logs."""
    labels = {(name, frozenset(key for key, _ in pairs)) for name, pairs in scraped.theirs}
    for name, keys in (
        ("kafka_server_brokertopicmetrics_messagesin_total", ()),
        ("kafka_server_brokertopicmetrics_messagesin_total", ("topic",)),
        ("kafka_server_brokertopicmetrics_bytesin_total", ("topic",)),
        ("kafka_server_brokertopicmetrics_totalproducerequests_total", ("topic",)),
        ("kafka_server_replicafetchermanager_maxlag", ("clientId",)),
        ("kafka_log_log_logendoffset", ("topic", "partition")),
        ("kafka_network_requestmetrics_requests_total", ("request", "version")),
        ("kafka_controller_controllerstats_uncleanleaderelections_total", ()),
    ):
        assert (name, frozenset(keys)) in labels, (name, keys)
