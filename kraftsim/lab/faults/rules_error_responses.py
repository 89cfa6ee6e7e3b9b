"""The error response of any API in any version, made from the definitions of its messages.

Kafka writes an error response by hand for each request (`getErrorResponse`). They follow three
rules, which are enough for all declared APIs. A response with an error code of its own has the
error there. A response with rows (a topic, a partition, a group) has a row for each one that the
request names, with the error in it: `_rows` finds which list of the request a list of the response
repeats, by the names of their fields. A response of Fetch has it in the rows alone, because its own
error code is that of the fetch session; `OF_ROWS` has the errors of other APIs that are like that.
Source: org.apache.kafka.common.requests.AbstractRequest.getErrorResponse of each request.
"""

from collections.abc import Iterator, Mapping
from typing import Final, cast

from kraftsim.lab.faults.rules_request_subjects import THROTTLE_TIME
from protocol.api_keys import ApiKey
from protocol.codec.declaration import Primitive
from protocol.codec.tree import ArrayLayout, PresentField, StructureLayout, layout_of
from protocol.errors import ErrorCode
from protocol.messages import registry
from protocol.messages.k01_fetch import LeaderIdAndEpoch as LeaderOfFetch
from protocol.messages.k01_fetch import PartitionData
from protocol.messages.k59_fetch_snapshot import LeaderIdAndEpoch as LeaderOfFetchSnapshot
from protocol.messages.k59_fetch_snapshot import PartitionSnapshot
from protocol.schema import Message

ERROR_FIELDS: Final = ("error_code", "partition_error_code")
NO_RESULT: Final = (
    "base_offset",
    "committed_offset",
    "high_watermark",
    "low_watermark",
    "node_id",
    "port",
    "producer_epoch",
)
"""Fields that Kafka sets to -1 beside an error, where their default is another value."""
NO_TEXT: Final = ("error_message", "protocol_name")
"""Texts that are null beside an error, in versions that can say so."""
SAME_MEANING: Final[Mapping[str, str]] = {
    "name": "topic",
    "topic_name": "topic",
    "user": "topic",
    "index": "partition",
    "partition_index": "partition",
    "partition_id": "partition",
}
"""Names of a row's key that differ between a request and its response."""
ROWS_ALONE: Final = (ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
"""APIs whose own error code is that of a session: an error of partitions is in the rows."""
OF_SESSIONS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
)
OF_QUORUM_ROWS: Final = (
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
)
OF_ROWS: Final[Mapping[int, tuple[ErrorCode, ...]]] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    ApiKey.ALTER_PARTITION: (
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    ),
    ApiKey.OFFSET_FETCH: (ErrorCode.UNSTABLE_OFFSET_COMMIT,),
    ApiKey.METADATA: (
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ),
    ApiKey.VOTE: OF_QUORUM_ROWS,
    ApiKey.BEGIN_QUORUM_EPOCH: OF_QUORUM_ROWS,
    ApiKey.END_QUORUM_EPOCH: OF_QUORUM_ROWS,
    ApiKey.FETCH_SNAPSHOT: (
        *OF_QUORUM_ROWS,
        ErrorCode.SNAPSHOT_NOT_FOUND,
        ErrorCode.POSITION_OUT_OF_RANGE,
    ),
}
"""Errors that concern a transaction, topic or partition, of APIs whose response could also have an
error of the whole: they are in its rows, and a request without rows has no such answer.
"""
OF_LAST_ROWS: Final = ((ApiKey.OFFSET_FETCH, ErrorCode.UNSTABLE_OFFSET_COMMIT),)
"""Errors of rows that hold no others: of partitions, not of groups."""
OF_QUORUM: Final = "__cluster_metadata"
ID_OF_QUORUM: Final = bytes(15) + b"\x01"
EPOCHS_ASKED: Final = ("replica_epoch", "current_leader_epoch", "leader_epoch")
SAID_BESIDE_ERRORS: Final[Mapping[int, tuple[str, ...]]] = {
    ApiKey.METADATA: ("brokers", "cluster_id", "controller_id"),
}
"""What a response says although it has an error, and clients rely on: a client that learns of no
broker has no place to ask.
"""
IN_SEVERAL_LISTS: Final = {"AlterUserScramCredentialsRequest": ("deletions", "upsertions")}
"""Requests whose rows are those of several lists."""
RESULTS: Final = ("leader_epoch", "log_start_offset")
"""Of a request what the client believes, of a row a result: not copied."""
ENTITY: Final = "entity"
BELOW_A_LEVEL: Final = {"AlterReplicaLogDirsRequest": "dirs"}
"""Requests with a level of rows that the response does not repeat."""


