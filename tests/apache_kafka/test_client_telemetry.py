"""Apache Kafka with a reporter of client metrics and kraftsim compared, and Apache Kafka's own
clients, which push their metrics to our broker.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.expect import settled
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.target import Target
from protocol.config_resources import ConfigResourceType
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k44_incremental_alter_configs import (
    DELETE,
    SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from protocol.messages.k72_push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE, class_path
from tests.apache_kafka.config_facts import line_of
from tests.apache_kafka.harness import QUICK_JVM, ApacheKafka, run_tool
from tests.cluster.running import logged_events

pytestmark = pytest.mark.interop
REPORTER = "ClientMetricsReporter"
RESERVED = (bytes(16), bytes(15) + b"\x01")
IDS = tuple(bytes(range(first, first + 16)) for first in (16, 40, 77))
INTERVAL_MS = 700
A_BIT_LONGER_S = 0.75
BYTES_MAX = 1_048_576
THROTTLED, UNKNOWN, NO_COMPRESSION, TOO_LARGE, INVALID = 89, 117, 76, 118, 87
RECORDS, LEAST_PUSHES = 300, 2
Shown = tuple[int, str, int, list[int], int, int, bool, list[str]]


@pytest.fixture(scope="module")
def reporter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A jar with a reporter, which is on the class path because it is an agent."""
    folder = tmp_path_factory.mktemp("reporter")
    source = Path(__file__).parent / f"{REPORTER}.java"
    jars = ":".join(map(str, class_path(DEFAULT_RELEASE)))
    subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", str(folder), str(source)], check=True)
    manifest = folder / "manifest.txt"
    manifest.write_text(f"Premain-Class: {REPORTER}\n")
    made = folder / "reporter.jar"
    subprocess.run(
        ["jar", "cfm", str(made), str(manifest), "-C", str(folder), f"{REPORTER}.class"], check=True
    )
    return made


@pytest.fixture(scope="module", params=[DEFAULT_RELEASE, "4.1.2", NEWEST_RELEASE])
def both(request: pytest.FixtureRequest, reporter: Path) -> Iterator[tuple[str, str]]:
    """The addresses of a broker of each, both with a reporter."""
    line = line_of(request.param)
    settings = {"kraftsim.client.telemetry": "true"}
    spec = ClusterSpec(brokers=1, release=line, port=free_port_range(1), settings=settings)
    with ExitStack() as stack:
        kafka = ApacheKafka(
            request.param,
            settings={"metric.reporters": REPORTER},
            jvm=(*QUICK_JVM, f"-javaagent:{reporter}"),
        )
        stack.enter_context(kafka)
        cluster = stack.enter_context(EmbeddedCluster(spec))
        yield kafka.bootstrap, cluster.bootstrap


def subscribe(address: str, name: str, values: dict[str, str | None]) -> None:
    """Set or delete values of a subscription."""
    operations = [
        AlterableConfig(name=key, config_operation=DELETE if text is None else SET, value=text)
        for key, text in values.items()
    ]
    resource = AlterConfigsResource(
        resource_type=ConfigResourceType.CLIENT_METRICS, resource_name=name, configs=operations
    )
    with Peer.at(address) as peer:
        (row,) = peer.ask(
            IncrementalAlterConfigsRequest(resources=[resource]), 1, IncrementalAlterConfigsResponse
        ).responses
    assert row.error_code == 0, row


def asked(peer: Peer, instance_id: bytes) -> tuple[Shown, bytes]:
    """Return a subscription, without a drawn instance id, and the instance id."""
    row = peer.ask(
        GetTelemetrySubscriptionsRequest(client_instance_id=instance_id),
        0,
        GetTelemetrySubscriptionsResponse,
    )
    given = row.client_instance_id
    kind = "none" if given == bytes(16) else "same" if given == instance_id else "drawn"
    return (
        row.error_code,
        kind,
        row.subscription_id,
        row.accepted_compression_types,
        row.push_interval_ms,
        row.telemetry_max_bytes,
        row.delta_temporality,
        row.requested_metrics,
    ), given


def pushed(
    peer: Peer,
    instance_id: bytes,
    subscription_id: int,
    *,
    is_terminating: bool = False,
    compression: int = 0,
    metrics: bytes = b"",
) -> int:
    """Push, and return the error."""
    request = PushTelemetryRequest(
        client_instance_id=instance_id,
        subscription_id=subscription_id,
        terminating=is_terminating,
        compression_type=compression,
        metrics=metrics,
    )
    return peer.ask(request, 0, PushTelemetryResponse).error_code


def of_subscriptions(address: str) -> list[object]:
    """Subscriptions of clients with given ids, and of one by its software's name."""
    found: list[object] = []
    for metrics in ("a.b,c,zz,d", ",".join(f"metric.{number * 7}" for number in range(40))):
        subscribe(address, "all", {"metrics": metrics, "interval.ms": "1000"})
        time.sleep(A_BIT_LONGER_S)
        with Peer.at(address) as peer:
            found += [asked(peer, instance_id)[0] for instance_id in IDS]
    patterns = "client_software_name=prob.,client_source_address=127.*"
    values = {"metrics": "*", "interval.ms": "400", "match": patterns}
    subscribe(address, "some", dict(values))
    time.sleep(A_BIT_LONGER_S)
    for software, instance_id in (("probe", bytes(range(99, 115))), ("other", bytes(range(16)))):
        with Peer.at(address) as peer:
            greeting = ApiVersionsRequest(
                client_software_name=software, client_software_version="1.0"
            )
            apis = peer.ask(greeting, 3, ApiVersionsResponse).api_keys
            found.append([row.api_key for row in apis if row.api_key in (71, 72)])
            found.append(asked(peer, instance_id)[0])
    subscribe(address, "some", dict.fromkeys(values))
    return found


