"""The dissector reads the same values as the codecs, has the position of every field, and reads
incomplete messages as far as possible.
"""

from contextlib import suppress
from itertools import pairwise
from random import Random

import pytest

from kraftsim.inspect.dissection import TAGS, Dissector, Unreadable
from kraftsim.inspect.frames import AskedFrame, dissect_request, dissect_response
from kraftsim.inspect.parts import Part, walk
from protocol.codec.message_codec import compiled
from protocol.codec.tree import ArrayLayout, StructureLayout, layout_of
from protocol.examples import example
from protocol.malformed import MalformedMessage
from protocol.requests import request_chunks, response_chunks
from protocol.schema import Message, declaration_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize tests with all declared messages."""
    from tools.drift.comparison import declared_messages

    if "message_class" in metafunc.fixturenames:
        classes = declared_messages()
        metafunc.parametrize("message_class", classes, ids=[cls.__name__ for cls in classes])


def dissected(cls: type, version: int, content: bytes) -> list[Part]:
    parts: list[Part] = []
    end = Dissector(content).message(layout_of(cls, version), 0, parts)
    assert end == len(content)
    return parts


def assert_same(layout: StructureLayout, parts: list[Part], message: Message) -> None:
    """Every field has the value of the object, and there are no other fields."""
    found = {part.name: part for part in parts}
    tagged = {field.name for field in layout.tags}
    for field in (*layout.fields, *layout.tags):
        value = getattr(message, field.name)
        if field.name in tagged and field.name not in found:
            continue  # omitted because it has the default, which the codec has filled in
        part = found.pop(field.name)
        match field.type:
            case _ if value is None:
                assert part.value is None and part.parts is None
            case StructureLayout() as inner:
                assert part.parts is not None
                assert_same(inner, part.parts, value)
            case ArrayLayout(StructureLayout() as inner):
                assert part.parts is not None and len(part.parts) == len(value)
                for each, element in zip(part.parts, value, strict=True):
                    assert_same(inner, each.parts or [], element)
            case _:
                assert part.value == value
    unknown = found.pop(TAGS, None)
    assert {part.name: part.value for part in (unknown.parts if unknown else None) or ()} == {
        str(tag): content for tag, content in (message._tags or {}).items()
    }
    assert not found


def test_every_field_of_every_version_has_the_value_that_the_codec_reads(
    message_class: type[Message],
) -> None:
    declaration = declaration_of(message_class)
    for version in range(declaration.versions.first, declaration.versions.last + 1):
        random = Random(f"{declaration.name} {version}")
        message = example(layout_of(message_class, version), random.randrange)
        content = compiled(message_class, version).encode(message)
        parts = dissected(message_class, version, content)
        assert_same(
            layout_of(message_class, version),
            parts,
            compiled(message_class, version).decode(content, 0)[0],
        )


def test_fields_are_contiguous_and_fill_the_message(message_class: type[Message]) -> None:
    """Each field starts where the previous one ends, except for tag counts; nested fields are
    inside their parent.
    """
    declaration = declaration_of(message_class)
    layout = layout_of(message_class, declaration.versions.last)
    message = example(layout, Random(declaration.name).randrange)
    content = compiled(message_class, layout.version).encode(message)
    parts = dissected(message_class, layout.version, content)
    for _, part in walk(parts):
        assert 0 <= part.start <= part.end <= len(content)
        for inside in part.parts or ():
            assert part.start <= inside.start and inside.end <= part.end
    fields = [part for part in parts if not part.emit.startswith("tag") and part.name != TAGS]
    assert not fields or fields[0].start == 0
    for before, after in pairwise(fields):
        assert before.end == after.start


def test_a_truncated_message_is_read_up_to_its_end(message_class: type[Message]) -> None:
    """Always a reported error with a position inside, never another exception; the parts before it
    are kept.
    """
    declaration = declaration_of(message_class)
    layout = layout_of(message_class, declaration.versions.last)
    message = example(layout, Random(f"cut {declaration.name}").randrange)
    content = compiled(message_class, layout.version).encode(message)
    for size in range(0, len(content), 1 + len(content) // 60):
        parts: list[Part] = []
        dissector = Dissector(content[:size])
        with pytest.raises(Unreadable) as unreadable:
            dissector.message(layout, 0, parts)
        trouble = dissector.trouble(unreadable.value)
        assert 0 <= trouble.position <= size
        assert trouble.path.partition(".")[0].partition("[")[0] in (
            "",
            *(part.name for part in parts),
        )


def test_a_changed_byte_is_read_or_refused_as_the_codec_does(message_class: type[Message]) -> None:
    """The dissector accepts what the codec accepts, with the same values.

    A known tag with a wrong size is skipped, as in Kafka, and reported.
    """
    declaration = declaration_of(message_class)
    layout = layout_of(message_class, declaration.versions.last)
    random = Random(f"change {declaration.name}")
    content = bytearray(
        compiled(message_class, layout.version).encode(example(layout, random.randrange))
    )
    for _ in range(5 if content else 0):
        place = random.randrange(min(len(content), 400))
        before, content[place] = (
            content[place],
            random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256))),
        )
        parts: list[Part] = []
        try:
            message, end = compiled(message_class, layout.version).decode(bytes(content), 0)
        except MalformedMessage:
            dissector = Dissector(bytes(content))
            with suppress(Unreadable):
                dissector.message(layout, 0, parts)
                assert [oddity for oddity in dissector.oddities if "its size said" in oddity.reason]
        else:
            assert Dissector(bytes(content)).message(layout, 0, parts) == end
            assert_same(layout, parts, message)
        content[place] = before


def test_codec_and_dissector_name_the_same_field() -> None:
    """For a string that is longer than the message: the path of `MalformedMessage`, and its byte
    position.
    """
    from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic

    content = compiled(MetadataRequest, 9).encode(
        MetadataRequest(topics=[MetadataRequestTopic(name="one"), MetadataRequestTopic(name="two")])
    )
    wrong = content.replace(b"\x04two", b"\x7ftwo")
    with pytest.raises(MalformedMessage) as malformed:
        compiled(MetadataRequest, 9).decode(wrong, 0)
    parts: list[Part] = []
    dissector = Dissector(wrong)
    with pytest.raises(Unreadable) as unreadable:
        dissector.message(layout_of(MetadataRequest, 9), 0, parts)
    trouble = dissector.trouble(unreadable.value)
    assert (
        (trouble.path, trouble.position)
        == (malformed.value.path, malformed.value.position)
        == ("topics[1].name", wrong.index(b"two"))
    )
    assert [part.name for _, part in walk(parts)] == ["topics", "[0]", "name", "[1]", "name"]


@pytest.mark.parametrize(
    ("error_code", "version", "read_as"),
    [(35, 4, 0), (0, 4, 4), (35, 0, 0)],
)
def test_an_unsupported_version_api_versions_response_is_read_as_version_0(
    error_code: int, version: int, read_as: int
) -> None:
    """KIP-511: the response of a node that does not support the requested version."""
    from protocol.messages.k18_api_versions import ApiVersion, ApiVersionsResponse

    body = ApiVersionsResponse(
        error_code=error_code, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=3)]
    )
    frame = dissect_response(
        b"".join(response_chunks(18, read_as, 5, body)), AskedFrame(18, version), 4
    )
    assert (frame.body_version, frame.correlation_id, frame.tree.troubles) == (read_as, 5, [])


@pytest.mark.parametrize("version", [0, 3])
def test_header_and_body_of_a_request_are_separated(version: int) -> None:
    """ControlledShutdown v0 has a header without a client id, newer versions have tagged fields."""
    from protocol.messages.k07_controlled_shutdown import ControlledShutdownRequest

    content = b"".join(request_chunks(7, version, 9, "me", ControlledShutdownRequest(broker_id=3)))
    frame = dissect_request(content, 4)
    assert (frame.api_name, frame.api_version, frame.correlation_id, frame.tree.troubles) == (
        "ControlledShutdown",
        version,
        9,
        [],
    )
    assert frame.client_id == (None if version == 0 else "me")
    assert frame.body is not None and frame.body.integer("broker_id") == 3


def test_trailing_bytes_are_reported() -> None:
    from protocol.messages.k22_init_producer_id import InitProducerIdRequest

    content = b"".join(request_chunks(22, 4, 9, "me", InitProducerIdRequest())) + b"xyz"
    (trouble,) = dissect_request(content, 4).tree.troubles
    assert (trouble.position, trouble.reason) == (
        len(content) - 3,
        "3 bytes are left behind the InitProducerIdRequest v4",
    )


def test_envelope_requests_and_responses_are_decoded() -> None:
    """Envelope (KIP-590): a request inside a request, and the response inside the response."""
    from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
    from protocol.messages.k58_envelope import EnvelopeRequest, EnvelopeResponse

    inside = b"".join(
        request_chunks(22, 4, 77, "inner", InitProducerIdRequest(transactional_id="t"))
    )[4:]
    request = dissect_request(
        b"".join(
            request_chunks(
                58,
                0,
                1,
                "outer",
                EnvelopeRequest(request_data=inside, client_host_address=b"\x7f\0\0\1"),
            )
        ),
        4,
    )
    assert request.tree.is_whole and request.inner is not None
    assert (request.inner.api_name, request.inner.correlation_id, request.inner.client_id) == (
        "InitProducerId",
        77,
        "inner",
    )
    answer = b"".join(response_chunks(22, 4, 77, InitProducerIdResponse(producer_id=4711)))[4:]
    response = dissect_response(
        b"".join(response_chunks(58, 0, 1, EnvelopeResponse(response_data=answer))),
        request.asked,
        4,
    )
    places = {path: part.value for path, part in walk(response.tree.parts)}
    assert response.tree.is_whole and places["body.response_data.body.producer_id"] == 4711


@pytest.mark.parametrize(
    ("right", "wrong", "said", "read"),
    [
        (
            b"\x03\x01a\x05\x02cd",
            b"\x05\x02cd\x03\x01a",
            "tag 3 stands after tag 5; Kafka reads on",
            "abc",
        ),
        (b"\x04abc", b"\x04a\xffc", "not UTF-8; Kafka reads on", "a\ufffdc"),
    ],
    ids=["tags", "text"],
)
def test_errors_that_kafka_tolerates_are_read_and_reported(
    right: bytes, wrong: bytes, said: str, read: str
) -> None:
    from protocol.messages.k22_init_producer_id import InitProducerIdRequest

    request: Message = InitProducerIdRequest(transactional_id="abc")
    request._tags = {3: b"a", 5: b"cd"}
    content = b"".join(request_chunks(22, 4, 9, "me", request))
    assert right in content
    frame = dissect_request(content.replace(right, wrong), 4)
    assert [trouble.reason for trouble in frame.tree.troubles] == [said]
    assert frame.body is not None and frame.body.text("transactional_id") == read
    assert {part.name: part.value for path, part in walk(frame.tree.parts) if TAGS in path} == {
        TAGS: None,
        "3": b"a",
        "5": b"cd",
    }