def error_response(api_key: int, api_version: int, request: Message, error: int) -> Message | None:
    """Return the response that reports an error of a whole request; None where the response has
    no place for it: an answer to a request without rows, in a version without an error code of its
    own (DescribeLogDirs before version 3, Metadata of all topics before version 13), or with an
    error of rows.
    """
    layout = layout_of(registry.response_class(api_key), api_version)
    asked = layout_of(registry.request_class(api_key), api_version)
    response = _empty(layout)
    own = _own_error(layout)
    if own is None or error in OF_ROWS.get(api_key, ()) or _is_of_partitions(api_key, error):
        if not _fill(response, layout, request, asked, error):
            return None
        if (api_key, error) in OF_LAST_ROWS:
            _clear_outer(response, layout)
        _add_leader(response, request, error)
        return cast(Message, response)
    setattr(response, own, error)
    return cast(Message, response)


def with_error(api_key: int, served: Message, refused: Message) -> Message:
    """Return the error response to a request that was served: with what its answer says anyway."""
    for name in SAID_BESIDE_ERRORS.get(api_key, ()):
        setattr(refused, name, getattr(served, name))
    return refused


def says_more(api_key: int) -> bool:
    """Return whether `with_error` needs the answer."""
    return api_key in SAID_BESIDE_ERRORS


def _is_of_partitions(api_key: int, error: int) -> bool:
    return api_key in ROWS_ALONE and error not in OF_SESSIONS


def _clear_outer(part: object, layout: StructureLayout) -> None:
    """Take the error back where rows below have it."""
    for field in layout.fields:
        element = field.type.element if isinstance(field.type, ArrayLayout) else None
        if not isinstance(element, StructureLayout) or not _reports(element):
            continue
        if (own := _own_error(layout)) is not None:
            setattr(part, own, 0)
        for row in getattr(part, field.name) or ():
            _clear_outer(row, element)


def _add_leader(response: object, request: Message, error: int) -> None:
    """Let the answer of a member of the quorum name the epoch that it was asked about, and no
    leader: as one that has resigned, or, for UNKNOWN_LEADER_EPOCH, one that has not heard of it.

    Source: org.apache.kafka.raft.KafkaRaftClient.validateLeaderOnlyRequest.
    """
    asked = [
        row
        for topic in getattr(request, "topics", None) or ()
        if _is_of_quorum(topic)
        for row in topic.partitions
    ]
    for topic in getattr(response, "responses", None) or getattr(response, "topics", None) or ():
        for row, of_request in zip(topic.partitions if asked else (), asked, strict=False):
            epoch = next(
                getattr(of_request, name) for name in EPOCHS_ASKED if hasattr(of_request, name)
            )
            said = epoch - (error == ErrorCode.UNKNOWN_LEADER_EPOCH)
            if isinstance(row, PartitionData):
                row.current_leader = LeaderOfFetch(leader_id=-1, leader_epoch=said)
            elif isinstance(row, PartitionSnapshot):
                row.current_leader = LeaderOfFetchSnapshot(leader_id=-1, leader_epoch=said)
            else:
                row.leader_id, row.leader_epoch = -1, said


def _is_of_quorum(topic: object) -> bool:
    names = [getattr(topic, name, "") for name in ("topic", "topic_name", "name")]
    return OF_QUORUM in names or getattr(topic, "topic_id", None) == ID_OF_QUORUM


def has_throttle_time(api_key: int, api_version: int) -> bool:
    """Return whether the response of an API has throttle_time_ms in a version."""
    layout = layout_of(registry.response_class(api_key), api_version)
    return any(field.name == THROTTLE_TIME for field in layout.fields)


def _own_error(layout: StructureLayout) -> str | None:
    return next((field.name for field in layout.fields if field.name in ERROR_FIELDS), None)


def _empty(layout: StructureLayout) -> object:
    """Return a response or row that has no result."""
    made: object = layout.cls()
    for field in layout.fields:
        if field.name in NO_RESULT:
            setattr(made, field.name, -1)
        elif field.name in NO_TEXT and field.nullable:
            setattr(made, field.name, None)
        elif field.type is Primitive.RECORDS and not field.nullable:
            setattr(made, field.name, b"")
    return made


def _fill(
    target: object, layout: StructureLayout, source: object, asked: StructureLayout, error: int
) -> bool:
    """Fill the lists of a response or row; return whether an error is in one of their rows."""
    has_error = False
    for field in layout.fields:
        element = field.type.element if isinstance(field.type, ArrayLayout) else None
        if isinstance(element, StructureLayout) and _reports(element):
            rows = list(_rows(field.name, element, source, asked, error))
            setattr(target, field.name, rows)
            has_error = has_error or any(_has_error(row, element) for row in rows)
    return has_error


