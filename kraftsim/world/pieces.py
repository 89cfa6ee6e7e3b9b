"""The content of objects to write: pieces, some of which have not been read yet."""

from kraftsim.world.interface import Chunk, FileSlice


def bytes_of(piece: Chunk | FileSlice) -> Chunk:
    """Return the bytes of a piece, reading them if necessary. Raises OSError."""
    return piece if isinstance(piece, bytes | bytearray | memoryview) else piece.read()
