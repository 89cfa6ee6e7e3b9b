"""Every declared message, at every version: the fused codec agrees with the readable reference, and
no input causes worse than a refusal.
"""

import time
import tracemalloc
from contextlib import suppress

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.codec.interpreted import MessageConstruct
from protocol.codec.message_codec import DISAGREEMENT, CompiledMessage, compiled, construct_of
from protocol.codec.tree import layout_of
from protocol.examples import example
from protocol.malformed import MalformedMessage
from tests.wire.hostile_bytes import (
    FRAME_SIZE_MAX,
    SWEPT_SIZE_MAX,
    check_mutations,
    check_outcome,
    crowded,
    declared_versions,
    quick_codec,
    random_source,
    short_frame,
)
from tools.drift.comparison import declared_messages

EXAMPLES_PER_VERSION = 8
HANDFUL = (0x00, 0x01, 0x7F, 0x80, 0xFF)
FLOOD_BYTES = 8 * 1024
BYTES_PER_BYTE_MAX = 100
"""Bytes of memory for each byte of a frame: small structures are the most expensive."""
BYTES_FREE = 16 * 1024
LIE_BYTES_MAX = 128 * 1024


def _outcome(codec: CompiledMessage[object] | MessageConstruct, frame: bytes) -> tuple[str, object]:
    """Return the result of parsing: the bytes of the message, or the path of its error."""
    try:
        message = codec.parse(frame)
    except MalformedMessage as malformed:
        assert DISAGREEMENT not in malformed.reason, malformed
        return "malformed", malformed.path
    return "parsed", construct_of(codec.layout.cls, codec.layout.version).build(message)


def test_fused_and_reference_codecs_agree(message_class: type) -> None:
    for version in declared_versions(message_class):
        fused: CompiledMessage[object] = compiled(message_class, version)
        reference = construct_of(message_class, version)
        randrange = random_source(message_class, version)
        for _ in range(EXAMPLES_PER_VERSION):
            message = example(layout_of(message_class, version), randrange)
            frame = fused.encode(message)
            assert frame == reference.build(message)
            chunks: list[bytes | memoryview] = []
            fused.encode_into(message, chunks)
            assert b"".join(chunks) == frame
            parsed, position = fused.decode(b"\x00" + frame + b"\xff", 1)
            assert (parsed, position) == (message, 1 + len(frame))
            assert parsed == reference.parse(frame)
            assert fused.encode(parsed) == frame, "unknown tags got lost"


def test_a_message_truncated_anywhere_is_malformed(message_class: type) -> None:
    for version in declared_versions(message_class):
        frame = short_frame(message_class, version, FRAME_SIZE_MAX)
        for size in range(len(frame)):
            assert not check_outcome(message_class, version, frame[:size]), (
                f"{size} of {len(frame)} bytes were accepted as a complete message"
            )
        for size in range(0, len(frame), 1 + len(frame) // 12):
            outcome = _outcome(compiled(message_class, version), frame[:size])
            assert outcome == _outcome(construct_of(message_class, version), frame[:size])


def test_a_message_with_any_byte_changed_is_read_or_refused(message_class: type) -> None:
    """A handful of values for every byte; all of them in `make fuzz`."""
    for version in declared_versions(message_class):
        check_mutations(message_class, version, HANDFUL, size_max=SWEPT_SIZE_MAX)


def test_both_codecs_agree_on_mutated_messages(message_class: type) -> None:
    for version in declared_versions(message_class):
        fused: CompiledMessage[object] = compiled(message_class, version)
        reference = construct_of(message_class, version)
        randrange = random_source(message_class, version)
        frame = short_frame(message_class, version, SWEPT_SIZE_MAX)
        for _ in range(min(20, 4 * len(frame))):
            mutated = bytearray(frame)
            for _ in range(1 + randrange(2)):
                mutated[randrange(len(mutated))] = (*HANDFUL, randrange(256))[randrange(6)]
            assert _outcome(fused, bytes(mutated)) == _outcome(reference, bytes(mutated)), bytes(
                mutated
            ).hex()


def test_random_bytes_are_read_or_refused(message_class: type) -> None:
    for version in declared_versions(message_class):
        randrange = random_source(message_class, version, "noise")
        for _ in range(20):
            ceiling = (256, 4)[randrange(2)]  # small numbers reach more code than large ones
            check_outcome(
                message_class, version, bytes(randrange(ceiling) for _ in range(randrange(160)))
            )


@settings(
    max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
@given(st.data())
def test_both_codecs_agree_on_arbitrary_bytes(data: st.DataObject) -> None:
    message_class = data.draw(st.sampled_from(declared_messages()))
    version = data.draw(st.sampled_from(declared_versions(message_class)))
    noise = data.draw(st.binary(max_size=200))
    assert _outcome(compiled(message_class, version), noise) == _outcome(
        construct_of(message_class, version), noise
    )


def test_a_default_message_can_be_encoded_in_every_version(message_class: type) -> None:
    """Absent fields have their defaults, so a new message can be sent at any version unless a field
    has no valid default.
    """
    for version in declared_versions(message_class):
        layout = layout_of(message_class, version)
        if any(field.declared.default is None and not field.nullable for field in layout.fields):
            continue
        frame = compiled(message_class, version).encode(message_class())
        assert compiled(message_class, version).parse(frame) == message_class()


def test_a_false_element_count_costs_neither_time_nor_memory(message_class: type) -> None:
    """Every number that could be a count or a size is two billion; no memory may be reserved for
    it.
    """
    for version in declared_versions(message_class):
        frame = short_frame(message_class, version, SWEPT_SIZE_MAX)
        lie = (
            b"\xff\xff\xff\xff\x07"
            if layout_of(message_class, version).flexible
            else b"\x7f\xff\xff\xff"
        )
        lies = [
            frame[:position] + lie + frame[position + len(lie) :] for position in range(len(frame))
        ]
        for each in (frame, *lies):  # so that the codecs exist, also those that explain errors
            check_outcome(message_class, version, each)
        tracemalloc.start()
        started = time.perf_counter()
        most = 0
        for each in lies:
            before, _ = tracemalloc.get_traced_memory()  # garbage of the former ones included
            tracemalloc.reset_peak()
            check_outcome(message_class, version, each)
            most = max(most, tracemalloc.get_traced_memory()[1] - before)
        tracemalloc.stop()
        assert time.perf_counter() - started < 5 and most < LIE_BYTES_MAX, (
            f"version {version}: {most} bytes"
        )


def test_nested_elements_cost_memory_in_proportion_to_their_size(message_class: type) -> None:
    """Frames with many elements, as small and as deeply nested as possible, and frames in which
    every count is too large.
    """
    for version in declared_versions(message_class):
        codec = quick_codec(message_class, version)
        many = compiled(message_class, version).encode(
            crowded(layout_of(message_class, version), 30)
        )
        floods = [many] + [
            filling * (FLOOD_BYTES // len(filling))
            for filling in (b"\x00\x00\x00\x01", b"\x02", b"\x7f", b"\x00\x00\x04\x00")
        ]
        for flood in floods:
            with suppress(MalformedMessage):
                codec.decode(flood, 0)  # so that the code exists
            started = time.perf_counter()
            with suppress(MalformedMessage):
                codec.decode(flood, 0)
            seconds = time.perf_counter() - started
            tracemalloc.start()  # which makes everything many times slower
            with suppress(MalformedMessage):
                codec.decode(flood, 0)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert seconds < 1 and peak < BYTES_FREE + len(flood) * BYTES_PER_BYTE_MAX, (
                f"v{version}, {flood[:20].hex()}...: {peak} bytes"
            )
