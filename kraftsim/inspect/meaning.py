"""Explains values: names of errors and APIs, uuids in Kafka's notation, times, and the content of
bytes fields.

It works on decoded trees, so it cannot change the decoding.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from kraftsim.inspect.frames import CapturedFrame, FrameKind, api_name
from kraftsim.inspect.parts import DecodeTrouble, Part, joined
from kraftsim.inspect.record_values import (
    METADATA_TOPIC,
    OPENERS,
    Opener,
    is_metadata_record,
    open_control_record,
    open_metadata_record,
    open_version_prefixed,
)
from kraftsim.inspect.records import RECORDS, dissect_batches
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.records.batches import CONTROL_BIT
from protocol.uuids import METADATA_TOPIC_ID, ZERO_UUID
from protocol.version_prefixed import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    DefaultPrincipalData,
)

FIRST_LIKELY_TIME_MS: Final = 946_684_800_000  # 2000-01-01: smaller numbers are no times
LAST_LIKELY_TIME_MS: Final = 4_102_444_800_000  # 2100-01-01
TOPIC_FIELDS: Final = ("topic", "name", "topic_name")
WORDS: Final[dict[str, dict[int, str]]] = {
    "acks": {-1: "all in-sync replicas", 0: "none: no response follows", 1: "the leader"},
    "isolation_level": {0: "read uncommitted", 1: "read committed"},
    "key_type": {0: "group", 1: "transaction", 2: "share"},
    "pattern_type": {1: "any", 2: "match", 3: "literal", 4: "prefixed"},
    "permission_type": {1: "any", 2: "deny", 3: "allow"},
    "leader_recovery_state": {0: "recovered", 1: "recovering"},
    "replica_id": {-1: "a consumer", -2: "a debugging consumer"},
}
"""By the name of the field."""
EMBEDDED: Final[dict[tuple[int, str], type]] = {
    (ApiKey.JOIN_GROUP, "metadata"): ConsumerProtocolSubscription,
    (ApiKey.SYNC_GROUP, "assignment"): ConsumerProtocolAssignment,
    (ApiKey.DESCRIBE_GROUPS, "member_metadata"): ConsumerProtocolSubscription,
    (ApiKey.DESCRIBE_GROUPS, "member_assignment"): ConsumerProtocolAssignment,
    (ApiKey.ENVELOPE, "request_principal"): DefaultPrincipalData,
}
"""Messages in bytes fields, by API and field."""
LIST_OFFSETS_TIMES: Final = {
    -1: "latest",
    -2: "earliest",
    -3: "largest timestamp",
    -4: "earliest local",
    -5: "latest tiered",
}


@dataclass(slots=True)
class MeaningNames:
    """Topic ids and the names that were seen with them."""

    topics: dict[bytes, str] = field(default_factory=lambda: {METADATA_TOPIC_ID: METADATA_TOPIC})


def explain(frame: CapturedFrame, names: MeaningNames, *, with_records: bool = True) -> None:
    """Add explanations to a frame's tree, and decode its record batches; errors inside them are
    added to the frame's troubles.
    """
    for part in frame.tree.parts:
        _explain(part, names, frame.api_key)
    body = frame.body
    if body is not None:
        _Records(frame, names, with_records).explore(body, "", None)


def open_values(
    batches: list[Part], path: str, topic: str | None, names: MeaningNames, *, guess: bool = False
) -> list[DecodeTrouble]:
    """Decode the records of batches as far as their topic, or the control bit, identifies them;
    return the errors.
    """
    troubles: list[DecodeTrouble] = []
    for batch in batches:
        records = batch.part(RECORDS)
        if records is None or not records.parts:
            continue
        opener: Opener | None = (
            open_control_record
            if batch.integer("attributes", 0) & CONTROL_BIT
            else OPENERS.get(topic or "")
        )
        if opener is None and guess and all(_is_metadata(record) for record in records.parts):
            opener = open_metadata_record
        place = joined(f"{path}{batch.name}", RECORDS)
        for record in records.parts:
            _explain_times(record)
            if opener is not None:
                key, value = record.part("key"), record.part("value")
                assert key is not None and value is not None, "a record has key and value"
                troubles += opener(key, value, f"{place}{record.name}")
                for each in (*(key.parts or ()), *(value.parts or ())):
                    _explain(each, names, None)
    return troubles


def time_text(milliseconds: int) -> str:
    """Return a timestamp as text, in UTC; empty if it is implausible."""
    if not FIRST_LIKELY_TIME_MS <= milliseconds <= LAST_LIKELY_TIME_MS:
        return ""
    return (
        datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        + f".{milliseconds % 1000:03d} UTC"
    )


def error_name(code: int) -> str:
    """Return the name of an error code."""
    found = _ERRORS.get(code)
    return f"there is no error {code}" if found is None else found


_ERRORS: Final = {int(code): code.name for code in ErrorCode}


def _is_metadata(record: Part) -> bool:
    value = record.part("value")
    return value is not None and is_metadata_record(
        value.value if isinstance(value.value, bytes) else None
    )


def _explain_times(record: Part) -> None:
    timestamp = record.part("timestamp")
    if timestamp is not None and isinstance(timestamp.value, int):
        timestamp.emit = time_text(timestamp.value)


def _explain(part: Part, names: MeaningNames, api_key: int | None) -> None:
    if not part.emit:
        part.emit = _explanation_of(part, names, api_key)
    for each in part.parts or ():
        _explain(each, names, api_key)
    _learn(part, names)


def _explanation_of(part: Part, names: MeaningNames, api_key: int | None) -> str:
    value = part.value
    if part.kind == "uuid" and isinstance(value, bytes):
        known = names.topics.get(value) if part.name in ("topic_id", "id") else None
        return f"topic {known}" if known else ""
    if not isinstance(value, int) or isinstance(value, bool):
        return ""
    if part.kind == "int16" and (part.name == "error_code" or part.name.endswith("_error_code")):
        return error_name(value)
    if part.name in ("api_key", "request_api_key"):
        return api_name(value)
    if part.name == "timestamp" and api_key == ApiKey.LIST_OFFSETS and value in LIST_OFFSETS_TIMES:
        return LIST_OFFSETS_TIMES[value]
    if part.kind == "int64" and ("timestamp" in part.name or part.name.endswith("_time_ms")):
        return time_text(value)
    return WORDS.get(part.name, {}).get(value, "")


def _learn(part: Part, names: MeaningNames) -> None:
    """Store the name of a topic id."""
    topic_id, name = part.part("topic_id"), _topic_name(part)
    if (
        name
        and topic_id is not None
        and isinstance(topic_id.value, bytes)
        and topic_id.value != ZERO_UUID
    ):
        names.topics[topic_id.value] = name


def _topic_name(part: Part) -> str | None:
    for field_name in TOPIC_FIELDS:
        found = part.text(field_name)
        if found:
            return found
    return None


class _Records:
    """Finds the record batches of a body, and the topic that they belong to."""

    def __init__(self, frame: CapturedFrame, names: MeaningNames, with_records: bool) -> None:
        self._frame = frame
        self._names = names
        self._with_records = with_records

    def explore(self, part: Part, path: str, topic: str | None) -> None:
        """Decode every field of records below a part."""
        topic = _topic_name(part) or topic
        topic_id = part.part("topic_id")
        if topic_id is not None and isinstance(topic_id.value, bytes):
            topic = self._names.topics.get(topic_id.value, topic)
        for each in part.parts or ():
            place = joined(path, each.name)
            self._open_embedded(each, place)
            if each.kind == "records" and isinstance(each.value, bytes):
                self._open(each, each.value, place, topic)
            elif each.parts:
                self.explore(each, place, topic)

    def _open_embedded(self, part: Part, path: str) -> None:
        """Decode embedded consumer protocol messages; other content is allowed, so what does not
        match is not decoded.
        """
        cls = EMBEDDED.get((self._frame.api_key, part.name))
        if cls is None or not isinstance(part.value, bytes) or not part.value:
            return
        attempt = Part(part.name, part.kind, part.start, part.end, part.value)
        if not open_version_prefixed(attempt, cls, path, later_as_newest=True):
            part.parts, part.emit, part.kind = attempt.parts, attempt.emit, attempt.kind

    def _open(self, part: Part, value: bytes, path: str, topic: str | None) -> None:
        troubles: list[DecodeTrouble] = []
        start = part.end - len(value)
        part.parts = dissect_batches(
            self._frame.content, start, part.end, path, troubles, with_records=self._with_records
        )
        part.emit = f"{len(value)} bytes"
        if (
            troubles
            and troubles[-1].reason.startswith("the last batch is torn")
            and self._may_be_torn()
        ):
            part.emit += f", the last batch is truncated at byte {part.end}"
            troubles.pop()
        troubles += open_values(part.parts, path, topic, self._names)
        part.value = None
        self._frame.tree.troubles += troubles

    def _may_be_torn(self) -> bool:
        """A broker truncates a fetch response at the requested number of bytes; consumers ignore
        the partial last batch.
        """
        return self._frame.kind is FrameKind.RESPONSE
