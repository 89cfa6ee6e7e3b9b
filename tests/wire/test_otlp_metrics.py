"""MetricsData of OpenTelemetry: data points, and damaged bytes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.otlp_metrics import METRIC_TYPES, MetricPoint, parse_metrics


def varint(number: int) -> bytes:
    found = b""
    while number >= 0x80:
        found += bytes((number & 0x7F | 0x80,))
        number >>= 7
    return found + bytes((number,))


def part(number: int, content: bytes) -> bytes:
    """A field of bytes."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def fixed(number: int, value: float | int) -> bytes:
    """A field of eight bytes."""
    packed = struct.pack("<d" if isinstance(value, float) else "<q", value)
    return varint(number << 3 | 1) + packed


def attribute(key: str, value: bytes) -> bytes:
    return part(1, key.encode()) + part(2, value)


def metrics_data(metric: bytes, resource: bytes = b"") -> bytes:
    """One metric of one scope of one resource."""
    scope = part(2, part(1, part(1, b"scope")) + part(2, metric))
    return part(1, part(1, resource) + scope)


def test_a_sum_and_a_gauge_are_decoded() -> None:
    """What Apache Kafka's clients push: delta sums and gauges of doubles."""
    point = (
        part(7, attribute("topic", part(1, b"t")))
        + fixed(2, 5_000_000)
        + fixed(3, 9_000_000)
        + fixed(4, 2.5)
    )
    total = part(1, b"m.total") + part(7, part(1, point) + varint(2 << 3) + varint(1))
    gauge = part(1, b"m.now") + part(5, part(1, fixed(6, -7)))
    data = metrics_data(total, part(1, attribute("client_rack", part(1, b"r")))) + metrics_data(
        gauge
    )
    assert parse_metrics(memoryview(data)) == [
        MetricPoint(
            metric="m.total",
            metric_type="sum",
            attributes={"client_rack": "r", "topic": "t"},
            value=2.5,
            count=1,
            is_delta=True,
            start_time_ns=5_000_000,
            time_ns=9_000_000,
        ),
        MetricPoint(
            metric="m.now",
            metric_type="gauge",
            attributes={},
            value=-7,
            count=1,
            is_delta=False,
            start_time_ns=0,
            time_ns=0,
        ),
    ]


@pytest.mark.parametrize(("field", "metric_type"), [(9, "histogram"), (11, "summary")])
def test_sum_and_count_of_distributions_are_decoded(field: int, metric_type: str) -> None:
    point = fixed(4, 3) + fixed(5, 7.5)
    metric = part(1, b"latency") + part(field, part(1, point))
    (found,) = parse_metrics(memoryview(metrics_data(metric)))
    assert (found.metric_type, found.value, found.count) == (metric_type, 7.5, 3)


def test_attribute_values_of_all_types_are_decoded() -> None:
    values = {
        "bool": varint(2 << 3) + varint(1),
        "int": varint(3 << 3) + varint(2**64 - 2),
        "double": fixed(4, 0.5),
        "list": part(5, part(1, part(1, b"x")) + part(1, varint(3 << 3) + varint(4))),
        "map": part(6, part(1, attribute("k", part(1, b"v")))),
        "bytes": part(7, b"\x01\xff"),
        "none": b"",
    }
    point = b"".join(part(7, attribute(key, value)) for key, value in values.items())
    metric = part(1, b"m") + part(5, part(1, point))
    (found,) = parse_metrics(memoryview(metrics_data(metric)))
    assert found.attributes == {
        "bool": True,
        "int": -2,
        "double": 0.5,
        "list": ["x", 4],
        "map": {"k": "v"},
        "bytes": "01ff",
        "none": None,
    }


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00",
        b"\x0a\x05\x00",
        b"\x0a",
        b"\x80" * 11,
        b"\x0b",
        b"\x0a\x02\x0a\x7f",
    ],
)
def test_damaged_metrics_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"field|number|wire type|bytes"):
        parse_metrics(memoryview(data))


def test_attributes_nested_without_end_are_refused() -> None:
    """One push must not exhaust the stack."""
    value = part(1, b"x")
    for _ in range(200):
        value = part(5, part(1, value))
    metric = part(1, b"m") + part(5, part(1, part(7, attribute("deep", value))))
    with pytest.raises(ValueError, match="nested"):
        parse_metrics(memoryview(metrics_data(metric)))


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    """Nothing but ValueError, also for what looks like a data point."""
    for field in METRIC_TYPES:
        for metric in (data, part(field, data), part(field, part(1, data))):
            try:
                parse_metrics(memoryview(metrics_data(metric, data)))
            except ValueError:
                continue
