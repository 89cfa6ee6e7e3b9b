"""Client telemetry (KIP-714): which subscription a client gets, and which pushes are accepted."""

from itertools import count

import pytest

from kraftsim.client_telemetry.rules_client_telemetry import (
    INSTANCES_MAX,
    ClientInstance,
    Push,
    TelemetryMoment,
    TelemetryRules,
    subscription_of,
)
from kraftsim.core.decision import Refusal
from protocol.errors import ErrorCode

CLIENT = {
    "client_id": "app-1",
    "client_software_name": "apache-kafka-java",
    "client_software_version": "4.1.2",
    "client_source_address": "127.0.0.1",
    "client_source_port": "5000",
}
START_MS = 1_000_000_000
INTERVAL_MS = 1_000
NEW = bytes(16)
BYTES_MAX = 1000


class TelemetryHarness:
    """One broker with one subscription of all metrics of org.apache every second."""

    def __init__(self, *, ends_instances: bool = True) -> None:
        numbers = count(2)
        self.rules = TelemetryRules(
            lambda: next(numbers).to_bytes(16), BYTES_MAX, ends_instances=ends_instances
        )
        self.rules.subscribe({"all": {"metrics": "org.apache", "interval.ms": str(INTERVAL_MS)}})
        self.now_ms = 0

    @property
    def now(self) -> TelemetryMoment:
        return TelemetryMoment(START_MS + self.now_ms, self.now_ms)

    def ask(self, instance_id: bytes = NEW, connection: int = 1) -> ClientInstance | ErrorCode:
        """Ask for the subscription, and return the instance or the error."""
        found = self.rules.subscription(instance_id, CLIENT, connection, self.now)
        return found.error if isinstance(found, Refusal) else found

    def asked(self, instance_id: bytes = NEW, connection: int = 1) -> ClientInstance:
        found = self.ask(instance_id, connection)
        assert isinstance(found, ClientInstance)
        return found

    def push(
        self,
        instance: ClientInstance,
        *,
        subscription_id: int | None = None,
        is_terminating: bool = False,
        compression: int = 4,
        size_bytes: int = 10,
    ) -> ErrorCode:
        """Push, and return the error."""
        wanted = instance.subscription_id if subscription_id is None else subscription_id
        push = Push(
            instance_id=instance.instance_id,
            subscription_id=wanted,
            is_terminating=is_terminating,
            compression=compression,
            size_bytes=size_bytes,
        )
        found = self.rules.push(push, CLIENT, 1, self.now)
        return found.error if isinstance(found, Refusal) else ErrorCode.NONE


@pytest.fixture
def harness() -> TelemetryHarness:
    return TelemetryHarness()


def test_a_client_gets_an_instance_id_and_what_is_subscribed(harness: TelemetryHarness) -> None:
    instance = harness.asked()
    assert instance.instance_id not in (NEW, b"") and instance.interval_ms == INTERVAL_MS
    assert instance.metrics == ("org.apache",)
    assert harness.push(instance) is ErrorCode.NONE


def test_pushes_before_the_interval_is_over_are_throttled(harness: TelemetryHarness) -> None:
    """Except the first one after the subscription, and the terminating one."""
    instance = harness.asked()
    assert harness.push(instance) is ErrorCode.NONE
    harness.now_ms += INTERVAL_MS - 1
    assert harness.push(instance) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert harness.ask(instance.instance_id) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    harness.now_ms += 1
    assert harness.push(instance) is ErrorCode.NONE
    assert harness.push(instance, is_terminating=True) is ErrorCode.NONE


