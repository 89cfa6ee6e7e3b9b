"""Hostile bytes, and their allowed results: a message, or MalformedMessage, in bounded time.

Sweeps use a decoder that does not determine the field of an error: that search, by the readable
reference, costs a hundred times as much.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from random import Random

from protocol.codec.declaration import LAST_VERSION, Primitive
from protocol.codec.message_codec import CompiledMessage, compiled
from protocol.codec.tree import ArrayLayout, StructureLayout, layout_of
from protocol.examples import example
from protocol.malformed import MalformedMessage
from protocol.schema import Message, declaration_of

FRAME_SIZE_MAX = 400
"""The maximum size of a message that is truncated at every byte."""
SWEPT_SIZE_MAX = 120
"""The maximum size of a message that is changed at every byte."""
SHORT_SIZES = (FRAME_SIZE_MAX, SWEPT_SIZE_MAX)
SMALLEST: Mapping[Primitive, object] = {
    Primitive.STRING: "",
    Primitive.USTRING: "",
    Primitive.BYTES: b"",
    Primitive.UUID: bytes(16),
    Primitive.BOOLEAN: False,
}


def declared_versions(message_class: type) -> range:
    """Return all versions of a message."""
    versions = declaration_of(message_class).versions
    assert versions.last < LAST_VERSION, f"{message_class.__name__} has no last version"
    return range(versions.first, versions.last + 1)


def random_source(message_class: type, version: int, purpose: str = "") -> Callable[[int], int]:
    """Return a random source with a fixed seed.

    It returns what `randrange` of the same seed does, in half the time: sweeps draw millions.
    """
    getrandbits = Random(f"{message_class.__name__} {version} {purpose}").getrandbits

    def below(limit: int) -> int:
        bits = limit.bit_length()
        drawn = getrandbits(bits)
        while drawn >= limit:
            drawn = getrandbits(bits)
        return drawn

    return below


def short_frame(message_class: type, version: int, size_max: int) -> bytes:
    """Build an example of at most `size_max` bytes (if possible), with as many different values as
    found.
    """
    sizes = SHORT_SIZES if size_max in SHORT_SIZES else (size_max,)
    return _short_frames(message_class, version, sizes)[size_max]


@cache
def _short_frames(message_class: type, version: int, sizes: tuple[int, ...]) -> dict[int, bytes]:
    """Build the examples once for all sizes: that takes longer than many of the sweeps."""
    below, layout = random_source(message_class, version), layout_of(message_class, version)
    codec: CompiledMessage[object] = compiled(message_class, version)
    frames = [codec.encode(example(layout, below)) for _ in range(16)]
    return {
        size_max: max(
            (frame for frame in frames if len(frame) <= size_max),
            key=len,
            default=min(frames, key=len)[:size_max],
        )
        for size_max in sizes
    }


class QuickToRefuse(CompiledMessage[object]):
    """The normal fused codec, but with errors that name no field."""

    def _decode_failure(self, buffer: bytes, start: int, error: Exception) -> MalformedMessage:
        return MalformedMessage(None, self.version, "", str(error))


@cache
def quick_codec(message_class: type, version: int) -> CompiledMessage[object]:
    """Return the codec for sweeps over many malformed frames."""
    return QuickToRefuse(message_class, version)


def check_outcome(message_class: type, version: int, content: bytes) -> bool:
    """Return whether the bytes are a message; then it can be built and parsed again with the same
    result.

    Raises only AssertionError.
    """
    codec = quick_codec(message_class, version)
    try:
        message, position = codec.decode(content, 0)
    except MalformedMessage:
        return False
    assert 0 <= position <= len(content), (
        f"{message_class.__name__} v{version}: position {position} in {content.hex()}"
    )
    built = codec.encode(message)
    assert codec.encode(codec.decode(built, 0)[0]) == built, (
        f"{message_class.__name__} v{version}: {content.hex()} is built as {built.hex()}, which "
        "reads as something else"
    )
    return True


def crowded(layout: StructureLayout, count: int) -> Message:
    """Return a structure whose arrays have `count` of the smallest elements, three more in each of
    those, and so on to the innermost.
    """
    values: dict[str, object] = {}
    for field in layout.fields:
        match field.type:
            case ArrayLayout(StructureLayout() as element):
                values[field.name] = [crowded(element, 3)] * count
            case ArrayLayout(Primitive() as element):
                values[field.name] = [SMALLEST.get(element, 0)] * count
            case StructureLayout() as nested:
                values[field.name] = crowded(nested, count)
            case Primitive.RECORDS:
                values[field.name] = b""
            case Primitive() if field.declared.default is None and not field.nullable:
                values[field.name] = SMALLEST[field.type]
    return layout.cls(**values)


def check_mutations(
    message_class: type, version: int, values: Iterable[int], *, size_max: int
) -> int:
    """Replace each byte of an example by each value; return the number of frames."""
    frame = bytearray(short_frame(message_class, version, size_max))
    tried = 0
    for position, original in enumerate(bytes(frame)):
        for value in values:
            if value != original:
                frame[position] = value
                check_outcome(message_class, version, bytes(frame))
                tried += 1
        frame[position] = original
    return tried
