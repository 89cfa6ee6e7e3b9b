"""One line of a dump: as Kafka's tool prints it, and as fields for JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

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
