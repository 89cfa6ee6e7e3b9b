"""The codec of one message, byte by byte: every type, in plain and in flexible versions, and every
error.
"""

import io
import linecache
import time
import traceback
from typing import Any

import construct
import pytest

from protocol.codec.declaration import UnknownVersion
from protocol.codec.message_codec import DISAGREEMENT, REFERENCE_SIZE_MAX, compiled, construct_of
from protocol.malformed import MalformedMessage
from protocol.schema import (
    array,
    boolean,
    byte_string,
    float64,
    int8,
    int16,
    int32,
    int64,
    message,
    records,
    string,
    struct,
    structure,
    uint16,
    uint32,
    uuid,
)

ID = bytes(range(16))


@structure
class Pair:
    left: int = int16()
    right: int = int16(since=1, default=-1)


@structure
class Item:
    name: str = string()
    pairs: list[Pair] = array(Pair)
    emit: str | None = string(tag=0, tagged="1+", nullable="1+", default=None)
    pair: Pair = struct(Pair, tag=1, tagged="1+", ignorable=True)


@message(kind="data", versions="0-2", flexible="1+")
class Everything:
    flag: bool = boolean()
    tiny: int = int8()
    small: int = int16()
    port: int = uint16()
    medium: int = int32()
    crc: int = uint32()
    large: int = int64()
    ratio: float = float64()
    id: bytes = uuid()
    text: str = string()
    maybe_text: str | None = string(nullable="0+")
    blob: bytes = byte_string()
    maybe_blob: bytes | None = byte_string(nullable="0+")
    batches: bytes | memoryview | None = records(nullable="0+")
    numbers: list[int] = array(int32)
    flags: list[bool] = array(boolean)
    ids: list[bytes] = array(uuid)
    texts: list[str] = array(string)
    items: list[Item] | None = array(Item, nullable="0+")
    pair: Pair = struct(Pair)
    maybe_pair: Pair | None = struct(Pair, nullable="0+", default=None)
    plain: str = string(flexible="none")
    newer: int = int32(since=2, default=5)
    dropped: str = string(since=2, ignorable=True)
    newer_list: list[int] = array(int32, since=2)
    newer_pair: Pair = struct(Pair, since=2)


def _filled() -> Everything:
    return Everything(
        flag=True,
        tiny=-1,
        small=-2,
        port=0xFFFE,
        medium=-3,
        crc=0xFFFFFFFD,
        large=-4,
        ratio=0.5,
        id=ID,
        text="é",
        maybe_text=None,
        blob=b"\x01\x02",
        maybe_blob=None,
        batches=b"\x03",
        numbers=[1, -1],
        flags=[True, False],
        ids=[ID],
        texts=["a", ""],
        items=[Item(name="i", pairs=[Pair(left=1)])],
        pair=Pair(left=2),
        maybe_pair=Pair(left=3),
        plain="p",
    )


FIXED = (
    "01 ff fffe fffe fffffffd fffffffd fffffffffffffffc 3fe0000000000000 "
    "000102030405060708090a0b0c0d0e0f"
)
PLAIN = (
    f"{FIXED} 0002c3a9 ffff 00000002 0102 ffffffff 00000001 03 00000002 00000001 ffffffff "
    f"00000002 0100 00000001 {ID.hex()} 00000002 000161 0000 00000001 000169 00000001 0001 0002 "
    "01 0003 000170"
)
FLEXIBLE = (
    f"{FIXED} 03c3a9 00 03 0102 00 02 03 03 00000001 ffffffff 03 0100 02 {ID.hex()} 03 0261 01"
    " 02 0269 02 0001 ffff 00 00 0002 ffff 00 01 0003 ffff 00 000170 00"
)


@pytest.mark.parametrize(("version", "expected"), [(0, PLAIN), (1, FLEXIBLE)])
def test_every_type_is_encoded_as_specified(version: int, expected: str) -> None:
    """Source: KIP-482 for the flexible form; handwritten."""
    built = compiled(Everything, version).encode(_filled())
    assert built.hex(" ") == bytes.fromhex(expected).hex(" ")
    assert construct_of(Everything, version).build(_filled()) == built
    assert compiled(Everything, version).decode(b"xx" + built + b"yy", 2) == (
        _filled(),
        2 + len(built),
    )
    assert construct_of(Everything, version).parse(built) == _filled()


