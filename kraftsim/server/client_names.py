"""Client ids in the frames of one connection: usually identical, so the bytes are compared with the
previous ones instead of parsed.

Source: org.apache.kafka.common.requests.RequestHeader.
"""

from collections.abc import Callable

from kraftsim.server.inbox import Buffer

FLEXIBLE_HEADER = 2
"""The request header version that ends with tagged fields."""
CLIENT_ID_SIZE_BYTES = 2
ClientBytes = tuple[bytes, int, str | None]
"""The client id as bytes; the position of the body in a frame, including the size; and the decoded
client id.
"""
CLIENT_ID_POSITION = 12
"""The position of the client id's length in a frame; from there to the body all requests of a
client are usually identical.
"""
ClientOf = Callable[[Buffer, int, int], ClientBytes]
"""Returns the client id of the frame at a position of a buffer, by request header version."""
UNKNOWN_CLIENT: ClientBytes = (b"", CLIENT_ID_POSITION + 1, None)
"""Matches no frame, because no frame has zero bytes there."""


class ClientNames:
    """The latest client ids of a connection, by request header version."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known = [UNKNOWN_CLIENT] * (FLEXIBLE_HEADER + 1)

    def of(self, buffer: Buffer, position: int, header_version: int) -> ClientBytes:
        """Return the client id of the frame at `position`; UNKNOWN_CLIENT if the header has other
        content than a client id.
        """
        position += CLIENT_ID_POSITION
        known = self._known[header_version]
        if buffer[position : position - CLIENT_ID_POSITION + known[1]] == known[0]:
            return known
        size = int.from_bytes(buffer[position : position + CLIENT_ID_SIZE_BYTES], signed=True)
        name_end = position + CLIENT_ID_SIZE_BYTES + max(size, 0)
        end = name_end + (header_version == FLEXIBLE_HEADER)
        raw = buffer[position:end]
        if len(raw) != end - position or any(buffer[name_end:end]):
            return UNKNOWN_CLIENT
        try:
            name = buffer[position + CLIENT_ID_SIZE_BYTES : name_end].decode()
        except UnicodeDecodeError:
            return UNKNOWN_CLIENT
        found = self._known[header_version] = (
            raw,
            CLIENT_ID_POSITION + len(raw),
            None if size < 0 else name,
        )
        return found
