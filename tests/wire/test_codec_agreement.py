"""Every declared message, at every version: the fused codec does what the readable reference does, and no input makes either do worse than refuse."""

import time
from collections.abc import Callable
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.declaration import LAST_VERSION
from protocol.drift.declared import declared_messages
from protocol.examples import example
from protocol.malformed import MalformedMessage
from protocol.message_codec import DISAGREEMENT, CompiledMessage, MessageConstruct, compiled, construct_of
from protocol.resolve import layout_of
from protocol.schema import declaration_of

EXAMPLES_PER_VERSION = 12
FRAME_SIZE_MAX = 400
"""Of what is cut at every byte, and mutated."""


def _versions(message_class: type) -> range:
    versions = declaration_of(message_class).versions
    assert versions.last < LAST_VERSION, f"{message_class.__name__} has no last version"
    return range(versions.first, versions.last + 1)


def _dice(message_class: type, version: int) -> Callable[[int], int]:
    return Random(f"{message_class.__name__} {version}").randrange


def _outcome(codec: CompiledMessage | MessageConstruct, frame: bytes) -> tuple[str, object]:
    """Return what parsing comes to: the bytes that the message has, or the path where it is wrong."""
    try:
        message = codec.parse(frame)
    except MalformedMessage as malformed:
        assert DISAGREEMENT not in malformed.reason, malformed
        return "malformed", malformed.path
    return "parsed", construct_of(codec.layout.cls, codec.layout.version).build(message)


def test_fused_and_reference_build_and_parse_alike(message_class: type) -> None:
    for version in _versions(message_class):
        fused, reference = compiled(message_class, version), construct_of(message_class, version)
        dice = _dice(message_class, version)
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
    for version in _versions(message_class):
        fused, reference = compiled(message_class, version), construct_of(message_class, version)
        frame = _short_frame(message_class, version)
        for size in range(len(frame)):
            outcome = _outcome(fused, frame[:size])
            assert outcome[0] == "malformed", f"{size} of {len(frame)} bytes passed for a whole message"
            assert size % 7 or outcome == _outcome(reference, frame[:size])


def test_a_mutated_message_is_read_alike_or_refused_alike(message_class: type) -> None:
    for version in _versions(message_class):
        fused, reference = compiled(message_class, version), construct_of(message_class, version)
        dice = _dice(message_class, version)
        frame = _short_frame(message_class, version)
        for _ in range(min(25, 4 * len(frame))):
            mutated = bytearray(frame)
            for _ in range(1 + dice(2)):
                mutated[dice(len(mutated))] = (0, 1, 0x7F, 0x80, 0xFF, dice(256))[dice(6)]
            assert _outcome(fused, bytes(mutated)) == _outcome(reference, bytes(mutated)), bytes(mutated).hex()


def test_a_default_message_has_bytes_in_every_version(message_class: type) -> None:
    """Absent fields have their defaults, so a fresh message can be sent at any version unless a field has no default that fits."""
    for version in _versions(message_class):
        layout = layout_of(message_class, version)
        if any(field.declared.default is None and not field.nullable for field in layout.fields):
            continue
        frame = compiled(message_class, version).encode(message_class())
        assert compiled(message_class, version).parse(frame) == message_class()


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.data())
def test_arbitrary_bytes_are_read_alike_or_refused_alike(data: st.DataObject) -> None:
    message_class = data.draw(st.sampled_from(declared_messages()))
    version = data.draw(st.sampled_from(_versions(message_class)))
    noise = data.draw(st.binary(max_size=200))
    assert _outcome(compiled(message_class, version), noise) == _outcome(construct_of(message_class, version), noise)


def test_a_count_that_lies_costs_neither_time_nor_memory(message_class: type) -> None:
    """Every number that could be a count or a size says two thousand millions; nothing may be reserved on its word."""
    for version in _versions(message_class):
        frame = _short_frame(message_class, version)
        started = time.perf_counter()
        for position in range(0, max(1, len(frame) - 5), 3):
            lying = frame[:position] + (b"\x7f\xff\xff\xff" if not compiled(message_class, version).layout.flexible else b"\xff\xff\xff\xff\x07")
            _outcome(compiled(message_class, version), lying + frame[position + 5 :])
        assert time.perf_counter() - started < 5


def _short_frame(message_class: type, version: int) -> bytes:
    """Build an example that is not too long, as many-sided as the dice find."""
    dice = _dice(message_class, version)
    frames = [compiled(message_class, version).encode(example(layout_of(message_class, version), dice)) for _ in range(12)]
    return max((frame for frame in frames if len(frame) <= FRAME_SIZE_MAX), key=len, default=min(frames, key=len)[:FRAME_SIZE_MAX])
