"""OpenTelemetry's MetricsData, as clients push it to brokers (KIP-714): protobuf to data points.

Only what a data point says is decoded; unknown fields are skipped, as protobuf asks for.
Source: opentelemetry/proto/metrics/v1/metrics.proto (fields below by number), KIP-714.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from crc32c import crc32c

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
VARINT_BITS_MAX: Final = 70
DEPTH_MAX: Final = 32
"""Of attribute values in each other."""
METRIC_TYPES: Final = {
    5: "gauge",
    7: "sum",
    9: "histogram",
    10: "exponential_histogram",
    11: "summary",
}
DELTA: Final = 1
DOUBLE, SIGNED, UNSIGNED = struct.Struct("<d"), struct.Struct("<q"), struct.Struct("<Q")
Scalar: TypeAlias = int | float | str | bool | None
Attribute: TypeAlias = Scalar | list["Attribute"] | dict[str, "Attribute"]
Fields: TypeAlias = Iterator[tuple[int, int, int | memoryview]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPoint:
    """One data point. Times are nanoseconds since 1970; 0: not set.

    The value of a histogram or summary is its sum, and None if it has none; `count` is 1 for
    numbers.
    """

    metric: str
    metric_type: str
    attributes: dict[str, Attribute]
    value: int | float | None
    count: int
    is_delta: bool
    start_time_ns: int
    time_ns: int


def checksum_of_text(text: str) -> int:
    """Return the CRC-32C of a text in UTF-8, of which subscription ids are made."""
    return int(crc32c(text.encode()))


def parse_metrics(data: memoryview) -> list[MetricPoint]:
    """Return the data points of a MetricsData message. Raises ValueError."""
    points: list[MetricPoint] = []
    for number, kind, value in _fields(data):
        if number == 1 and kind == BYTES:
            _resource_metrics(_message(value), points)
    return points


def _resource_metrics(data: memoryview, points: list[MetricPoint]) -> None:
    rows = list(_fields(data))
    resource: dict[str, Attribute] = {}
    for number, kind, value in rows:
        if number == 1 and kind == BYTES:
            resource.update(_attributes(_message(value), 1))
    for number, kind, value in rows:
        if number != 2 or kind != BYTES:
            continue
        for inner, inner_kind, metric in _fields(_message(value)):
            if inner == 2 and inner_kind == BYTES:
                points += _metric(_message(metric), resource)


def _metric(data: memoryview, resource: dict[str, Attribute]) -> Iterator[MetricPoint]:
    name, found = "", []
    for number, kind, value in _fields(data):
        if number == 1 and kind == BYTES:
            name = _text(value)
        elif number in METRIC_TYPES and kind == BYTES:
            found.append((METRIC_TYPES[number], _message(value)))
    for metric_type, message in found:
        rows = list(_fields(message))
        is_delta = any(number == 2 and value == DELTA for number, _, value in rows)
        for number, kind, value in rows:
            if number == 1 and kind == BYTES:
                yield _point(name, metric_type, _message(value), resource, is_delta=is_delta)


def _point(
    name: str,
    metric_type: str,
    data: memoryview,
    resource: dict[str, Attribute],
    *,
    is_delta: bool,
) -> MetricPoint:
    is_number = metric_type in ("gauge", "sum")
    of_attributes = 1 if metric_type == "exponential_histogram" else 7 if is_number else 9
    attributes = {**resource, **_attributes(data, 7 if metric_type == "summary" else of_attributes)}
    number: int | float | None = None
    count, times = 1, {2: 0, 3: 0}
    for field, kind, value in _fields(data):
        if kind != FIXED64:
            continue
        assert isinstance(value, memoryview), "a fixed-size field is bytes"
        if field in times:
            times[field] = UNSIGNED.unpack(value)[0]
        elif field == 4:
            if is_number:
                number = DOUBLE.unpack(value)[0]
            else:
                count = UNSIGNED.unpack(value)[0]
        elif field == 5 and not is_number:
            number = DOUBLE.unpack(value)[0]
        elif field == 6 and is_number:
            number = SIGNED.unpack(value)[0]
    return MetricPoint(
        metric=name,
        metric_type=metric_type,
        attributes=attributes,
        value=number,
        count=count,
        is_delta=is_delta,
        start_time_ns=times[2],
        time_ns=times[3],
    )


def _attributes(data: memoryview, wanted: int, depth: int = 0) -> dict[str, Attribute]:
    """Return the key-value pairs in the repeated field `wanted`."""
    found: dict[str, Attribute] = {}
    for number, kind, value in _fields(data):
        if number != wanted or kind != BYTES:
            continue
        key, content = "", memoryview(b"")
        for inner, inner_kind, part in _fields(_message(value)):
            if inner_kind == BYTES and inner == 1:
                key = _text(part)
            elif inner_kind == BYTES and inner == 2:
                content = _message(part)
        found[key] = _any_value(content, depth + 1)
    return found


def _any_value(data: memoryview, depth: int) -> Attribute:
    if depth > DEPTH_MAX:
        raise ValueError(f"attributes are nested deeper than {DEPTH_MAX}")
    found: Attribute = None
    for number, kind, value in _fields(data):
        if kind == VARINT and isinstance(value, int):
            if number == 2:
                found = bool(value)
            elif number == 3:
                found = value - 2**64 if value >= 2**63 else value
        elif kind == FIXED64 and number == 4:
            found = DOUBLE.unpack(_message(value))[0]
        elif kind == BYTES and number == 1:
            found = _text(value)
        elif kind == BYTES and number == 5:
            found = [
                _any_value(_message(each), depth + 1)
                for inner, inner_kind, each in _fields(_message(value))
                if inner == 1 and inner_kind == BYTES
            ]
        elif kind == BYTES and number == 6:
            found = _attributes(_message(value), 1, depth)
        elif kind == BYTES and number == 7:
            found = _message(value).hex()
    return found


def _message(value: int | memoryview) -> memoryview:
    assert isinstance(value, memoryview), "a field of this kind is bytes"
    return value


def _text(value: int | memoryview) -> str:
    return str(_message(value), "utf-8", "replace")


# --------------------------------------------------------------------------------------------------
# The wire format of protobuf


def _fields(data: memoryview) -> Fields:
    """Yield (field number, wire type, value): an int for a varint, else the bytes."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("a field has the number 0")
        if kind == VARINT:
            value, position = _varint(data, position)
            yield number, kind, value
            continue
        if kind == BYTES:
            size, position = _varint(data, position)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise ValueError(f"unknown wire type {kind}")
        if size > end - position:
            raise ValueError(f"a field of {size} bytes has {end - position}")
        yield number, kind, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    found = shift = 0
    while shift < VARINT_BITS_MAX:
        if position >= len(data):
            raise ValueError("a number is cut off")
        byte = data[position]
        position += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found & (2**64 - 1), position
        shift += 7
    raise ValueError("a number has more than ten bytes")