def of_pushes(address: str) -> list[object]:
    """Pushes in and out of time, refused for each reason, after the last one, and of an instance
    whose connection was closed.
    """
    subscribe(address, "all", {"metrics": "x,y", "interval.ms": str(INTERVAL_MS)})
    time.sleep(A_BIT_LONGER_S)
    found: list[object] = []
    with Peer.at(address) as peer:
        found += [pushed(peer, instance_id, 1) for instance_id in RESERVED]
        shown, instance_id = asked(peer, bytes(16))
        found.append((*shown[:2], *shown[3:]))
        push = partial(pushed, peer, instance_id, shown[2])
        wrong = partial(pushed, peer, instance_id, shown[2] + 1)
        for steps in (
            (push, push, wrong),
            (wrong, push),
            (partial(push, compression=9),),
            (partial(push, metrics=b"x" * (BYTES_MAX + 1)),),
            (partial(push, metrics=b"\x00\x00"), push),
            (push, partial(push, is_terminating=True), push, push),
            (partial(wrong, is_terminating=True), push),
        ):
            found.append([step() for step in steps])
            found.append(asked(peer, instance_id)[0][0])
            time.sleep(A_BIT_LONGER_S)
        found.append([pushed(peer, IDS[1], 0), asked(peer, IDS[1])[0][0]])
    time.sleep(A_BIT_LONGER_S / 3)
    with Peer.at(address) as peer:
        found.append(asked(peer, IDS[1])[0][:2])
    return found


def test_subscriptions_are_those_of_apache_kafka(both: tuple[str, str]) -> None:
    """Ids, order of names, intervals and the match of clients."""
    theirs, ours = map(of_subscriptions, both)
    assert ours == theirs


def test_pushes_are_answered_as_by_apache_kafka(both: tuple[str, str]) -> None:
    theirs, ours = map(of_pushes, both)
    assert ours == theirs
    errors = {error for each in theirs if isinstance(each, list) for error in each}
    assert {THROTTLED, UNKNOWN, NO_COMPRESSION, TOO_LARGE, INVALID, 0} <= errors


@pytest.mark.parametrize("release", ["4.1.2", NEWEST_RELEASE])
def test_apache_kafkas_producer_pushes_its_metrics(release: str, tmp_path: Path) -> None:
    """Deltas and gauges of a producer, compressed with zstd, every 100 ms."""
    settings = {"kraftsim.client.telemetry": "true"}
    spec = ClusterSpec(
        brokers=1, release=line_of(release), port=free_port_range(1), settings=settings
    )
    with EmbeddedCluster(spec, RunDirectory(tmp_path)) as cluster:
        topic = Target(cluster.bootstrap).topic().name
        subscribe(
            cluster.bootstrap,
            "producers",
            {"metrics": "org.apache.kafka.producer.", "interval.ms": "100"},
        )
        load = f"--num-records {RECORDS} --record-size 10 --throughput 100".split()
        server = ("--producer-props", f"bootstrap.servers={cluster.bootstrap}")
        run_tool(release, "producer-performance", "--topic", topic, *load, *server)
        pushes = settled(
            lambda: logged_events(cluster.directory, "ClientMetricsPushed", "broker-1"),
            lambda found: len(found) >= LEAST_PUSHES,
            "some pushes",
        )
        points = logged_events(cluster.directory, "ClientMetricReported", "broker-1")
    assert {push["client_software_name"] for push in pushes} == {"apache-kafka-java"}
    assert {push["compression"] for push in pushes} == {4}
    assert len(points) == sum(push["point_count"] for push in pushes)
    assert all(point["metric"].startswith("org.apache.kafka.producer.") for point in points)
    assert {point["metric_type"] for point in points} == {"gauge", "sum"}
    sent = [each for each in points if each["metric"].endswith("topic.record.send.total")]
    assert {each["attributes"] for each in sent} == {f'{{"topic":"{topic}"}}'}
    assert all(each["is_delta"] and each["start_time_ms"] <= each["time_ms"] for each in sent)
    assert RECORDS / 2 < sum(float(each["value"]) for each in sent) <= RECORDS


def test_librdkafka_pushes_its_metrics(tmp_path: Path) -> None:
    """Numbers are integers where librdkafka counts; the last push comes when the client closes."""
    settings = {"kraftsim.client.telemetry": "true"}
    line = line_of(NEWEST_RELEASE)
    spec = ClusterSpec(brokers=1, release=line, port=free_port_range(1), settings=settings)
    with EmbeddedCluster(spec, RunDirectory(tmp_path)) as cluster:
        topic = Target(cluster.bootstrap).topic().name
        subscribe(cluster.bootstrap, "all", {"metrics": "*", "interval.ms": "200"})
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.metrics.push": True,
                "client.id": "pusher",
                "log_level": 0,
            }
        )
        give_up_at = time.monotonic() + 20
        while not logged_events(cluster.directory, "ClientMetricsPushed", "broker-1"):
            assert time.monotonic() < give_up_at, "nothing was pushed"
            producer.produce(topic, b"x")
            producer.flush(5)
            time.sleep(0.05)
        del producer
        pushes = settled(
            lambda: logged_events(cluster.directory, "ClientMetricsPushed", "broker-1"),
            lambda found: found[-1]["is_terminating"],
            "the last push",
        )
        points = logged_events(cluster.directory, "ClientMetricReported", "broker-1")
    assert {push["client_id"] for push in pushes} == {"pusher"}
    assert len(points) == sum(push["point_count"] for push in pushes) > 0
    latencies = [each for each in points if each["metric"].endswith("node.request.latency.avg")]
    assert {each["attributes"] for each in latencies} == {'{"node.id":1}'}
