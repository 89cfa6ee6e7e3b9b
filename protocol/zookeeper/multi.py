"""Several requests that are applied atomically: each after its own header, an empty header at the
end.

Source: org.apache.zookeeper.{MultiOperationRecord, MultiResponse}.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from protocol.codec.message_codec import compiled
from protocol.malformed import MalformedMessage
from protocol.schema import Message, boolean, int32, message
from protocol.zookeeper.op_codes import OpCode
from protocol.zookeeper.znodes import (
    Create2Response,
    CreateRequest,
    CreateTtlRequest,
    GetChildrenResponse,
    GetDataResponse,
    PathOnly,
    SetDataRequest,
    StatResponse,
    VersionedPath,
    WatchedPath,
)


@message(kind="zookeeper", versions="0")
class MultiHeader:
    """The type of the next one; -1 and done at the end."""

    op_code: int = int32(default=-1, kafka_name="type")
    done: bool = boolean(default=True)
    error: int = int32(default=-1, kafka_name="err")


@message(kind="zookeeper", versions="0")
class ErrorResult:
    """The error of one that failed, or 0 for one before it, or -2 (runtime inconsistency) for one
    after it.
    """

    error: int = int32(kafka_name="err")


END: Final = MultiHeader()
WRITES: Final[dict[int, type]] = {
    OpCode.CREATE: CreateRequest,
    OpCode.CREATE_2: CreateRequest,
    OpCode.CREATE_CONTAINER: CreateRequest,
    OpCode.CREATE_TTL: CreateTtlRequest,
    OpCode.DELETE: VersionedPath,
    OpCode.SET_DATA: SetDataRequest,
    OpCode.CHECK: VersionedPath,
}
READS: Final[dict[int, type]] = {OpCode.GET_CHILDREN: WatchedPath, OpCode.GET_DATA: WatchedPath}
RESULTS: Final[dict[int, type | None]] = {
    OpCode.CREATE: PathOnly,
    OpCode.CREATE_2: Create2Response,
    OpCode.CREATE_CONTAINER: Create2Response,
    OpCode.CREATE_TTL: Create2Response,
    OpCode.DELETE: None,
    OpCode.SET_DATA: StatResponse,
    OpCode.CHECK: None,
    OpCode.GET_CHILDREN: GetChildrenResponse,
    OpCode.GET_DATA: GetDataResponse,
    OpCode.ERROR: ErrorResult,
}
"""The result of each; None: only its header."""
RESULT_TYPES: Final[dict[int, int]] = {
    OpCode.CREATE_CONTAINER: OpCode.CREATE_2,
    OpCode.CREATE_TTL: OpCode.CREATE_2,
}
"""Results with the type of another one."""
Asked = tuple[OpCode, Message]
Result = tuple[OpCode, Message | None]


def parse_multi(content: bytes, position: int, kinds: dict[int, type]) -> list[Asked]:
    """Return the requests.

    Raises MalformedMessage, also for types that are not among `kinds` (WRITES or READS).
    """
    asked: list[Asked] = []
    decode_header = compiled(MultiHeader, 0).decode
    while True:
        header, position = decode_header(content, position)
        if header.done:
            return asked
        cls = kinds.get(header.op_code)
        if cls is None:
            raise MalformedMessage(
                None,
                None,
                f"operations[{len(asked)}]",
                f"type {header.op_code} cannot be one of several",
                position,
            )
        body: Message
        body, position = compiled(cls, 0).decode(content, position)
        asked.append((OpCode(header.op_code), body))


def build_multi(asked: Iterable[Asked]) -> bytes:
    """Return the bytes of several requests."""
    return b"".join(
        (
            *(_header(op_code) + compiled(type(body), 0).encode(body) for op_code, body in asked),
            compiled(MultiHeader, 0).encode(END),
        )
    )


def build_multi_results(results: Sequence[Result]) -> bytes:
    """Return the bytes of the results."""
    pieces: list[bytes] = []
    for op_code, body in results:
        error = body.error if isinstance(body, ErrorResult) else 0
        pieces += (
            _header(RESULT_TYPES.get(op_code, op_code), error),
            compiled(type(body), 0).encode(body) if body is not None else b"",
        )
    return b"".join((*pieces, compiled(MultiHeader, 0).encode(END)))


def parse_multi_results(content: bytes, position: int) -> list[Result]:
    """Return the results. Raises MalformedMessage."""
    results: list[Result] = []
    decode_header = compiled(MultiHeader, 0).decode
    while True:
        header, position = decode_header(content, position)
        if header.done:
            return results
        if header.op_code not in RESULTS:
            raise MalformedMessage(
                None,
                None,
                f"results[{len(results)}]",
                f"type {header.op_code} is none of a result",
                position,
            )
        cls = RESULTS[header.op_code]
        body: Message = None
        if cls is not None:
            body, position = compiled(cls, 0).decode(content, position)
        results.append((OpCode(header.op_code), body))


def _header(op_code: int, error: int = -1) -> bytes:
    return compiled(MultiHeader, 0).encode(MultiHeader(op_code=op_code, done=False, error=error))