def test_records_are_not_copied() -> None:
    records_bytes = bytes(1000)
    chunks: list[bytes | memoryview] = []
    compiled(Everything, 1).encode_into(Everything(batches=records_bytes), chunks)
    assert any(chunk is records_bytes for chunk in chunks)
    frame = b"".join(chunks)
    parsed = compiled(Everything, 1).parse(frame)
    assert isinstance(parsed.batches, memoryview) and parsed.batches.obj is frame


@pytest.mark.parametrize(
    ("change", "path", "reason"),
    [
        ({"newer": 6}, "newer", "has no such field"),
        ({"newer_list": [1]}, "newer_list", "has no such field"),
        ({"newer_pair": Pair(left=1)}, "newer_pair", "has no such field"),
        ({"text": None}, "text", "not nullable"),
        ({"blob": None}, "blob", "not nullable"),
        ({"numbers": None}, "numbers", "not nullable"),
        ({"pair": None}, "pair", "None is no Pair"),
        ({"texts": ["a", None]}, "texts[1]", "not nullable"),
        (
            {"items": [Item(), Item(pairs=[Pair(), Pair(left=1 << 15)])]},
            "items[1].pairs[1].left",
            "does not fit",
        ),
        ({"items": [Item(emit=3)]}, "items[0].emit", "is not a string"),
        ({"tiny": 128}, "tiny", "does not fit"),
        ({"port": -1}, "port", "does not fit"),
        ({"large": 1 << 63}, "large", "does not fit"),
        ({"medium": "1"}, "medium", "does not fit"),
        ({"id": b"short"}, "id", "not 16 bytes"),
        ({"ids": [ID, b""]}, "ids[1]", "not 16 bytes"),
        ({"text": "x" * 32768}, "text", "longer than 32767"),
        ({"plain": "x" * 32768}, "plain", "longer than 32767"),
        ({"text": "\ud800"}, "text", "no UTF-8"),
        ({"numbers": [1, 1 << 31]}, "numbers[1]", "does not fit"),
    ],
)
def test_an_unencodable_value_is_refused_by_its_path(
    change: dict[str, Any], path: str, reason: str
) -> None:
    """A non-default value in a field that the version lacks, null where null is not allowed, and
    values out of range.
    """
    value = Everything(**change)
    for codec in (compiled(Everything, 1), construct_of(Everything, 1)):
        with pytest.raises(MalformedMessage, match=reason) as caught:
            codec.build(value)
        assert (caught.value.path, caught.value.version, caught.value.position) == (path, 1, None)


def test_an_absent_field_may_have_any_value_if_it_is_ignorable() -> None:
    codec = compiled(Everything, 1)
    assert codec.encode(Everything(dropped="x")) == codec.encode(Everything())
    assert (
        compiled(Everything, 2)
        .parse(compiled(Everything, 2).encode(Everything(dropped="x")))
        .dropped
        == "x"
    )


@pytest.mark.parametrize(
    ("version", "change", "path"),
    [
        (0, {"text": "ffff"}, "text"),
        (0, {"blob": "ffffffff"}, "blob"),
        (0, {"numbers": "ffffffff"}, "numbers"),
        (0, {"numbers": "7fffffff 00000001"}, "numbers[1]"),
        (0, {"numbers": "80000000"}, "numbers"),
        (0, {"texts": "7fffffff 0000"}, "texts[1]"),
        (1, {"text": "00"}, "text"),
        (1, {"text": "ffffffffff01"}, "text"),
        (1, {"text": "ffffffff0f"}, "text"),
        (1, {"text": "818002"}, "text"),
        (1, {"blob": "ffffffff07 01"}, "blob"),
        (1, {"numbers": "ffffffff07 00000001"}, "numbers[1]"),
        (1, {"ids": f"ffffffff07 {ID.hex()}"}, "ids[1]"),
        (1, {"texts": "ffffffff07 01"}, "texts[1]"),
        (1, {"items": "03 0269 ffffffff07 0001 ffff 00"}, "items[0].pairs[1].left"),
        (1, {"items": "02 0269 01 02 07 01 61 08 05 61"}, "items[0].(tagged)"),
        (1, {"items": "02 0269 01 01 07 ffffffff0f 61"}, "items[0].(tagged)"),
        (1, {"texts": "808080808001"}, "texts"),
        (1, {"blob": "8080808008"}, "blob"),
    ],
)
def test_malformed_bytes_are_refused_by_their_path(
    version: int, change: dict[str, str], path: str
) -> None:
    """Null where it is not allowed, varints that are too long, wrong counts and sizes."""
    (name, replacement), *_ = change.items()
    frame = _up_to(name, version) + bytes.fromhex(replacement)
    for codec in (compiled(Everything, version), construct_of(Everything, version)):
        with pytest.raises(MalformedMessage) as caught:
            codec.parse(frame)
        assert caught.value.path == path
        assert caught.value.position is not None and len(
            _up_to(name, version)
        ) <= caught.value.position <= len(frame)
        assert DISAGREEMENT not in caught.value.reason


