"""The error response that replaces a response that could not be built or encoded.

A client controls what a response quotes, so it can cause one that cannot be encoded, such as an
error message that contains a name of 32,767 bytes. Such a request fails alone: its client gets
UNKNOWN_SERVER_ERROR in the form of its API, and if even that cannot be encoded its connection is
closed. Messages are not shortened below the maximum string size of the protocol: Kafka sends
messages of up to 32,767 bytes unchanged, and UNKNOWN_SERVER_ERROR instead of longer ones.

Source: kafka.server.RequestHandlerHelper.handleError; checked against Apache Kafka 3.9.1 and 4.4.0.
"""

from collections.abc import Sequence

from kraftsim.server.call import (
    Answer,
    Call,
    Closing,
    Connection,
    Encoded,
    Failed,
    NoAnswer,
    reason_of,
)
from kraftsim.server.events_connections import MessageFailed
from kraftsim.server.frame_server import FrameServer, ServedConnection
from kraftsim.world.interface import Chunk
from protocol.errors import ErrorCode
from protocol.requests import RequestHead, response_chunks

ERROR = ErrorCode.UNKNOWN_SERVER_ERROR
ANSWERED, CLOSED = "answered", "closed"


def encoding_failed(failure: Exception) -> Failed:
    """Return the result for a response that the encoder refused."""
    return Failed(f"the answer cannot be encoded: {reason_of(failure)}")


def answer_instead(
    failed: Failed,
    server: FrameServer,
    asked: RequestHead | Call,
    frame: bytes | None,
    connection: ServedConnection,
) -> Sequence[Chunk] | None:
    """Return the frame of the error response, with its size; None: the connection must be closed.

    Both emit an event.

    `frame` is the request if `asked` is only its header; without it there is no error response.
    """
    chunks = None
    try:
        if isinstance(asked, Call):
            chunks = _encoded(server.refuse_call(asked, ERROR), asked)
        elif frame is not None:
            chunks = _encoded(server.refuse(asked, frame, connection, ERROR), asked)
    except Exception:
        pass
    emit_failed(failed, asked, connection, ANSWERED if chunks is not None else CLOSED)
    return chunks


def emit_failed(
    failed: Failed, asked: RequestHead | Call, connection: Connection, action: str
) -> None:
    """Emit the event of a failed response."""
    connection.emit(
        MessageFailed(
            connection=connection.number,
            api_key=asked.api_key,
            api_version=asked.api_version,
            correlation_id=asked.correlation_id,
            is_response=True,
            reason=failed.reason,
            action=action,
        )
    )


def _encoded(refused: Answer, asked: RequestHead | Call) -> Sequence[Chunk] | None:
    if isinstance(refused, Encoded | NoAnswer | Closing | Failed):
        return None
    return response_chunks(asked.api_key, asked.api_version, asked.correlation_id, refused)
