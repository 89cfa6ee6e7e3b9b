"""Where a fast form is written by hand or derived, construct's form of the same reads and writes
the same bytes.
"""

import zlib
from collections.abc import Callable, Iterator
from random import Random

import construct
import pytest

from protocol import requests, version_prefixed
from protocol.codec import choice
from protocol.codec.declaration import declaration_of
from protocol.codec.fixed import FixedLayout, InterpretedFixed, fixed
from protocol.codec.message_codec import compiled
from protocol.codec.tree import fields_of, plain_layout_of
from protocol.lease_pid import stored
from protocol.malformed import MalformedMessage
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.records import batches, message_sets, record_frames
from protocol.records.batches import BatchHeader, RecordBatch, build_batch
from protocol.records.constructs import OLD_MESSAGE, RECORD
from protocol.records.message_sets import build_message_set, split_any_batches
from protocol.records.record import MalformedRecord, Record
from protocol.records.record_codec import build_records, read_records
from protocol.requests import (
    decode_request,
    decode_response,
    read_request_head,
    request_chunks,
    response_chunks,
)
from protocol.storage import indexes, producer_snapshot
from protocol.zookeeper import txn_log

FIXED = [
    value
    for module in (
        batches,
        message_sets,
        producer_snapshot,
        record_frames,
        requests,
        indexes,
        stored,
        txn_log,
        version_prefixed,
    )
    for value in vars(module).values()
    if isinstance(value, FixedLayout)
]


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Yield the function after which construct interprets everything."""
    before = choice._Process.form
    choice.choose_codec(choice.COMPILED)
    yield lambda: choice.choose_codec(choice.CONSTRUCT)
    choice.choose_codec(before)
    monkeypatch.delenv(choice.VARIABLE)


def test_there_are_fixed_layouts_of_all_kinds_of_files() -> None:
    assert len({layout.format for layout in FIXED}) >= 12


@pytest.mark.parametrize("layout", FIXED, ids=lambda layout: layout.declared.__name__)
def test_the_compiled_codes_of_a_fixed_layout_are_those_of_its_construct(
    layout: FixedLayout,
) -> None:
    assert plain_layout_of(layout.declared).sizeof() == layout.size
    by_construct = InterpretedFixed(layout.format)
    by_construct.declared = layout.declared
    rng = Random(layout.format)
    for _ in range(50):
        content = rng.randbytes(3 * layout.size)
        numbers = layout.unpack_from(content, layout.size)
        assert by_construct.unpack_from(content, layout.size) == numbers
        assert (
            by_construct.pack(*numbers)
            == layout.pack(*numbers)
            == content[layout.size : 2 * layout.size]
        )
        assert list(by_construct.iter_unpack(content)) == list(layout.iter_unpack(content))
    for wrong in (
        lambda: by_construct.unpack_from(b"", 0),
        lambda: by_construct.pack(),
        lambda: by_construct.pack(*[1 << 70] * len(numbers)),
    ):
        with pytest.raises(Exception, match=r".") as caught:
            wrong()
        assert type(caught.value).__module__ == "struct"


def test_structures_of_variable_size_have_no_fixed_layout() -> None:
    with pytest.raises(AssertionError, match="variable size"):
        fixed(InitProducerIdRequest)
    assert fixed(BatchHeader).size == batches.HEADER_SIZE_BYTES


def records_of(rng: Random) -> list[Record]:
    def content() -> bytes | None:
        return (
            None if rng.randrange(4) == 0 else rng.randbytes(rng.choice((0, 1, 63, 64, 200, 9000)))
        )

    headers = tuple(
        (rng.choice(("", "k", "größe", "\udcff")), content())
        for _ in range(rng.choice((0, 0, 1, 70)))
    )
    far = rng.choice((0, 1, -1, 63, 64, 1 << 20, -(1 << 40), (1 << 62) + 5))
    return [
        Record(timestamp=far * rng.randrange(2), key=content(), value=content(), headers=headers)
        for _ in range(rng.randrange(1, 5))
    ]


def outcome(
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_timestamp: int | None
) -> list[object]:
    found: list[object] = []
    try:
        found += read_records(data, count, base_offset, base_timestamp, append_timestamp)
    except MalformedRecord:
        found.append("malformed")
    return found


@pytest.mark.parametrize("seed", range(40))
def test_records_are_the_same_in_both_forms(seed: int, interpreted: Callable[[], None]) -> None:
    """Built, read back, and read from damaged bytes, of which as many records are found as before
    the damage.
    """
    rng = Random(seed)
    cases = []
    for _ in range(20):
        records = records_of(rng)
        built = build_records(records, 5)
        damaged = bytearray(built.body[: rng.randrange(len(built.body) + 1)])
        for _ in range(rng.randrange(3) if damaged else 0):
            damaged[rng.randrange(len(damaged))] = rng.choice(
                (0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256))
            )
        append_timestamp = rng.choice((None, 77))
        for body in (built.body, bytes(damaged), built.body + b"\x00"):
            read = outcome(body, built.record_count, 5, built.base_timestamp, append_timestamp)
            cases.append((records, built, body, append_timestamp, read))
    interpreted()
    for records, built, body, append_timestamp, read in cases:
        assert build_records(records, 5) == built
        assert outcome(body, built.record_count, 5, built.base_timestamp, append_timestamp) == read


def test_a_record_is_a_construct() -> None:
    batch = RecordBatch(
        build_batch([Record(timestamp=9, key=b"k", value=b"v", headers=(("h", None),))])
    )
    found = RECORD.parse(bytes(batch.view()[batches.HEADER_SIZE_BYTES :]))
    assert (found.timestamp_delta, found.offset_delta, found.key, found.value) == (0, 0, b"k", b"v")
    assert [(header.key, header.value) for header in found.headers] == [(b"h", None)]
    with pytest.raises(construct.ConstructError):
        RECORD.parse(b"\x02\x00\x00")


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_the_same_in_both_forms(
    magic: int, interpreted: Callable[[], None]
) -> None:
    records = [
        Record(
            offset=offset,
            timestamp=offset * magic - 1 + (not magic),
            key=b"k" * offset or None,
            value=b"v",
        )
        for offset in range(3)
    ]
    by_hand = build_message_set(records, magic=magic)
    read = [list(message.records()) for message in split_any_batches(by_hand)]
    parsed = construct.GreedyRange(OLD_MESSAGE).parse(by_hand)
    assert [(each.offset, each.key, each.value) for each in parsed] == [
        (record.offset, record.key, record.value) for record in records
    ]
    for each, message in zip(parsed, split_any_batches(by_hand), strict=True):
        assert each.crc == zlib.crc32(message.view()[16:]) and each.size == message.size_bytes - 12
    interpreted()
    assert build_message_set(records, magic=magic) == by_hand
    assert [list(message.records()) for message in split_any_batches(by_hand)] == read


@pytest.mark.parametrize("version", range(7))
def test_frames_are_the_same_in_both_forms(version: int, interpreted: Callable[[], None]) -> None:
    request, response = (
        InitProducerIdRequest(transactional_id="t"),
        InitProducerIdResponse(producer_id=5),
    )
    asked = [
        b"".join(request_chunks(22, version, 7, client_id, request)) for client_id in ("me", None)
    ]
    answered = b"".join(response_chunks(22, version, 7, response))
    heads = [read_request_head(frame[4:]) for frame in asked]
    interpreted()
    assert [
        b"".join(request_chunks(22, version, 7, client_id, request)) for client_id in ("me", None)
    ] == asked
    assert b"".join(response_chunks(22, version, 7, response)) == answered
    assert [read_request_head(frame[4:]) for frame in asked] == heads
    assert decode_request(heads[0], asked[0][4:]) == request
    assert decode_response(22, version, answered[4:]) == (7, response)
    for size in range(len(asked[0]) - 5):
        with pytest.raises(MalformedMessage):
            decode_request(read_request_head(asked[0][4 : 4 + size]), asked[0][4 : 4 + size])


def test_a_declared_field_is_a_construct_of_all_versions() -> None:
    declaration = declaration_of(InitProducerIdRequest)
    fields = {field.name: field for field in fields_of(declaration)}
    for version, content in ((1, b"\x00\x01t"), (2, b"\x02t")):
        assert (
            fields["transactional_id"].parse(
                content, version=version, flexible=declaration.flexible
            )
            == "t"
        )
        assert (
            fields["transactional_id"].build("t", version=version, flexible=declaration.flexible)
            == content
        )
    assert fields["producer_id"].parse(b"", version=2) == -1
    assert fields["producer_id"].build(5, version=2) == b""
    assert fields["producer_id"].build(5, version=3) == bytes(7) + b"\x05"


def test_a_message_of_all_versions_is_one_construct() -> None:
    """And so it fits into any Struct, which passes the version on."""
    form = InitProducerIdRequest.construct()  # type: ignore[attr-defined]  # @message adds it
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=3)
    framed = construct.Struct(
        "length" / construct.Int16ub,
        "body" / form,
    )
    for version in range(7):
        content = compiled(InitProducerIdRequest, version).encode(request)
        assert form.parse(content, version=version) == request
        assert form.build(request, version=version) == content
        assert framed.parse(len(content).to_bytes(2) + content, version=version).body == request
