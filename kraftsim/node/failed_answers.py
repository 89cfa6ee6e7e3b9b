"""The answer that takes the place of one that could not be built or encoded.

A client chooses what an answer quotes, so it can ask for one that the protocol cannot carry, as a
refusal with a name of 32,767 bytes in a sentence. Such a request fails alone: its client gets
UNKNOWN_SERVER_ERROR in the form of its API, and where even that cannot be encoded its connection
is closed. Messages are not cut below what a string of the protocol can hold: Kafka sends messages
of up to 32,767 bytes as they are, and UNKNOWN_SERVER_ERROR instead of longer ones.

Source: kafka.server.RequestHandlerHelper.handleError; asked of Apache Kafka 3.9.1 and 4.4.0.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kraftsim.events.connections import MessageFailed
from kraftsim.node.call import Answer, Call, Closing, Encoded, Failed, NoAnswer, reason_of
from kraftsim.world.interface import Chunk
from protocol.errors import ErrorCode
from protocol.requests import RequestHead, response_chunks

if TYPE_CHECKING:
    from kraftsim.node.connection import ServerConnection
    from kraftsim.node.frame_server import FrameServer

ERROR = ErrorCode.UNKNOWN_SERVER_ERROR
ANSWERED, CLOSED = "answered", "closed"


def encoding_failed(failure: Exception) -> Failed:
    """Return what to report of an answer that the encoder refused."""
    return Failed(f"the answer cannot be encoded: {reason_of(failure)}")


def answer_instead(
    failed: Failed, server: "FrameServer", asked: RequestHead | Call, frame: bytes | None, connection: "ServerConnection"
) -> Sequence[Chunk] | None:
    """Return the frame of the refusal, with its size; None: the connection has to be closed. Either is noted as an event.

    `frame` is the request where `asked` is only its header; without it there is no refusal.
    """
    chunks = None
    try:
        if isinstance(asked, Call):
            chunks = _encoded(server.refuse_call(asked, ERROR), asked)
        elif frame is not None:
            chunks = _encoded(server.refuse(asked, frame, connection, ERROR), asked)
    except Exception:
        pass
    note_failed(failed, asked, connection, ANSWERED if chunks is not None else CLOSED)
    return chunks


def note_failed(failed: Failed, asked: RequestHead | Call, connection: "ServerConnection", action: str) -> None:
    """Report a failed answer."""
    connection.note(
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