def _reports(layout: StructureLayout) -> bool:
    """Return whether a row has an error code, or has rows that have."""
    return _own_error(layout) is not None or any(
        isinstance(field.type, ArrayLayout)
        and isinstance(field.type.element, StructureLayout)
        and _reports(field.type.element)
        for field in layout.fields
    )


def _has_error(row: object, layout: StructureLayout) -> bool:
    if _own_error(layout) is not None:
        return True
    return any(
        _has_error(each, field.type.element)
        for field in layout.fields
        if isinstance(field.type, ArrayLayout) and isinstance(field.type.element, StructureLayout)
        for each in getattr(row, field.name) or ()
    )


def _rows(
    name: str, element: StructureLayout, source: object, asked: StructureLayout, error: int
) -> Iterator[Message]:
    """Yield a row for each one of the list of a request that a list of its response repeats."""
    if (level := BELOW_A_LEVEL.get(asked.cls.__name__)) is not None:
        outer = next(field.type for field in asked.fields if field.name == level)
        assert isinstance(outer, ArrayLayout), f"{level} is a list"
        inner = cast(StructureLayout, outer.element)
        for row in getattr(source, level):
            yield from _rows(name, element, row, inner, error)
        return
    for field in _repeated(name, element, asked):
        assert isinstance(field.type, ArrayLayout), "only lists are chosen"
        for value in getattr(source, field.name) or ():
            yield _row(element, value, field.type.element, error)


def _repeated(name: str, element: StructureLayout, asked: StructureLayout) -> list[PresentField]:
    """Return the lists of a request that a list of its response repeats: by its name, else the
    first with rows of the same key.
    """
    lists = [field for field in asked.fields if isinstance(field.type, ArrayLayout)]
    if (names := IN_SEVERAL_LISTS.get(asked.cls.__name__)) is not None:
        return [field for field in lists if field.name in names]
    keys = {_meaning(field.name) for field in _keys(element)}
    like = [field for field in lists if _is_like(cast(ArrayLayout, field.type), element, keys)]
    return ([field for field in like if field.name == name] or like)[:1]


def _is_like(found: ArrayLayout, element: StructureLayout, keys: set[str]) -> bool:
    if not isinstance(found.element, StructureLayout):
        return any(field.type == found.element for field in _keys(element))
    names = {_meaning(field.name) for field in found.element.fields}
    return not keys or not keys.isdisjoint(names)


def _row(
    element: StructureLayout,
    value: object,
    asked: Primitive | ArrayLayout | StructureLayout,
    error: int,
) -> Message:
    row = _empty(element)
    if isinstance(asked, StructureLayout):
        _fill(row, element, value, asked, error)
        of_request = {_meaning(field.name): field for field in reversed(asked.fields)}
        for field in element.fields:
            other = of_request.get(_meaning(field.name))
            if other is not None and field.name not in (*ERROR_FIELDS, *RESULTS):
                _copy(row, field, getattr(value, other.name), other)
    else:
        setattr(row, next(field.name for field in _keys(element) if field.type == asked), value)
    if (own := _own_error(element)) is not None:
        setattr(row, own, error)
    return cast(Message, row)


def _copy(row: object, field: PresentField, value: object, other: PresentField) -> None:
    """Copy a key of a row: a value, or the entity of a quota, which is a list."""
    if field.name == ENTITY:
        of_row, of_request = field.type, other.type
        assert isinstance(of_row, ArrayLayout) and isinstance(of_request, ArrayLayout), ENTITY
        entity = cast(StructureLayout, of_row.element)
        assert isinstance(value, list), ENTITY
        names = [part.name for part in entity.fields]
        parts = [entity.cls(**{name: getattr(part, name) for name in names}) for part in value]
        setattr(row, field.name, parts)
    elif (
        isinstance(field.type, Primitive)
        and field.type == other.type
        and (value is not None or field.nullable)
    ):
        setattr(row, field.name, value)


def _keys(element: StructureLayout) -> list[PresentField]:
    """Return the fields of a row that may name what it is about."""
    return [
        field
        for field in element.fields
        if not isinstance(field.type, ArrayLayout | StructureLayout)
        and field.name not in (*ERROR_FIELDS, "error_message", THROTTLE_TIME)
    ]


def _meaning(name: str) -> str:
    return SAME_MEANING.get(name, name)
