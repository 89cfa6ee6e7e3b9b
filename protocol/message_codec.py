"""From a message class and a version to the two codecs of that pair.

`construct_of` is an ordinary Construct: the readable reference, which fits into any Struct. Its `.compile()` is the fused codec that nodes use,
which in turn fits into any compiled Struct.
"""

from collections.abc import Callable
from functools import cache
from typing import IO

import construct

from protocol.declaration import Declaration
from protocol.fuse_decode import Decoder
from protocol.fuse_decoder import fused_decoder
from protocol.fuse_encode import Chunks, Encoder, fused_builder, fused_encoder, fused_packer
from protocol.malformed import MalformedMessage
from protocol.reference import TAGGED, reference_of
from protocol.resolve import StructureLayout, layout_of
from protocol.schema import Message, declaration_of
from protocol.types import WireError

REFERENCE_SIZE_MAX = 256 * 1024
"""In longer input the field of an error is not looked for: the reference takes seconds per MiB, and a hostile peer chooses the bytes."""

DISAGREEMENT = " (but the reference finds nothing wrong)"
"""Ends the reason of an error that only the fused codec sees: a mistake of ours, which tests look for."""


@cache
def construct_of(cls: type, version: int) -> "MessageConstruct":
    """Return the Construct of a message class at a version that it declares."""
    return MessageConstruct(layout_of(cls, version))


@cache
def compiled(cls: type, version: int) -> "CompiledMessage":
    """Return the fused codec of a message class at a version that it declares; its functions are made when first called."""
    return construct_of(cls, version).compile()


class MessageConstruct(construct.Construct):  # type: ignore[misc]
    """A message at one version. Interpreted it is a plain Struct of Kafka's types, compiled it is fused."""

    def __init__(self, layout: StructureLayout) -> None:
        super().__init__()
        self.layout = layout
        self.declaration: Declaration = declaration_of(layout.cls)
        self.reference = reference_of(layout)
        self._compiled: CompiledMessage | None = None

    def compile(self, filename: str | None = None) -> "CompiledMessage":
        """Return the fused codec; the sources are in `linecache`, no file is written."""
        if self._compiled is None:
            self._compiled = CompiledMessage(self)
        return self._compiled

    def malformed(self, error: WireError, *, start: int = 0) -> MalformedMessage:
        """Name the field of an error."""
        path = (
            error.wire_path.removeprefix("(parsing)")
            .removeprefix("(building)")
            .replace(f" -> {TAGGED} -> ", " -> ")
            .removeprefix(" -> ")
            .replace(" -> ", ".")
        )
        position = None if error.position is None else error.position - start
        return MalformedMessage(self.declaration.api_key, self.layout.version, path, error.reason, position)

    def _parse(self, stream: IO[bytes], context: object, path: str) -> Message:
        start = stream.tell()
        try:
            return self.reference._parsereport(stream, context, path)
        except WireError as error:
            raise self.malformed(error, start=start) from error

    def _build(self, obj: Message, stream: IO[bytes], context: object, path: str) -> Message:
        try:
            self.reference._build(obj, stream, context, path)
        except WireError as error:
            raise self.malformed(error) from error
        return obj

    def _sizeof(self, context: object, path: str) -> int:
        raise construct.SizeofError(path=path)

    def _emitparse(self, code: construct.CodeGen) -> str:
        code.linkedinstances[id(self)] = self.compile()
        return f"linkedinstances[{id(self)}].parse_embedded(io)"

    def _emitbuild(self, code: construct.CodeGen) -> str:
        code.linkedinstances[id(self)] = self.compile()
        return f"linkedinstances[{id(self)}].build_embedded(obj, io)"


class CompiledMessage(construct.Compiled):  # type: ignore[misc]
    """The fused codec of a message at one version.

    `decode(buffer, position) -> (message, position behind it)` and `encode_into(message, chunks)` are plain functions once they were called.
    Bytes behind the message are the caller's affair. All failures are MalformedMessage.
    """

    decode: Decoder
    encode_into: Encoder
    encode: Callable[[Message], bytes]

    def __init__(self, message_construct: MessageConstruct) -> None:
        super().__init__(self._parse_with_context, self._build_with_context)
        self.defersubcon = message_construct
        self.layout = message_construct.layout
        self._construct = message_construct
        self.decode = self._first_decode
        self.encode_into = self._first_encode_into
        self.encode = self._first_encode

    def parse(self, data: bytes, **context: object) -> Message:
        """Parse a message from the beginning of `data`."""
        return self.decode(data, 0)[0]

    def build(self, obj: Message, **context: object) -> bytes:
        """Build a message."""
        return self.encode(obj)

    def packer(self, prefix: str, otherwise: Callable[..., bytes]) -> Callable[..., bytes] | None:
        """Return `pack(*prefix_values, message) -> bytes` if all messages of this layout have one size, else None.

        `prefix` are struct codes; messages with unknown tags or wrong values are handed to `otherwise`, with the same arguments.
        """
        return fused_packer(self.layout, prefix, otherwise)

    def parse_embedded(self, stream: IO[bytes]) -> Message:
        """Parse from a stream, for compiled Structs around this message. Copies the stream: for files and tests."""
        start = stream.tell()
        message, size = self.decode(stream.read(), 0)
        stream.seek(start + size)
        return message

    def build_embedded(self, obj: Message, stream: IO[bytes]) -> Message:
        """Build into a stream, for compiled Structs around this message."""
        stream.write(self.encode(obj))
        return obj

    def _parse_with_context(self, stream: IO[bytes], context: object) -> Message:
        return self.parse_embedded(stream)

    def _build_with_context(self, obj: Message, stream: IO[bytes], context: object) -> Message:
        return self.build_embedded(obj, stream)

    def _first_decode(self, buffer: bytes, position: int = 0) -> tuple[Message, int]:
        self.decode = fused_decoder(self.layout, self._decode_failure)
        return self.decode(buffer, position)

    def _first_encode_into(self, message: Message, chunks: Chunks) -> None:
        self.encode_into = fused_encoder(self.layout, self._encode_failure)
        self.encode_into(message, chunks)

    def _first_encode(self, message: Message) -> bytes:
        general = fused_builder(self.layout, self._encode_failure)
        self.encode = self.packer("", general) or general
        return self.encode(message)

    def _decode_failure(self, buffer: bytes, start: int, error: Exception) -> MalformedMessage:
        """Parse once more, with the reference, to learn in which field the fused decoder failed."""
        api_key, version = self._construct.declaration.api_key, self.layout.version
        if len(buffer) - start > REFERENCE_SIZE_MAX:
            return MalformedMessage(api_key, version, "", str(error))
        try:
            self._construct.parse(buffer[start:])
        except MalformedMessage as malformed:
            return malformed
        return MalformedMessage(api_key, version, "", f"{error}{DISAGREEMENT}")

    def _encode_failure(self, message: Message, error: Exception) -> MalformedMessage:
        """Build once more, with the reference, to learn in which field the fused encoder failed."""
        try:
            self._construct.build(message)
        except MalformedMessage as malformed:
            return malformed
        return MalformedMessage(self._construct.declaration.api_key, self.layout.version, "", f"{error}{DISAGREEMENT}")
