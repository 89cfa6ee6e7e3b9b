"""Frames are reassembled from reads of any size."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.frames import BadFrameSize, FrameReader, FrameTooLarge, NegativeFrameSize
from protocol.malformed import MalformedMessage


def _framed(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(4) + frame for frame in frames)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(0, 400), max_size=12))
def test_frames_do_not_depend_on_read_boundaries(
    frames: list[bytes], boundaries: list[int]
) -> None:
    stream = _framed(*frames)
    places = sorted(
        {0, len(stream), *(boundary for boundary in boundaries if boundary < len(stream))}
    )
    reader = FrameReader()
    read = [frame for first, end in pairwise(places) for frame in reader.feed(stream[first:end])]
    assert read == frames


def test_a_frame_is_complete_with_its_last_byte() -> None:
    reader = FrameReader()
    stream = _framed(b"abc", b"", b"d")
    completed_at = {
        index: frames
        for index in range(len(stream))
        if (frames := reader.feed(stream[index : index + 1]))
    }
    assert completed_at == {6: [b"abc"], 10: [b""], 15: [b"d"]}
    assert reader.feed(b"") == []


@pytest.mark.parametrize(
    ("stream", "error", "size"),
    [
        (bytes.fromhex("ffffffff"), NegativeFrameSize, -1),
        (bytes.fromhex("80000000"), NegativeFrameSize, -(1 << 31)),
        (bytes.fromhex("00000065"), FrameTooLarge, 101),
        (bytes.fromhex("7fffffff"), FrameTooLarge, (1 << 31) - 1),
    ],
)
@pytest.mark.parametrize("piece_size", [1, 3, 100])
def test_a_size_out_of_bounds_is_refused_after_the_frames_before_it(
    stream: bytes, error: type[BadFrameSize], size: int, piece_size: int
) -> None:
    """Earlier requests still get their responses; then the connection is closed.

    Source: NetworkReceive.readFrom.
    """
    reader = FrameReader(limit=100)
    whole = _framed(b"x", bytes(100)) + stream
    frames: list[bytes] = []
    with pytest.raises(error) as caught:
        for first in range(0, len(whole), piece_size):
            frames += reader.feed(whole[first : first + piece_size])
    assert frames + caught.value.frames == [b"x", bytes(100)]
    assert caught.value.size == size and isinstance(caught.value, MalformedMessage)


def test_the_default_frame_size_limit_is_kafkas() -> None:
    assert FrameReader().feed((104_857_600).to_bytes(4)) == []
    with pytest.raises(FrameTooLarge, match="104857601"):
        FrameReader().feed((104_857_601).to_bytes(4))


def test_a_frame_received_byte_by_byte_takes_little_more_than_its_size() -> None:
    reader = FrameReader()
    size = 200_000
    frames = reader.feed(size.to_bytes(4))
    tracemalloc.start()
    for number in range(size):
        frames += reader.feed(bytes([number & 1]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert frames == [b"\0\1" * (size // 2)] and peak < 3 * size


def test_a_large_frame_in_many_pieces_takes_linear_time() -> None:
    """10,000 reads of 1 KiB: joining them once is fast, joining them repeatedly would copy 50
    GiB.
    """
    reader = FrameReader()
    size = 10_000 * 1024
    frames = reader.feed(size.to_bytes(4))
    for _ in range(10_000):
        frames += reader.feed(bytes(1024))
    assert [len(frame) for frame in frames] == [size]
