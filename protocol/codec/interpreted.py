"""A message as an ordinary Construct, which construct interprets, and which fits into any Struct.

Interpreted it is a plain Struct of Kafka's types, and many times slower than the compiled form:
nodes use it with `--codec construct`, tests compare the two, and after an error it runs again to
find the field. Its `.compile()` is a `construct.Compiled` around the fused codec, which in turn
fits into any compiled Struct: construct's own code generator is neither fast nor strict enough (it
returns short data silently).
Source: construct.core (Construct, Compiled, CodeGen).
"""

from io import BytesIO
from typing import IO, Protocol

import construct

from protocol.codec.declaration import Declaration, Message, declaration_of
from protocol.codec.tree import TAGGED, StructureLayout, layout_of, version_of
from protocol.codec.types import Context, WireError
from protocol.malformed import MalformedMessage


class FusedCodec(Protocol):
    """The fused codec of the same message, as `compile` hands it out: a `CompiledMessage`."""

    def decode(self, buffer: bytes, position: int = 0, /) -> tuple[Message, int]: ...
    def encode(self, message: Message, /) -> bytes: ...
    def encode_into(self, message: Message, chunks: list[bytes | memoryview], /) -> None: ...


class MessageConstruct(construct.Construct):  # type: ignore[misc]  # construct has no types
    """A message at one version; errors are MalformedMessage."""

    def __init__(self, layout: StructureLayout, fused: FusedCodec) -> None:
        super().__init__()
        self.layout = layout
        self._fused = fused
        self.declaration: Declaration = declaration_of(layout.cls)
        self._compiled: CompiledConstruct | None = None

    def compile(self, filename: str | None = None) -> "CompiledConstruct":
        """Return the fused codec; the sources are in `linecache`, no file is written."""
        if self._compiled is None:
            self._compiled = CompiledConstruct(self, self._fused)
        return self._compiled

    def decode(
        self, buffer: bytes | bytearray | memoryview, position: int = 0
    ) -> tuple[Message, int]:
        """Interpret the message at a position of a buffer; return it and its end position."""
        stream = BytesIO(buffer)
        stream.seek(position)
        return self.parse_stream(stream), stream.tell()

    def encode(self, message: Message) -> bytes:
        """Build a message; errors of any kind are MalformedMessage, as those of the compiled
        form.
        """
        try:
            built: bytes = self.build(message)
        except (AttributeError, TypeError, ValueError) as error:
            if isinstance(error, MalformedMessage):
                raise
            raise MalformedMessage(
                self.declaration.api_key, self.layout.version, "", str(error)
            ) from error
        return built

    def encode_into(self, message: Message, chunks: list[bytes | memoryview]) -> None:
        """Append the bytes of a message to a list."""
        chunks.append(self.encode(message))

    def malformed(self, error: WireError, *, start: int = 0) -> MalformedMessage:
        """Add the field to an error."""
        path = (
            error.wire_path.removeprefix("(parsing)")
            .removeprefix("(building)")
            .replace(f" -> {TAGGED} -> ", " -> ")
            .removeprefix(" -> ")
            .replace(" -> ", ".")
        )
        position = None if error.position is None else error.position - start
        return MalformedMessage(
            self.declaration.api_key, self.layout.version, path, error.reason, position
        )

    def _parse(self, stream: IO[bytes], context: object, path: str) -> Message:
        start = stream.tell()
        try:
            return self.layout._parsereport(stream, context, path)
        except WireError as error:
            raise self.malformed(error, start=start) from error

    def _build(self, obj: Message, stream: IO[bytes], context: object, path: str) -> Message:
        try:
            self.layout._build(obj, stream, context, path)
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


class VersionedMessage(construct.Construct):  # type: ignore[misc]  # construct has no types
    """A message in all its versions: `parse(data, version=4)` and `build(message, version=4)`
    choose one.
    """

    def __init__(self, cls: type) -> None:
        super().__init__()
        self.cls = cls
        self.declaration = declaration_of(cls)

    def _parse(self, stream: IO[bytes], context: Context, path: str) -> Message:
        return layout_of(self.cls, version_of(context))._parsereport(stream, context, path)

    def _build(self, obj: Message, stream: IO[bytes], context: Context, path: str) -> Message:
        layout_of(self.cls, version_of(context))._build(obj, stream, context, path)
        return obj

    def _sizeof(self, context: object, path: str) -> int:
        raise construct.SizeofError(path=path)


class CompiledConstruct(construct.Compiled):  # type: ignore[misc]  # construct has no types
    """The fused codec of a message as a construct; `codec` is the codec itself."""

    def __init__(self, message_construct: MessageConstruct, codec: FusedCodec) -> None:
        super().__init__(self._parse_with_context, self._build_with_context)
        self.defersubcon = message_construct
        self.codec = codec

    def decode(self, buffer: bytes, position: int = 0) -> tuple[Message, int]:
        """Return the message at a position, and its end position."""
        return self.codec.decode(buffer, position)

    def encode(self, message: Message) -> bytes:
        """Return the bytes of a message."""
        return self.codec.encode(message)

    def encode_into(self, message: Message, chunks: list[bytes | memoryview]) -> None:
        """Append the bytes of a message to a list, record batches uncopied."""
        self.codec.encode_into(message, chunks)

    def parse(self, data: bytes, **context: object) -> Message:
        """Parse the message at the start of some bytes."""
        return self.codec.decode(data, 0)[0]

    def build(self, obj: Message, **context: object) -> bytes:
        """Build a message."""
        return self.codec.encode(obj)

    def parse_embedded(self, stream: IO[bytes]) -> Message:
        """Decode from a stream, for compiled Structs that contain this message.

        Copies the stream: for files and tests.
        """
        start = stream.tell()
        message, size = self.codec.decode(stream.read(), 0)
        stream.seek(start + size)
        return message

    def build_embedded(self, obj: Message, stream: IO[bytes]) -> Message:
        """Encode into a stream, for compiled Structs that contain this message."""
        stream.write(self.codec.encode(obj))
        return obj

    def _parse_with_context(self, stream: IO[bytes], context: object) -> Message:
        return self.parse_embedded(stream)

    def _build_with_context(self, obj: Message, stream: IO[bytes], context: object) -> Message:
        return self.build_embedded(obj, stream)
