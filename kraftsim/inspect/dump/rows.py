"""One line of a dump: as Kafka's tool prints it, and as fields for JSON."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kraftsim.inspect.json_lines import Json


class Severity(Enum):
    """Whether a row shows content, or an error."""

    CONTENT = "content"
    WRONG = "wrong"
    """Kafka's tool prints these to standard error, and so does this one."""
    NOTICE = "notice"
    """A remark, not necessarily an error; also to standard error."""
    ENDS_EARLY = "ends early"
    """Bytes at the end that are no batch: Kafka's tool prints them among the content."""


@dataclass(frozen=True, slots=True)
class DumpRow:
    """`kind` is the type of the fields: batch, record, offsetIndexEntry, ..."""

    kind: str
    text: str
    fields: Mapping[str, Json] = field(default_factory=dict)
    severity: Severity = Severity.CONTENT


def wrong(text: str, **fields: Json) -> DumpRow:
    """Return a row about an error."""
    return DumpRow("wrong", text, {"reason": text, **fields}, Severity.WRONG)


def words_of(fields: Mapping[str, Json]) -> str:
    """Return fields as Kafka's tools print them: `name: value name: value`."""
    return " ".join(f"{name}: {java_text(value)}" for name, value in fields.items())


def java_text(value: Json) -> str:
    """Return a value as Java prints it; a list as Scala's mkString does for Kafka's tool."""
    if isinstance(value, list):
        return f"[{','.join(map(java_text, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


# --------------------------------------------------------------------------------------------------
# JSON text as Jackson writes it: no spaces, non-ASCII letters unescaped, doubles in Java's
# notation
#
# Source: com.fasterxml.jackson.databind.JsonNode.toString, java.lang.Double.toString.

FIRST_EXPONENT, LAST_PLAIN = 1e-3, 1e7
_TEXT: Final = json.JSONEncoder(ensure_ascii=False)


def json_text(value: Json) -> str:
    """Return the text of a JSON value."""
    match value:
        case dict():
            return (
                "{"
                + ",".join(
                    f"{_TEXT.encode(name)}:{json_text(each)}" for name, each in value.items()
                )
                + "}"
            )
        case list():
            return "[" + ",".join(map(json_text, value)) + "]"
        case float():
            return java_double(value)
        case _:
            return _TEXT.encode(value)


def java_double(value: float) -> str:
    """Return a double as Java prints it: 1.0E7 instead of 10000000.0."""
    if (
        value == 0
        or FIRST_EXPONENT <= abs(value) < LAST_PLAIN
        or value != value
        or value in (float("inf"), float("-inf"))
    ):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(value), repr(value))
    digits, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        digits, _, exponent = _scientific(value).partition("e")
    if "." not in digits:
        digits += ".0"
    return f"{digits}E{int(exponent)}"


def _scientific(value: float) -> str:
    """Return the shortest digits that identify the double, with an exponent."""
    for precision in range(17):
        text = f"{value:.{precision}e}"
        if float(text) == value:
            return text
    raise AssertionError("17 digits name every double")