@pytest.mark.parametrize(
    ("text", "tags", "path"),
    [
        ("81 80 02" + "78" * 32768, "00", "text"),
        ("01", "01 ffffffffff00 00", "(tagged)"),
        ("01", "01 80808080808000 00", "(tagged)"),
        ("01", "81808080808000 05 00", "(tagged)"),
    ],
)
def test_out_of_range_numbers_are_refused(text: str, tags: str, path: str) -> None:
    """A string has at most 32767 bytes and a varint at most five: Kafka refuses more, and so does
    kraftsim.
    """
    whole = compiled(Everything, 1).encode(Everything(items=[]))
    before = _up_to("text", 1)
    frame = before + bytes.fromhex(text) + whole[len(before) + 1 : -1] + bytes.fromhex(tags)
    for codec in (compiled(Everything, 1), construct_of(Everything, 1)):
        with pytest.raises(MalformedMessage) as caught:
            codec.parse(frame)
        assert caught.value.path == path


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("ff", "\ufffd"),
        ("61ff62", "a\ufffdb"),
        ("c3", "\ufffd"),
        ("e282", "\ufffd"),
        ("e28261", "\ufffda"),
        ("eda080", "\ufffd"),
        ("61eda08062", "a\ufffdb"),
        ("eda0", "\ufffd\ufffd"),
        ("c080", "\ufffd\ufffd"),
        ("f09f9880", "\U0001f600"),
        ("f5808080", "\ufffd" * 4),
    ],
)
def test_invalid_utf8_is_decoded_as_in_java(content: str, text: str) -> None:
    """Kafka does not refuse it: a topic with a garbled name gets a response."""
    for version, size in ((0, f"{len(content) // 2:04x}"), (1, f"{len(content) // 2 + 1:02x}")):
        whole = compiled(Everything, version).encode(Everything(items=[]))
        before = _up_to("text", version)
        frame = before + bytes.fromhex(size + content) + whole[len(before) + len(size) // 2 :]
        for codec in (compiled(Everything, version), construct_of(Everything, version)):
            assert codec.parse(frame) == Everything(text=text, items=[])
        assert compiled(Everything, version).decode(b"\x00" + frame, 1) == (
            Everything(text=text, items=[]),
            1 + len(frame),
        )


@pytest.mark.parametrize(
    ("tags", "emit", "unknown"),
    [
        ("02 0902aabb 0701cc", None, {7: b"\xcc", 9: b"\xaa\xbb"}),
        ("02 0701aa 0701bb", None, {7: b"\xbb"}),
        ("02 0701aa 00020261", "a", {7: b"\xaa"}),
        ("02 00020261 00020262", "b", None),
        ("02 00ff010261 0701aa", "a", {7: b"\xaa"}),
        ("02 00000261 0701aa", "a", {7: b"\xaa"}),
        ("01 ffffffff0f 01aa", None, {2**32 - 1: b"\xaa"}),
        ("01 ffffffff7f 01aa", None, {2**32 - 1: b"\xaa"}),
        ("01 8780808070 01aa", None, {7: b"\xaa"}),
        ("ffffffff0f", None, None),
        ("8080808008", None, None),
    ],
)
def test_tags_are_read_in_any_order_and_the_last_duplicate_wins(
    tags: str, emit: str | None, unknown: dict[int, bytes] | None
) -> None:
    """Kafka accepts this, also varints above 32 bits, negative counts, and wrong sizes of known
    tags; it writes them correctly.
    """
    whole = compiled(Everything, 1).encode(Everything(items=[]))
    before = _up_to("items", 1)
    frame = before + bytes.fromhex("02 0269 01" + tags) + whole[len(before) + 1 :]
    for codec in (compiled(Everything, 1), construct_of(Everything, 1)):
        (item,) = codec.parse(frame).items
        assert (item.emit, item._tags) == (emit, unknown)
        again = codec.parse(codec.build(Everything(items=[item])))
        assert (again.items[0].emit, again.items[0]._tags) == (emit, unknown)


@pytest.mark.parametrize("length", ["8180808008", "ffffffff0f", "8180808018"])
def test_a_compact_length_that_is_negative_in_java_is_null(length: str) -> None:
    """It is a signed int there."""
    whole = compiled(Everything, 1).encode(Everything(items=[]))
    for name, outcome in (
        ("text", None),
        ("maybe_text", Everything(items=[], maybe_text=None)),
        ("items", Everything(items=None)),
    ):
        before = _up_to(name, 1)
        frame = before + bytes.fromhex(length) + whole[len(before) + 1 :]
        for codec in (compiled(Everything, 1), construct_of(Everything, 1)):
            if outcome is not None:
                assert codec.parse(frame) == outcome
                continue
            with pytest.raises(MalformedMessage, match="null, but not nullable"):
                codec.parse(frame)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_buffers_other_than_bytes_are_accepted(kind: type) -> None:
    """The values have the same types for every type of buffer."""
    for version in (0, 1, 2):
        frame = compiled(Everything, version).encode(_filled())
        parsed, position = compiled(Everything, version).decode(kind(b"\x00" + frame), 1)
        assert (parsed, position) == (_filled(), 1 + len(frame))
        assert type(parsed.blob) is bytes and type(parsed.text) is str


def test_an_unknown_version_is_refused_with_the_known_ones() -> None:
    for factory in (compiled, construct_of):
        with pytest.raises(UnknownVersion, match="Everything has versions 0-2, not 3") as caught:
            factory(Everything, 3)
        assert (caught.value.name, str(caught.value.versions), caught.value.version) == (
            "Everything",
            "0-2",
            3,
        )


@pytest.mark.parametrize(("size", "path"), [(1000, "items[0].name"), (REFERENCE_SIZE_MAX, "")])
def test_a_large_malformed_message_is_not_parsed_again_slowly(size: int, path: str) -> None:
    """A hostile peer chooses the bytes: the reference, which finds the path, only runs on small
    input.
    """
    with pytest.raises(MalformedMessage) as caught:
        compiled(Everything, 1).parse(_up_to("items", 1) + b"\x02\x00" + bytes(size))
    assert caught.value.path == path


@pytest.mark.parametrize(("count", "path"), [(1000, "texts[1000]"), (60_000, "")])
def test_many_small_fields_before_an_error_are_not_parsed_again_slowly(
    count: int, path: str
) -> None:
    """Nor after so many fields that it would take seconds."""
    malformed = _up_to("texts", 0) + (count + 1).to_bytes(4) + b"\x00\x01x" * count + b"\x00"
    started = time.perf_counter()
    with pytest.raises(MalformedMessage) as caught:
        compiled(Everything, 0).parse(malformed)
    assert caught.value.path == path
    assert time.perf_counter() - started < 1


def _up_to(name: str, version: int) -> bytes:
    """Build the fields before `name` of a message that is otherwise empty."""
    full = compiled(Everything, version)
    empty = Everything(items=[])
    fields = [field.name for field in full.layout.fields]
    struct_of_all = construct_of(Everything, version).layout.subcon
    before = construct.Struct(*struct_of_all.subcons[: fields.index(name)])
    return bytes(before.build({field: getattr(empty, field) for field in fields}))


@pytest.mark.parametrize(
    "size", [0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 2**21 - 2, 2**21 - 1, 2**21]
)
def test_lengths_of_every_varint_size_round_trip(size: int) -> None:
    """One, two and three bytes have separate code, because batches have such sizes."""
    value = Everything(blob=bytes(size), batches=bytes(size), text="x" * min(size, 32767), items=[])
    frame = compiled(Everything, 1).encode(value)
    assert frame == construct_of(Everything, 1).build(value)
    assert compiled(Everything, 1).decode(frame, 0) == (value, len(frame))
    with pytest.raises(MalformedMessage):
        compiled(Everything, 1).decode(frame[:-1], 0)


def test_unknown_tags_are_kept_and_written_again_in_order() -> None:
    """A forwarding node must not lose the fields of a newer one (KIP-482)."""
    frame = compiled(Everything, 1).encode(Everything(items=[Item(name="i", emit="n")]))
    newer = frame.replace(
        bytes.fromhex("0269 01 01 00 02 026e"),
        bytes.fromhex("0269 01 04 00 02 026e 05 01 ff 07 00 c801 02 0102"),
    )
    assert newer != frame
    newer = newer[:-1] + bytes.fromhex("01 00 01 09")
    for codec in (compiled(Everything, 1), construct_of(Everything, 1)):
        parsed = codec.parse(newer)
        assert parsed.items[0].emit == "n"
        assert parsed.items[0]._tags == {5: b"\xff", 7: b"", 200: b"\x01\x02"}
        assert parsed._tags == {0: b"\x09"}
        assert codec.build(parsed) == newer


def test_a_known_tag_is_refused_among_unknown_tags() -> None:
    item = Item()
    item._tags = {0: b""}  # type: ignore[attr-defined]  # a generated class has it
    with pytest.raises(MalformedMessage, match="known"):
        compiled(Everything, 1).encode(Everything(items=[item]))


def test_unknown_tags_in_an_element_of_fixed_size_do_not_shift_the_others() -> None:
    """The fast path reads all elements at once, and must detect a longer one."""
    pairs = [Pair(left=number) for number in range(5)]
    pairs[3]._tags = {9: b"ab"}  # type: ignore[attr-defined]  # a generated class has it
    frame = compiled(Everything, 1).encode(Everything(items=[Item(pairs=pairs)]))
    assert frame == construct_of(Everything, 1).build(Everything(items=[Item(pairs=pairs)]))
    parsed = compiled(Everything, 1).parse(frame).items[0].pairs
    assert parsed == pairs and [pair._tags for pair in parsed] == [
        None,
        None,
        None,
        {9: b"ab"},
        None,
    ]


def test_tagged_fields_with_default_values_are_not_written() -> None:
    def size(item: Item) -> int:
        return len(compiled(Everything, 1).encode(Everything(items=[item])))

    assert size(Item()) == size(Item(pair=Pair())) == size(Item(emit=None))
    assert size(Item(pair=Pair(left=1))) == size(Item()) + 2 + 5
    assert size(Item(emit="")) == size(Item()) + 2 + 1


def test_a_message_nests_in_a_construct_struct() -> None:
    around = construct.Struct(
        "before" / construct.Int8ub,
        "body" / construct_of(Everything, 1),
        "after" / construct.Int8ub,
    )
    value = {"before": 1, "body": _filled(), "after": 2}
    frame = around.build(value)
    assert frame == b"\x01" + compiled(Everything, 1).encode(_filled()) + b"\x02"
    fast = around.compile()
    assert fast.build(value) == frame
    for parsed in (around.parse(frame), fast.parse(frame)):
        assert (parsed.before, parsed.body, parsed.after) == (1, _filled(), 2)
    assert construct_of(Everything, 1).compile().parse_stream(io.BytesIO(frame[1:])) == _filled()


def test_tracebacks_show_the_source_of_a_fused_codec() -> None:
    with pytest.raises(MalformedMessage) as caught:
        compiled(Everything, 2).decode(b"\x01", 0)
    printed = "".join(traceback.format_exception(caught.value))
    assert "Everything.v2.decode." in printed and "unpack_from" in printed
    # attr-defined: decode is a generated function
    assert linecache.getlines(compiled(Everything, 2).decode.__code__.co_filename)  # type: ignore[attr-defined]


def test_an_error_has_a_path_and_a_reason() -> None:
    with pytest.raises(MalformedMessage) as caught:
        compiled(Everything, 1).decode(b"ab" + bytes.fromhex(FIXED) + b"\x01\x00\x00", 2)
    assert str(caught.value) == "message v1 at blob (byte 48): null, but not nullable"
