"""Maps a message class and a version to the codec of that pair, which nodes use.

There are two forms of every codec (`codec.choice`): fused code, which the compiler wrote once and
the store keeps, and construct's own interpretation of the same tree. Both are made on the first
call. A node that finds its code in the store imports neither construct nor the compiler; construct
is imported to find the field of an error, by `Message.construct(version)`, and with `--codec
construct`.
"""

from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from protocol.codec import store
from protocol.codec.choice import FOLLOWERS, is_interpreted
from protocol.codec.declaration import Declaration, UnknownVersion, declaration_of
from protocol.codec.slow import RUNTIME
from protocol.codec.source import Function
from protocol.malformed import MalformedMessage

if TYPE_CHECKING:
    from protocol.codec.interpreted import MessageConstruct, VersionedMessage
    from protocol.codec.tree import StructureLayout

T = TypeVar("T")
Decoded = TypeVar("Decoded", covariant=True)
Chunks = list[bytes | memoryview]

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
    """The codec of messages of class T at one version.

    `decode(buffer, position) -> (message, end position)`, `encode(message) -> bytes` and
    `encode_into(message, chunks)`, which appends bytes to a list and leaves record batches
    uncopied, are plain functions after their first call. Bytes after the message are left to the
    caller. The buffer is bytes or an mmap; a bytearray or memoryview is accepted, too, but copied.
    All errors are MalformedMessage.
    """

    decode: DecodeFunction[T]
    encode: Callable[[T], bytes]
    encode_into: Callable[[T, Chunks], None]

    def __init__(self, cls: type[T], version: int) -> None:
        self.cls = cls
        self.version = version
        self.declaration: Declaration = declaration_of(cls)
        if version not in self.declaration.versions:
            raise UnknownVersion(self.declaration.name, self.declaration.versions, version)
        self.is_flexible = version in self.declaration.flexible
        self._lenient: DecodeFunction[T] | None = None
        self.forget()

    def forget(self) -> None:
        """Make the functions again on their next call."""
        self.decode = self._first_decode
        self.encode = self._first_encode
        self.encode_into = self._first_encode_into

    @property
    def layout(self) -> "StructureLayout":
        """The construct tree of the message at this version."""
        from protocol.codec.tree import layout_of

        return layout_of(self.cls, self.version)

    @property
    def holds_records(self) -> bool:
        """Whether it can contain record batches, which are never copied."""
        # attr-defined: set when the class is generated
        ranges: tuple[tuple[int, int], ...] = self.cls.__records__  # type: ignore[attr-defined]
        return any(first <= self.version <= last for first, last in ranges)

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
        if is_interpreted():
            return None
        return self._generated(f"pack {prefix}", "pack", otherwise=otherwise)

    def _first_decode(self, buffer: bytes, position: int = 0) -> tuple[T, int]:
        self._make_decode()
        return self.decode(buffer, position)

    def _first_encode(self, message: T) -> bytes:
        self._make_encode()
        return self.encode(message)

    def _first_encode_into(self, message: T, chunks: Chunks) -> None:
        self._make_encode_into()
        self.encode_into(message, chunks)

    def _make_decode(self) -> None:
        if is_interpreted():
            self.decode = cast("DecodeFunction[T]", self._construct().decode)
        else:
            made = self._generated(
                "decode", "decode", failure=self._decode_failure, again=self._decode_leniently
            )
            self.decode = cast("DecodeFunction[T]", made)

    def _make_encode(self) -> None:
        self.encode = (
            self._construct().encode
            if is_interpreted()
            else self._generated("encode", "encode", failure=self._encode_failure)
        )

    def _make_encode_into(self) -> None:
        if is_interpreted():
            self.encode_into = self._construct().encode_into
        else:
            self.encode_into = self._generated(
                "encode into", "encode_into", failure=self._encode_failure
            )

    def _generated(self, title: str, function: str, **scope: object) -> Function:
        """Return a function from the store, or let the compiler write it."""

        def source() -> str:
            from protocol.codec import compiler

            match title:
                case "decode" | "decode leniently":
                    return compiler.decoder_source(
                        self.cls, self.version, is_lenient=title != "decode"
                    )
                case "encode":
                    return compiler.builder_source(self.cls, self.version)
                case "encode into":
                    return compiler.encoder_source(self.cls, self.version)
            return compiler.packer_source(self.cls, self.version, title.removeprefix("pack "))

        made: Function = store.generated(
            self.cls, self.version, title, source, {**RUNTIME, **scope}
        )[function]
        return made

    def _decode_leniently(self, buffer: bytes, start: int, error: Exception) -> tuple[T, int]:
        """Decode invalid UTF-8, or a buffer of another type than bytes."""
        if not isinstance(buffer, bytes):
            return self.decode(bytes(buffer), start)
        if not isinstance(error, UnicodeDecodeError):
            raise error
        if self._lenient is None:
            self._lenient = cast(
                "DecodeFunction[T]",
                self._generated("decode leniently", "decode", failure=self._decode_failure),
            )
        return self._lenient(buffer, start)

    def _decode_failure(self, buffer: bytes, start: int, error: Exception) -> MalformedMessage:
        """Decode again with the reference, to find the field in which the fused decoder failed."""
        if len(buffer) - start > REFERENCE_SIZE_MAX:
            return MalformedMessage(self.declaration.api_key, self.version, "", str(error))
        try:
            self._construct().parse_stream(_Tiring(buffer[start:]))
        except MalformedMessage as malformed:
            return malformed
        except _Tired:
            return MalformedMessage(self.declaration.api_key, self.version, "", str(error))
        return MalformedMessage(
            self.declaration.api_key, self.version, "", f"{error}{DISAGREEMENT}"
        )

    def _encode_failure(self, message: object, error: Exception) -> MalformedMessage:
        """Encode again with the reference, to find the field in which the fused encoder failed."""
        try:
            self._construct().build(message)
        except MalformedMessage as malformed:
            return malformed
        return MalformedMessage(
            self.declaration.api_key, self.version, "", f"{error}{DISAGREEMENT}"
        )

    def _construct(self) -> "MessageConstruct":
        return construct_of(self.cls, self.version)


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
        found = _COMPILED[cls, version] = CompiledMessage(cls, version)
    return found


def construct_of(cls: type, version: int) -> "MessageConstruct":
    """Return the Construct of a message class at a version; UnknownVersion if it does not declare
    that.
    """
    found = _CONSTRUCTS.get((cls, version))
    if found is None:
        from protocol.codec.interpreted import MessageConstruct
        from protocol.codec.tree import layout_of

        found = _CONSTRUCTS[cls, version] = MessageConstruct(
            layout_of(cls, version), compiled(cls, version)
        )
    return found


def versioned_construct_of(cls: type) -> "VersionedMessage":
    """Return the construct of a message class in all its versions."""
    from protocol.codec.interpreted import VersionedMessage

    return VersionedMessage(cls)


def _follow_choice() -> None:
    for codec in _COMPILED.values():
        codec.forget()


FOLLOWERS.append(_follow_choice)
_COMPILED: dict[tuple[type, int], CompiledMessage[Any]] = {}
_CONSTRUCTS: "dict[tuple[type, int], MessageConstruct]" = {}
