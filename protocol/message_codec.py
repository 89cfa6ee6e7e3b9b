"""Maps a message class and a version to the fused codec of that pair, which nodes use.

Its functions are compiled on the first call, and only then is the compiler imported. The readable
Construct of the same pair (`message_construct`) is created only on demand: by
`Message.construct(version)`, or to find the field of an error.
"""

from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from protocol.declaration import Declaration
from protocol.malformed import MalformedMessage
from protocol.resolve import StructureLayout, layout_of
from protocol.schema import declaration_of

if TYPE_CHECKING:
    from protocol.fuse_encode import Chunks
    from protocol.message_construct import MessageConstruct

T = TypeVar("T")
Decoded = TypeVar("Decoded", covariant=True)

REFERENCE_SIZE_MAX = 256 * 1024
REFERENCE_READS_MAX = 10_000
"""Limits of the search for the field of an error: the reference would take seconds for more, and a
hostile peer chooses the bytes.
"""

DISAGREEMENT = " (but the reference finds nothing wrong)"
"""The end of the reason of an error that only the fused codec reports: a bug of ours, which tests
search for.
"""


class DecodeFunction(Protocol[Decoded]):
    """What `CompiledMessage.decode` is."""

    def __call__(self, buffer: bytes, position: int = 0) -> tuple[Decoded, int]: ...


class CompiledMessage(Generic[T]):
    """The fused codec of messages of class T at one version.

    `decode(buffer, position) -> (message, end position)`, `encode(message) -> bytes` and
    `encode_into(message, chunks)`, which appends bytes to a list and leaves record batches
    uncopied, are plain functions after their first call. Bytes after the message are left to the
    caller. The buffer is bytes or an mmap; a bytearray or memoryview is accepted, too, but copied.
    All errors are MalformedMessage.
    """

    decode: DecodeFunction[T]
    encode: Callable[[T], bytes]
    encode_into: "Callable[[T, Chunks], None]"

    def __init__(self, layout: StructureLayout) -> None:
        self.layout = layout
        self.declaration: Declaration = declaration_of(layout.cls)
        self.decode = self._first_decode
        self.encode = self._first_encode
        self.encode_into = self._first_encode_into
        self._lenient: DecodeFunction[T] | None = None

    def parse(self, data: bytes) -> T:
        """Return the message at the start of some bytes."""
        return self.decode(data, 0)[0]

    def build(self, message: T) -> bytes:
        """Return the bytes of a message; another name of `encode`."""
        return self.encode(message)

    def decoder(self) -> DecodeFunction[T]:
        """Return the compiled `decode`, for callers that keep it."""
        if self.decode == self._first_decode:
            self._make_decode()
        return self.decode

    def packer(self, prefix: str, otherwise: Callable[..., bytes]) -> Callable[..., bytes] | None:
        """Return `pack(*prefix_values, message) -> bytes` if all messages of this layout have one
        size, else None.

        `prefix` are struct codes; messages with unknown tags or wrong values are passed to
        `otherwise`, with the same arguments.
        """
        from protocol.fuse_encode import fused_packer

        return fused_packer(self.layout, prefix, otherwise)

    def _first_decode(self, buffer: bytes, position: int = 0) -> tuple[T, int]:
        self._make_decode()
        return self.decode(buffer, position)

    def _first_encode(self, message: T) -> bytes:
        self._make_encode()
        return self.encode(message)

    def _first_encode_into(self, message: T, chunks: "Chunks") -> None:
        self._make_encode_into()
        self.encode_into(message, chunks)

    def _make_decode(self) -> None:
        from protocol.fuse_decoder import fused_decoder

        self.decode = cast(
            "DecodeFunction[T]",
            fused_decoder(self.layout, self._decode_failure, self._decode_leniently),
        )

    def _make_encode(self) -> None:
        from protocol.fuse_encode import fused_builder

        general = fused_builder(self.layout, self._encode_failure)
        self.encode = self.packer("", general) or general

    def _make_encode_into(self) -> None:
        from protocol.fuse_encode import fused_encoder

        self.encode_into = fused_encoder(self.layout, self._encode_failure)

    def _decode_leniently(self, buffer: bytes, start: int, error: Exception) -> tuple[T, int]:
        """Decode invalid UTF-8, or a buffer of another type than bytes."""
        if not isinstance(buffer, bytes):
            return self.decode(bytes(buffer), start)
        if not isinstance(error, UnicodeDecodeError):
            raise error
        if self._lenient is None:
            from protocol.fuse_decoder import fused_decoder

            self._lenient = cast(
                "DecodeFunction[T]", fused_decoder(self.layout, self._decode_failure, None)
            )
        return self._lenient(buffer, start)

    def _decode_failure(self, buffer: bytes, start: int, error: Exception) -> MalformedMessage:
        """Decode again with the reference, to find the field in which the fused decoder failed."""
        if len(buffer) - start > REFERENCE_SIZE_MAX:
            return MalformedMessage(self.declaration.api_key, self.layout.version, "", str(error))
        try:
            self._construct().parse_stream(_Tiring(buffer[start:]))
        except MalformedMessage as malformed:
            return malformed
        except _Tired:
            return MalformedMessage(self.declaration.api_key, self.layout.version, "", str(error))
        return MalformedMessage(
            self.declaration.api_key, self.layout.version, "", f"{error}{DISAGREEMENT}"
        )

    def _encode_failure(self, message: object, error: Exception) -> MalformedMessage:
        """Encode again with the reference, to find the field in which the fused encoder failed."""
        try:
            self._construct().build(message)
        except MalformedMessage as malformed:
            return malformed
        return MalformedMessage(
            self.declaration.api_key, self.layout.version, "", f"{error}{DISAGREEMENT}"
        )

    def _construct(self) -> "MessageConstruct":
        return construct_of(self.layout.cls, self.layout.version)


class _Tired(Exception):
    """The reference has reached its limit."""


class _Tiring(BytesIO):
    """A stream that may be read from REFERENCE_READS_MAX times."""

    _reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self._reads += 1
        if self._reads > REFERENCE_READS_MAX:
            raise _Tired
        return super().read(size)


def compiled(cls: type[T], version: int) -> CompiledMessage[T]:
    """Return the fused codec of a message class at a version; UnknownVersion if it does not declare
    that.
    """
    found = _COMPILED.get((cls, version))
    if found is None:
        found = _COMPILED[cls, version] = CompiledMessage(layout_of(cls, version))
    return found


def construct_of(cls: type, version: int) -> "MessageConstruct":
    """Return the Construct of a message class at a version; UnknownVersion if it does not declare
    that.
    """
    found = _CONSTRUCTS.get((cls, version))
    if found is None:
        from protocol.message_construct import MessageConstruct

        found = _CONSTRUCTS[cls, version] = MessageConstruct(layout_of(cls, version))
    return found


_COMPILED: dict[tuple[type, int], CompiledMessage[Any]] = {}
_CONSTRUCTS: "dict[tuple[type, int], MessageConstruct]" = {}
