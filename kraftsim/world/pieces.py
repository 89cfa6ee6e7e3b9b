"""What objects are written from: pieces of which some have not been read yet."""

from kraftsim.world.interface import Chunk, FileSlice


def bytes_of(piece: Chunk | FileSlice) -> Chunk:
    """Return the bytes of a piece, read or not. Raises OSError."""
    return piece if isinstance(piece, bytes | bytearray | memoryview) else piece.read()
