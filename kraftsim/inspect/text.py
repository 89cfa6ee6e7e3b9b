"""A dissected frame as text lines: position, name, value and meaning of each field."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kraftsim.inspect.hex_text import hexdump
from kraftsim.inspect.old_messages import MESSAGE
from kraftsim.inspect.parts import DecodeTrouble, Part, Scalar, Tree, Value
from kraftsim.inspect.records import BATCH, RECORD, RECORDS
from protocol.uuids import uuid_text

VALUE_CHARACTERS_MAX: Final = 100
BYTES_MAX: Final = 32
BOLD, DIM, RED, GREEN, YELLOW, CYAN = "1", "2", "31", "32", "33", "36"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Text style.

    `is_full`: values are never shortened. `with_batch_fields`: every field of a batch's header on a
    line of its own.
    """

    in_colour: bool = False
    is_full: bool = False
    with_batch_fields: bool = False

    def paint(self, text: str, colour: str) -> str:
        """Return the text in a colour, or as it is."""
        return f"\x1b[{colour}m{text}\x1b[0m" if self.in_colour and text else text


def tree_lines(tree: Tree, content: bytes, look: Look) -> Iterator[str]:
    """Yield a line per part, then the errors, each with the surrounding bytes."""
    yield from part_lines(tree.parts, look)
    for trouble in tree.troubles:
        yield from trouble_lines(trouble, content, look)


def trouble_lines(trouble: DecodeTrouble, content: bytes, look: Look) -> Iterator[str]:
    """Yield the errors and the surrounding bytes; of uncompressed records there are no bytes to
    show.
    """
    yield look.paint(f"     !! {trouble}", RED)
    if not trouble.uncompressed:
        for line in hexdump(content, marked=trouble.position):
            yield look.paint(f"        {line}", RED if "^^" in line else DIM)


def part_lines(parts: Iterable[Part], look: Look, depth: int = 0) -> Iterator[str]:
    """Yield a line per part, nested ones indented."""
    for part in parts:
        if part.kind == BATCH:
            yield from _batch_lines(part, look, depth)
        elif part.kind == RECORD:
            yield from _record_lines(part, look, depth)
        elif part.kind == MESSAGE and not look.with_batch_fields:
            yield from _message_lines(part, look, depth)
        else:
            yield _line(part, _field_text(part, look), look, depth)
            yield from part_lines(part.parts or (), look, depth + 1)


def value_text(value: Value, look: Look, kind: str = "") -> str:
    """Return a value as text: strings in quotes, bytes as text if they are printable, else in
    hex.
    """
    match value:
        case list():
            return _list_text(value, look, kind)
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value, look)
        case bytes():
            if "uuid" in kind and len(value) == 16:
                return uuid_text(value)
            return _bytes_text(value, look)
        case _:
            return str(value)


def _line(part: Part, text: str, look: Look, depth: int) -> str:
    place = f"{'~' if part.uncompressed else ''}{part.start}"
    return f"{look.paint(f'{place:>7}', DIM)}  {'  ' * depth}{look.paint(part.name, CYAN)}{text}"


def _field_text(part: Part, look: Look) -> str:
    if part.parts is not None:
        text = f": {_count(part)}" if part.kind.startswith("[]") or part.kind == "records" else ""
    elif part.end < 0:
        text = ": " + look.paint("cannot be read", RED)
    else:
        text = f": {value_text(part.value, look, part.kind)}"
    return text + _explanation(part, look)


def _explanation(part: Part, look: Look) -> str:
    if not part.emit:
        return ""
    is_bad = part.kind == "int16" and part.emit not in ("NONE", "ok") and "error" in part.name
    return "  " + look.paint(f"({part.emit})", YELLOW if is_bad else DIM)


def _count(part: Part) -> str:
    number = len(part.parts or ())
    if part.kind == "records":
        return "1 batch" if number == 1 else f"{number} batches"
    return "1 element" if number == 1 else f"{number} elements"


