"""The traffic of one check, kept so that an unmet requirement can show what was sent and
received.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from protocol.api_keys import ApiKey
from protocol.malformed import MalformedMessage
from protocol.requests import (
    UnsupportedApi,
    decode_request,
    decode_response,
    peek_correlation_id,
    read_request_head,
)

KEPT_PIECES = 400
KEPT_BYTES = 8192
"""The limit of one piece; a longer one is truncated and marked."""
SHOWN_PIECES = 8
SHOWN_BYTES = 96
SHOWN_CHARACTERS = 300
SIZE_BYTES = 4


class Way(Enum):
    """The direction of a piece."""

    SENT = ">"
    CAME = "<"
    ENDED = "x"


@dataclass(slots=True)
class Piece:
    """Bytes in one direction without any in the other; for the end of a connection, how it
    ended.
    """

    connection: int
    way: Way
    data: bytes
    size: int
    words: str = ""


class Transcript:
    """The last pieces of all connections of one check, in their order."""

    def __init__(self) -> None:
        self._pieces: deque[Piece] = deque(maxlen=KEPT_PIECES)
        self._connections = 0

    def next_connection(self) -> int:
        """Return a number for a new connection."""
        self._connections += 1
        return self._connections

    def sent(self, connection: int, data: bytes) -> None:
        """Record what was sent; consecutive pieces are merged."""
        last = self._pieces[-1] if self._pieces else None
        if (
            last is not None
            and last.connection == connection
            and last.way is Way.SENT
            and last.size < SHOWN_BYTES
        ):
            last.data += data[: KEPT_BYTES - len(last.data)]
            last.size += len(data)
            return
        self._pieces.append(Piece(connection, Way.SENT, bytes(data[:KEPT_BYTES]), len(data)))

    def came(self, connection: int, frame: bytes) -> None:
        """Record a received frame, without its size."""
        self._pieces.append(Piece(connection, Way.CAME, bytes(frame[:KEPT_BYTES]), len(frame)))

    def ended(self, connection: int, words: str) -> None:
        """Record how a connection ended, or that nothing was received."""
        self._pieces.append(Piece(connection, Way.ENDED, b"", 0, words))

    def lines(self) -> list[str]:
        """Return the last pieces as text: their meaning, and their bytes."""
        asked: dict[tuple[int, int], tuple[int, int]] = {}
        returned = [self._lines_of(piece, asked) for piece in self._pieces]
        shown = returned[-SHOWN_PIECES:]
        left_out = (
            [f"({len(returned) - len(shown)} pieces before these)"]
            if len(shown) < len(returned)
            else []
        )
        return left_out + [line for lines in shown for line in lines]

    def _lines_of(self, piece: Piece, asked: dict[tuple[int, int], tuple[int, int]]) -> list[str]:
        mark = f"#{piece.connection} {piece.way.value}"
        if piece.way is Way.ENDED:
            return [f"{mark} {piece.words}"]
        meaning = (
            list(_meaning_of_sent(piece, asked))
            if piece.way is Way.SENT
            else [_meaning_of_answer(piece, asked)]
        )
        return [
            f"{mark} {piece.size} bytes: {meaning[0]}",
            *(f"     {more}" for more in meaning[1:]),
            f"     {_hex(piece)}",
        ]


def _meaning_of_sent(piece: Piece, asked: dict[tuple[int, int], tuple[int, int]]) -> Iterator[str]:
    """Describe each frame of a piece, and store its API and version for the response."""
    data, position, frames = piece.data, 0, 0
    while position + SIZE_BYTES <= len(data):
        size = int.from_bytes(data[position : position + SIZE_BYTES], signed=True)
        frame = data[position + SIZE_BYTES : position + SIZE_BYTES + max(size, 0)]
        if size < 0 or len(frame) < size:
            break
        position += SIZE_BYTES + size
        frames += 1
        meaning = _meaning_of_request(frame, piece.connection, asked)
        if frames <= SHOWN_PIECES:
            yield meaning
    if frames > SHOWN_PIECES:
        yield f"... {frames} frames"
    if position < len(data) or not frames:
        yield f"{len(data) - position} bytes that are no whole frame"


def _meaning_of_request(
    frame: bytes, connection: int, asked: dict[tuple[int, int], tuple[int, int]]
) -> str:
    try:
        head = read_request_head(frame)
        asked[connection, head.correlation_id] = (head.api_key, head.api_version)
        name = (
            f"{_api(head.api_key)} v{head.api_version}, correlation id {head.correlation_id}, "
            f"client id {_shortened(repr(head.client_id), 60)}"
        )
    except (MalformedMessage, UnsupportedApi) as trouble:
        return f"no request that can be read ({trouble})"
    try:
        return _shortened(f"{name}: {decode_request(head, frame)!r}")
    except (MalformedMessage, UnsupportedApi) as trouble:
        return f"{name}: a body that cannot be read ({trouble})"


def _meaning_of_answer(piece: Piece, asked: dict[tuple[int, int], tuple[int, int]]) -> str:
    try:
        correlation_id = peek_correlation_id(piece.data)
        pair = asked.get((piece.connection, correlation_id))
        if pair is None:
            return f"an answer to correlation id {correlation_id}, which was not asked"
        body = decode_response(*pair, piece.data)[1]
    except (MalformedMessage, UnsupportedApi) as trouble:
        return f"an answer that cannot be read ({trouble})"
    return _shortened(f"{_api(pair[0])} v{pair[1]}, correlation id {correlation_id}: {body!r}")


def _api(api_key: int) -> str:
    if api_key not in ApiKey._value2member_map_:
        return f"API {api_key}"
    return "".join(word.capitalize() for word in ApiKey._value2member_map_[api_key].name.split("_"))


def _hex(piece: Piece) -> str:
    more = f" ... {piece.size - SHOWN_BYTES} more" if piece.size > SHOWN_BYTES else ""
    return piece.data[:SHOWN_BYTES].hex(" ", -2) + more


def _shortened(text: str, characters: int = SHOWN_CHARACTERS) -> str:
    return text if len(text) <= characters else f"{text[:characters]}..."
