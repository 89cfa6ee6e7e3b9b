"""Errors in the bytes of record batches, each with the error code that a broker returns.

A Produce handler turns these into its response; log recovery truncates the file at `position`.
Source: DefaultRecordBatch, ByteBufferLogInputStream, ProduceRequest.validateRecords, LogValidator;
codes observed on 3.9.1.
"""

from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage


class MalformedBatch(MalformedMessage):
    """Bytes that should be a record batch are not one; `position` is where the batch starts in its
    buffer.
    """

    def __init__(
        self, reason: str, position: int = 0, error_code: ErrorCode = ErrorCode.INVALID_RECORD
    ) -> None:
        super().__init__(None, None, "record batch", reason, position)
        self.error_code = error_code


class TornBatch(MalformedBatch):
    """The buffer ends before the batch does: a truncated header or truncated records."""


class UnsupportedMagic(MalformedBatch):
    """An unsupported message format: one that exists (rejected as INVALID_RECORD), or garbage
    (CORRUPT_MESSAGE).
    """

    def __init__(self, magic: int, position: int = 0, spoken: str = "only 2 is") -> None:
        once_existed = 0 <= magic <= 2
        super().__init__(
            f"magic {magic}, {spoken} spoken here",
            position,
            ErrorCode.INVALID_RECORD if once_existed else ErrorCode.CORRUPT_MESSAGE,
        )
        self.magic = magic


class MalformedRecord(MalformedBatch):
    """A record inside a batch is inconsistent: its length, a varint, its headers, or the number of
    records.
    """


class UndecodableRecords(MalformedBatch):
    """Compressed records that their codec cannot read, or a codec number that does not exist."""

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(reason, position, ErrorCode.UNKNOWN_SERVER_ERROR)


class UnconvertibleBatch(MalformedBatch):
    """Valid records that the target message format or codec cannot represent."""

    def __init__(
        self, reason: str, position: int = 0, error_code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    ) -> None:
        super().__init__(reason, position, error_code)
