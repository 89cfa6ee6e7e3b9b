"""Arbitrary values of any message at any version: for tests, benchmarks and fuzzing.

The caller passes the random function, `below(n) -> 0 .. n - 1`, so that a seed or a shrinking test
framework determines the values.
"""

from collections.abc import Callable
from struct import pack, unpack

from protocol.codec.declaration import INTEGER_RANGES, Primitive
from protocol.codec.tree import ArrayLayout, PresentField, StructureLayout, default_of
from protocol.schema import Message

Dice = Callable[[int], int]

TEXTS = ("", "a", "orders", "größer", "日本", "x" * 126, "x" * 127, "x" * 128, "y" * 20_000)
FIRST_UNKNOWN_TAG = 100


def example(layout: StructureLayout, below: Dice, *, unknown_tags: bool = True) -> Message:
    """Return an object that a message of this layout can carry unchanged: fields that the version
    lacks have their default.
    """
    values = {field.name: _value(field, below, unknown_tags) for field in layout.fields}
    for field in layout.tags:
        values[field.name] = (
            default_of(field.declared) if below(2) else _value(field, below, unknown_tags)
        )
    structure: Message = layout.cls(**values)
    if layout.flexible and unknown_tags and below(8) == 0:
        structure._tags = {
            FIRST_UNKNOWN_TAG + 200 * number: TEXTS[below(8)].encode()
            for number in range(1 + below(3))
        }
    return structure


def _value(field: PresentField, below: Dice, unknown_tags: bool) -> object:
    if field.nullable and below(4) == 0:
        return None
    match field.type:
        case StructureLayout() as layout:
            return example(layout, below, unknown_tags=unknown_tags)
        case Primitive() as primitive:
            return _primitive(primitive, below)
        case ArrayLayout(StructureLayout() as element):
            return [
                example(element, below, unknown_tags=unknown_tags) for _ in range(_count(below))
            ]
        case ArrayLayout(Primitive() as element):
            return [_primitive(element, below) for _ in range(_count(below))]
    raise AssertionError(f"{field.name} has no wire type")


def _count(below: Dice) -> int:
    return (0, 1, 1, 2, 3)[below(5)] if below(50) else 130


def _primitive(primitive: Primitive, below: Dice) -> object:
    match primitive:
        case Primitive.BOOLEAN:
            return below(2) == 1
        case Primitive.FLOAT64:
            return float(unpack(">f", pack(">f", below(1000) / 8 - 50))[0])
        case Primitive.UUID:
            return bytes(below(256) for _ in range(16))
        case Primitive.STRING | Primitive.USTRING:
            return TEXTS[below(len(TEXTS) - (below(20) != 0))]
        case Primitive.BYTES:
            return TEXTS[below(8)].encode()
        case Primitive.RECORDS:
            return memoryview(TEXTS[below(8)].encode() * 3)
        case _:
            return _integer(primitive, below)


def _integer(primitive: Primitive, below: Dice) -> int:
    lowest, highest = INTEGER_RANGES[primitive]
    match below(6):
        case 0:
            return lowest
        case 1:
            return highest
        case 2:
            return 0
        case 3 if lowest:
            return -1
        case _:
            return lowest + below(highest - lowest + 1)
