"""Equal-shaped elements are read at once, by code generated during decoding: it must detect every
difference and not change results.
"""

from random import Random
from typing import Any

import pytest

from protocol.codec import sweeps
from protocol.codec.decoding import can_be_alike
from protocol.codec.interpreted import MessageConstruct
from protocol.codec.message_codec import DISAGREEMENT, CompiledMessage
from protocol.codec.sweeps import READERS_MAX, SEEN_MAX, Shapes, read_none
from protocol.codec.tree import ArrayLayout, StructureLayout, layout_of
from protocol.examples import example
from protocol.malformed import MalformedMessage
from protocol.messages.k00_produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.schema import Message, declaration_of
from tools.drift.comparison import declared_messages

FRAME_SIZE_MAX = 600


def _structures(layout: StructureLayout) -> list[tuple[str, StructureLayout]]:
    return [
        (field.name, field.type.element)
        for field in (*layout.fields, *layout.tags)
        if isinstance(field.type, ArrayLayout) and isinstance(field.type.element, StructureLayout)
    ]


def _has_shapes(layout: StructureLayout) -> bool:
    return any(can_be_alike(element) or _has_shapes(element) for _, element in _structures(layout))


def _learnable() -> list[type]:
    return [
        cls
        for cls in declared_messages()
        if _has_shapes(layout_of(cls, declaration_of(cls).versions.last))
    ]


def _repeat_first(message: Message, layout: StructureLayout, count: int) -> None:
    """Repeat the first element of every array of structures."""
    for name, element_layout in _structures(layout):
        elements = getattr(message, name)
        if elements:
            setattr(message, name, [elements[0]] * count + elements[1:2])
            for element in elements[:2]:
                _repeat_first(element, element_layout, count)


def _outcome(codec: CompiledMessage[object] | MessageConstruct, frame: bytes) -> tuple[str, object]:
    try:
        return "parsed", codec.parse(frame)
    except MalformedMessage as malformed:
        assert DISAGREEMENT not in malformed.reason, malformed
        return "malformed", malformed.path


def _metadata(*partitions: MetadataResponsePartition) -> Any:
    return MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=list(partitions))])


def _partition(index: int, *nodes: int) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=index, replica_nodes=list(nodes), isr_nodes=list(nodes)
    )


@pytest.fixture(autouse=True)
def _learns_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "FIRST_THRESHOLD", 1)


@pytest.mark.parametrize("learnable", _learnable(), ids=lambda cls: cls.__name__)
def test_learned_shapes_do_not_change_results(learnable: type) -> None:
    """Complete, truncated and mutated frames give the same result as the reference, before and
    after their shapes are known.
    """
    versions = declaration_of(learnable).versions
    for version in {versions.first, (versions.first + versions.last) // 2, versions.last}:
        randrange = Random(f"{learnable.__name__} {version}").randrange
        fused = CompiledMessage[object](learnable, version)
        reference = MessageConstruct(layout_of(learnable, version), fused)
        for _ in range(6):
            message = example(reference.layout, randrange)
            _repeat_first(message, reference.layout, 1 + randrange(4))
            frame = fused.encode(message)
            for _ in range(10):
                parsed, position = fused.decode(b"\x00" + frame + b"\x00", 1)
                assert (parsed, position) == (message, 1 + len(frame))
                assert fused.encode(parsed) == frame
            for _ in range(12 if len(frame) < FRAME_SIZE_MAX else 0):
                mutated = bytearray(frame[: randrange(2 * len(frame))])
                for _ in range(randrange(3) if mutated else 0):
                    mutated[randrange(len(mutated))] = (0, 1, 2, 0x7F, 0xFF, randrange(256))[
                        randrange(6)
                    ]
                assert _outcome(fused, bytes(mutated)) == _outcome(reference, bytes(mutated)), (
                    bytes(mutated).hex()
                )


@pytest.mark.parametrize("odd", range(5))
def test_an_element_of_another_shape_ends_only_the_fast_path(odd: int) -> None:
    codec = CompiledMessage(MetadataResponse, 12)
    usual = [_partition(index, 1, 2, 3) for index in range(5)]
    for _ in range(3):
        codec.decode(codec.encode(_metadata(*usual)), 0)
    for strange in (
        _partition(odd, 1, 2),
        _partition(odd),
        _partition(odd, *range(200)),
        _tagged(_partition(odd, 1, 2, 3)),
    ):
        message = _metadata(*usual[:odd], strange, *usual[odd + 1 :])
        parsed: Any = codec.parse(codec.encode(message))
        assert parsed == message
        assert [partition._tags for partition in parsed.topics[0].partitions] == [
            partition._tags for partition in message.topics[0].partitions
        ]


def test_rarely_present_structures_are_decoded() -> None:
    """Record errors are rare but important."""
    codec = CompiledMessage(ProduceResponse, 8)
    usual = [PartitionProduceResponse(index=index, base_offset=index) for index in range(4)]
    strange = PartitionProduceResponse(
        index=9, record_errors=[BatchIndexAndErrorMessage(batch_index=1)], error_message="no"
    )
    for partitions in (
        [*usual],
        [*usual],
        [*usual],
        [*usual[:2], strange, *usual[2:]],
        [strange, *usual],
    ):
        message = ProduceResponse(
            responses=[TopicProduceResponse(name="t", partition_responses=partitions)]
        )
        assert codec.parse(codec.encode(message)) == message


@pytest.mark.parametrize("variety", [10, 50, 1000])
def test_learning_of_new_shapes_is_bounded(variety: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No stream of shapes causes unbounded compilation or memory."""
    made: list[object] = []

    def reader(plan: object, scope: object, shape: object) -> object:
        made.append(shape)
        return read_none

    monkeypatch.setattr(sweeps, "_reader", reader)
    shapes = Shapes(("class_", (), (), False), {})
    for number in range(20_000):
        shapes.learn((number % variety, 1, 1))
        assert len(shapes._readers) <= READERS_MAX and len(shapes._seen) <= SEEN_MAX
    assert 1 <= len(made) <= 15  # each needs twice as many occurrences as the one before


def _tagged(partition: Any) -> Any:
    partition._tags = {5: b"x"}
    return partition
