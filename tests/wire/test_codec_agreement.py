"""Every declared message, at every version: the fused codec does what the readable reference does, and no input makes either do worse than refuse."""

import time
import tracemalloc
from contextlib import suppress

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.drift.declared import declared_messages
from protocol.examples import example
from protocol.malformed import MalformedMessage
from protocol.message_codec import DISAGREEMENT, CompiledMessage, compiled, construct_of
from protocol.message_construct import MessageConstruct
from protocol.resolve import layout_of
from tests.wire.hostile_bytes import check_mutations, check_outcome, crowded, declared_versions, dice_for, quick_codec, short_frame

EXAMPLES_PER_VERSION = 8
FRAME_SIZE_MAX = 400
"""Of what is cut at every byte."""
SWEPT_SIZE_MAX = 120
"""Of what is changed at every byte."""
HANDFUL = (0x00, 0x01, 0x7F, 0x80, 0xFF)
FLOOD_BYTES = 8 * 1024
BYTES_PER_BYTE_MAX = 100
"""Of memory, for each byte of a frame: small structures are dearest."""
BYTES_FREE = 16 * 1024
LIE_BYTES_MAX = 64 * 1024


def _outcome(codec: CompiledMessage | MessageConstruct, frame: bytes) -> tuple[str, object]:
    """Return what parsing comes to: the bytes that the message has, or the path where it is wrong."""
    try:
        message = codec.parse(frame)
    except MalformedMessage as malformed:
        assert DISAGREEMENT not in malformed.reason, malformed
        return "malformed", malformed.path
    return "parsed", construct_of(codec.layout.cls, codec.layout.version).build(message)


def test_fused_and_reference_build_and_parse_alike(message_class: type) -> None:
    for version in declared_versions(message_class):
        fused, reference = compiled(message_class, version), construct_of(message_class, version)
        dice = dice_for(message_class, version)
        for _ in range(EXAMPLES_PER_VERSION):
            message = example(layout_of(message_class, version), dice)
            frame = fused.encode(message)
            assert frame == reference.build(message)
            chunks: list[bytes | memoryview] = []
            fused.encode_into(message, chunks)
            assert b"".join(chunks) == frame
            parsed, position = fused.decode(b"\x00" + frame + b"\xff", 1)
            assert (parsed, position) == (message, 1 + len(frame))
            assert parsed == reference.parse(frame)
            assert fused.encode(parsed) == frame, "unknown tags got lost"


def test_a_message_cut_anywhere_is_malformed(message_class: type) -> None:
    for version in declared_versions(message_class):
        frame = short_frame(message_class, version, FRAME_SIZE_MAX)
        for size in range(len(frame)):
            assert not check_outcome(message_class, version, frame[:size]), f"{size} of {len(frame)} bytes passed for a whole message"
        for size in range(0, len(frame), 1 + len(frame) // 12):
            outcome = _outcome(compiled(message_class, version), frame[:size])
            assert outcome == _outcome(construct_of(message_class, version), frame[:size])


def test_a_message_with_any_byte_changed_is_read_or_refused(message_class: type) -> None:
    """A handful of values for every byte; all of them in `make fuzz`."""
    for version in declared_versions(message_class):
        check_mutations(message_class, version, HANDFUL, size_max=SWEPT_SIZE_MAX)


def test_a_mutated_message_is_read_alike_or_refused_alike(message_class: type) -> None:
    for version in declared_versions(message_class):
        fused, reference = compiled(message_class, version), construct_of(message_class, version)
        dice = dice_for(message_class, version)
        frame = short_frame(message_class, version, SWEPT_SIZE_MAX)
        for _ in range(min(20, 4 * len(frame))):
            mutated = bytearray(frame)
            for _ in range(1 + dice(2)):
                mutated[dice(len(mutated))] = (*HANDFUL, dice(256))[dice(6)]
            assert _outcome(fused, bytes(mutated)) == _outcome(reference, bytes(mutated)), bytes(mutated).hex()


def test_random_bytes_are_read_or_refused(message_class: type) -> None:
    for version in declared_versions(message_class):
        dice = dice_for(message_class, version, "noise")
        for _ in range(20):
            ceiling = (256, 4)[dice(2)]  # small numbers come further than large ones
            check_outcome(message_class, version, bytes(dice(ceiling) for _ in range(dice(160))))


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.data())
def test_arbitrary_bytes_are_read_alike_or_refused_alike(data: st.DataObject) -> None:
    message_class = data.draw(st.sampled_from(declared_messages()))
    version = data.draw(st.sampled_from(declared_versions(message_class)))
    noise = data.draw(st.binary(max_size=200))
    assert _outcome(compiled(message_class, version), noise) == _outcome(construct_of(message_class, version), noise)


def test_a_default_message_has_bytes_in_every_version(message_class: type) -> None:
    """Absent fields have their defaults, so a fresh message can be sent at any version unless a field has no default that fits."""
    for version in declared_versions(message_class):
        layout = layout_of(message_class, version)
        if any(field.declared.default is None and not field.nullable for field in layout.fields):
            continue
        frame = compiled(message_class, version).encode(message_class())
        assert compiled(message_class, version).parse(frame) == message_class()


def test_a_count_that_lies_costs_neither_time_nor_memory(message_class: type) -> None:
    """Every number that could be a count or a size says two thousand millions; nothing may be reserved on its word."""
    for version in declared_versions(message_class):
        frame = short_frame(message_class, version, SWEPT_SIZE_MAX)
        lie = b"\xff\xff\xff\xff\x07" if layout_of(message_class, version).flexible else b"\x7f\xff\xff\xff"
        check_outcome(message_class, version, frame)  # so that the codec exists
        tracemalloc.start()
        started = time.perf_counter()
        for position in range(len(frame)):
            check_outcome(message_class, version, frame[:position] + lie + frame[position + len(lie) :])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert time.perf_counter() - started < 5 and peak < LIE_BYTES_MAX, f"version {version}: {peak} bytes"


def test_a_flood_of_nested_elements_costs_no_more_than_its_size_allows(message_class: type) -> None:
    """Frames of many elements, as small and as deep as the message has them, and frames in which every count says that more is inside."""
    for version in declared_versions(message_class):
        codec = quick_codec(message_class, version)
        many = compiled(message_class, version).encode(crowded(layout_of(message_class, version), 30))
        floods = [many] + [filling * (FLOOD_BYTES // len(filling)) for filling in (b"\x00\x00\x00\x01", b"\x02", b"\x7f", b"\x00\x00\x04\x00")]
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
            assert seconds < 1 and peak < BYTES_FREE + len(flood) * BYTES_PER_BYTE_MAX, f"v{version}, {flood[:20].hex()}...: {peak} bytes"
