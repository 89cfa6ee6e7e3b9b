"""How a client names itself in the frames of one connection: mostly alike, so the bytes of the last name are compared, and not read.

Source: org.apache.kafka.common.requests.RequestHeader.
"""

from kraftsim.node.inbox import Buffer

FLEXIBLE_HEADER = 2
"""The version of the request header that ends with tagged fields."""
CLIENT_ID_SIZE_BYTES = 2
ClientBytes = tuple[bytes, int, str | None]
"""How a client names itself, as bytes; where the body begins in a frame, its size included; and the name."""
CLIENT_ID_POSITION = 12
"""Where the client id begins in a frame, its own size first; from there to the body all requests of a client are mostly alike."""
UNKNOWN_CLIENT: ClientBytes = (b"", CLIENT_ID_POSITION + 1, None)
"""No frame has nothing there."""


class ClientNames:
    """The names seen last on a connection, by version of the request header."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known = [UNKNOWN_CLIENT] * (FLEXIBLE_HEADER + 1)

    def of(self, buffer: Buffer, position: int, header_version: int) -> ClientBytes:
        """Read how the client names itself in the frame at `position`; UNKNOWN_CLIENT if there is more or less than a name."""
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
        found = self._known[header_version] = (raw, CLIENT_ID_POSITION + len(raw), None if size < 0 else name)
        return found