def _batch_lines(batch: Part, look: Look, depth: int) -> Iterator[str]:
    base_offset, last = (
        batch.integer("base_offset"),
        batch.integer("base_offset") + batch.integer("last_offset_delta"),
    )
    attributes, crc = batch.part("attributes"), batch.part("crc")
    count = batch.integer("record_count")
    words = [f" offsets {base_offset}..{last}", "1 record" if count == 1 else f"{count} records"]
    words.append(attributes.emit if attributes is not None else "")
    if batch.integer("producer_id") >= 0:
        words.append(
            f"producer_id {batch.integer('producer_id')} producer_epoch "
            f"{batch.integer('producer_epoch')}"
        )
        words.append(f"base_sequence {batch.integer('base_sequence')}")
    words.append(f"partition_leader_epoch {batch.integer('partition_leader_epoch')}")
    words.append(f"{batch.end - batch.start} bytes")
    if crc is not None:
        words.append(f"crc {crc.emit}" if crc.emit == "ok" else look.paint(f"crc {crc.emit}", RED))
    yield _line(batch, ", ".join(words), look, depth)
    for part in batch.parts or ():
        if part.name == RECORDS:
            if look.with_batch_fields:
                yield _line(
                    part, f": {len(part.parts or ())}{_explanation(part, look)}", look, depth + 1
                )
            yield from part_lines(part.parts or (), look, depth + 1 + look.with_batch_fields)
        elif look.with_batch_fields:
            yield _line(part, _field_text(part, look), look, depth + 1)


def _record_lines(record: Part, look: Look, depth: int) -> Iterator[str]:
    key, value, timestamp, headers = (
        record.part(name) for name in ("key", "value", "timestamp", "headers")
    )
    assert (
        key is not None and value is not None and timestamp is not None and headers is not None
    ), "a record has these"
    text = f" offset {record.integer('offset')}"
    text += (
        f"  timestamp {record.integer('timestamp')}" if look.is_full or not timestamp.emit else ""
    )
    text += _explanation(timestamp, look)
    if key.parts is None:
        text += "  " + (f"key {value_text(key.value, look)}" if not key.emit else key.emit)
    if value.parts is None:
        text += f"  value {value_text(value.value, look)}" if key.parts is None else ""
    if headers.parts:
        shown = (
            f"{_quoted(each.name, look)}: {value_text(each.value, look)}" for each in headers.parts
        )
        text += "  headers {" + ", ".join(shown) + "}"
    yield _line(record, text, look, depth)
    for each in (key, value):
        if each.parts is not None or (key.parts is not None and each is value):
            opened = (
                f": {look.paint(each.emit, BOLD)}"
                if each.parts is not None
                else f": {value_text(each.value, look)}"
            )
            yield _line(each, opened, look, depth + 1)
            yield from part_lines(each.parts or (), look, depth + 2)


def _message_lines(message: Part, look: Look, depth: int) -> Iterator[str]:
    """Yield a message of an old format; a wrapper with its inner messages."""
    attributes, crc, key, value = (
        message.part(name) for name in ("attributes", "crc", "key", "value")
    )
    words = [f" offset {message.integer('offset')}, format {message.integer('magic')}"]
    words += [each.emit for each in (attributes,) if each is not None]
    words += [
        f"crc {each.emit}" if each.emit == "ok" else look.paint(f"crc {each.emit}", RED)
        for each in (crc,)
        if each is not None
    ]
    if message.part("timestamp") is not None:
        words.append(f"timestamp {message.integer('timestamp')}")
    words += [
        f"{each.name} {value_text(each.value, look)}" for each in (key, value) if each is not None
    ]
    yield _line(message, ", ".join(words), look, depth)
    inner = message.part("messages")
    yield from part_lines((inner.parts or ()) if inner is not None else (), look, depth + 1)


def _bytes_text(value: bytes, look: Look) -> str:
    text = printable(value)
    if text is not None:
        return _quoted(text, look)
    if look.is_full or len(value) <= BYTES_MAX:
        return f"0x{value.hex()}"
    return f"0x{value[:BYTES_MAX].hex()}... ({len(value)} bytes)"


def printable(value: bytes) -> str | None:
    """Return bytes as text if a terminal can show all of it, else None."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _quoted(text: str, look: Look) -> str:
    if not text.isprintable():
        text = text.encode("unicode_escape").decode()
    if look.is_full or len(text) <= VALUE_CHARACTERS_MAX:
        return f'"{text}"'
    return f'"{text[:VALUE_CHARACTERS_MAX]}..." ({len(text)} characters)'


def _list_text(values: list[Scalar], look: Look, kind: str) -> str:
    """Return as many values as fit, and their number."""
    shown: list[str] = []
    room = VALUE_CHARACTERS_MAX
    for value in values:
        shown.append(value_text(value, look, kind))
        room -= len(shown[-1]) + 2
        if room < 0 and not look.is_full and len(shown) < len(values):
            return f"[{', '.join(shown)}, ...] ({len(values)} elements)"
    return f"[{', '.join(shown)}]"