def test_nothing_is_accepted_right_after_the_terminating_push(harness: TelemetryHarness) -> None:
    """Kafka keeps the flag of the last push, refused or not: the one after that is accepted."""
    instance = harness.asked()
    assert harness.push(instance, is_terminating=True) is ErrorCode.NONE
    harness.now_ms += INTERVAL_MS
    assert harness.push(instance) is ErrorCode.INVALID_REQUEST
    assert harness.push(instance) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("compression", "size_bytes", "error"),
    [
        (5, 10, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (-1, 10, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (0, BYTES_MAX, ErrorCode.NONE),
        (1, BYTES_MAX + 1, ErrorCode.TELEMETRY_TOO_LARGE),
    ],
)
def test_a_push_is_refused_for_what_it_contains(
    harness: TelemetryHarness, compression: int, size_bytes: int, error: ErrorCode
) -> None:
    instance = harness.asked()
    assert harness.push(instance, compression=compression, size_bytes=size_bytes) is error


def test_an_unknown_subscription_is_asked_for_again_at_once(harness: TelemetryHarness) -> None:
    instance = harness.asked()
    assert harness.push(instance, subscription_id=1) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert harness.asked(instance.instance_id) is instance
    assert harness.push(instance, compression=9) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert harness.ask(instance.instance_id) is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_a_changed_subscription_replaces_the_instance(harness: TelemetryHarness) -> None:
    """Its client keeps the instance id and may ask at once; the refused push counts as one."""
    first = harness.asked()
    assert harness.push(first) is ErrorCode.NONE
    harness.rules.subscribe({"all": {"metrics": "*,org", "interval.ms": "5000"}})
    assert harness.push(first) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    second = harness.asked(first.instance_id)
    assert (second.instance_id, second.metrics) == (first.instance_id, ("*",))
    assert second.interval_ms == 5_000 and second.subscription_id != first.subscription_id
    assert harness.push(second) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    harness.now_ms += 5_000
    assert harness.push(second) is ErrorCode.NONE


def test_without_a_subscription_nothing_is_asked_for(harness: TelemetryHarness) -> None:
    harness.rules.subscribe({})
    instance = harness.asked()
    assert (instance.metrics, instance.interval_ms) == ((), 300_000)


@pytest.mark.parametrize(
    ("match", "is_matching"),
    [
        ("client_id=app-.*", True),
        ("client_id=app", False),
        ("client_id=app-.*,client_software_version=4\\..*", True),
        ("client_id=app-.*,client_source_port=1", False),
        ("client_instance_id=AAAA.*", True),
    ],
)
def test_a_subscription_matches_clients_by_all_of_its_patterns(
    match: str, is_matching: bool
) -> None:
    found = subscription_of({"match": match, "metrics": "a"})
    assert found.matches({**CLIENT, "client_instance_id": "AAAAx"}) is is_matching


@pytest.mark.parametrize("instance_id", [NEW, NEW[:-1] + b"\x01"])
def test_a_push_needs_an_instance_id(harness: TelemetryHarness, instance_id: bytes) -> None:
    push = Push(
        instance_id=instance_id,
        subscription_id=1,
        is_terminating=False,
        compression=0,
        size_bytes=0,
    )
    found = harness.rules.push(push, CLIENT, 1, harness.now)
    assert isinstance(found, Refusal) and found.error is ErrorCode.INVALID_REQUEST


def test_instances_are_forgotten(harness: TelemetryHarness) -> None:
    """With their connection, after three intervals (at least a minute), and when there are too
    many.
    """
    instance = harness.asked()
    assert harness.push(instance) is ErrorCode.NONE
    harness.rules.disconnect(1)
    assert harness.asked(instance.instance_id) is not instance, "not throttled"
    instance = harness.asked(connection=2)
    harness.now_ms += 59_999
    assert harness.asked(instance.instance_id) is instance
    harness.now_ms += 60_000
    assert harness.asked(instance.instance_id) is not instance
    for number in range(INSTANCES_MAX):
        harness.asked(connection=number + 10)
    assert harness.asked(instance.instance_id).asked_ms == harness.now.wall_ms


@pytest.mark.parametrize(
    ("first", "metrics", "interval_ms", "expected"),
    [
        (16, "", 300_000, -725132322),
        (77, "", 300_000, -992523298),
        (
            77,
            "org.apache.kafka.producer.,org.apache.kafka.consumer.,a.b,c,zz",
            1000,
            796514098,
        ),
        (16, ",".join(f"m{number}" for number in range(12)), 1000, -1017953000),
        (16, ",".join(f"metric.{number * 7}" for number in range(40)), 500, 501716071),
    ],
)
def test_subscription_ids_are_those_of_apache_kafka(
    first: int, metrics: str, interval_ms: int, expected: int
) -> None:
    """CRC-32C of the names in the order of a Java set, mixed with the hash of the instance id:
    measured with Apache Kafka 4.1.2 and 4.4.0.
    """
    harness = TelemetryHarness()
    harness.rules.subscribe({"s": {"metrics": metrics, "interval.ms": str(interval_ms)}})
    assert harness.asked(bytes(range(first, first + 16))).subscription_id == expected


def test_before_4_0_an_instance_outlives_its_connection() -> None:
    """And errors do not shorten the interval (3.7.2, 3.9.1)."""
    harness = TelemetryHarness(ends_instances=False)
    instance = harness.asked()
    assert harness.push(instance, subscription_id=1) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert harness.ask(instance.instance_id) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    harness.rules.disconnect(1)
    assert harness.ask(instance.instance_id) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
