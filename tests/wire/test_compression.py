"""The codecs of record batches, in the framings that other clients write and read."""

import contextlib
import struct
import time
import zlib

import cramjam
import pytest

from protocol.records.record import (
    LZ4_HEADER,
    XERIAL_HEADER,
    Compression,
    UndecodableRecords,
    compress,
    decompress,
    with_right_lz4_checksum,
)

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
NOISE = b"".join(zlib.crc32(struct.pack(">i", number)).to_bytes(4) for number in range(40_000))
DATA = [b"", b"a", b"value " * 20_000, NOISE, NOISE[:65_536], NOISE[:65_537], b"v" * 32_768]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("data", DATA, ids=len)
def test_compression_round_trips(codec: Compression, data: bytes) -> None:
    """Also across block boundaries, and for data that compression makes larger."""
    assert decompress(codec, compress(codec, data)) == data
    assert decompress(codec, memoryview(compress(codec, memoryview(data)))) == data


@pytest.mark.parametrize("data", DATA, ids=len)
def test_lz4_is_written_in_independent_blocks(data: bytes) -> None:
    """Kafka's Java client refuses frames with dependent blocks; the header is the one that it
    writes itself.
    """
    frame = compress(Compression.LZ4, data)
    assert frame.startswith(LZ4_HEADER) and frame.endswith(bytes(4))
    assert bytes(cramjam.lz4.decompress(frame)) == data, (
        "another reader of lz4 frames agrees, header checksum included"
    )


def test_lz4_frames_of_other_clients_are_read() -> None:
    for frame in (cramjam.lz4.compress(NOISE), cramjam.lz4.compress(b"value " * 20_000)):
        assert len(decompress(Compression.LZ4, bytes(frame))) in (len(NOISE), 120_000)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"content_checksum": True},
        {"block_linked": False},
        {"content_checksum": False, "block_linked": True},
    ],
    ids=str,
)
def test_lz4_frames_with_every_option_are_read(options: dict[str, bool]) -> None:
    """With or without checksums, in dependent blocks (which the Java client refuses) or independent
    ones.
    """
    compressor = cramjam.lz4.Compressor(**options)
    compressor.compress(NOISE + b"value " * 20_000)
    frame = bytes(compressor.finish())
    assert (
        decompress(Compression.LZ4, frame)
        == decompress(Compression.LZ4, frame + b"behind")
        == NOISE + b"value " * 20_000
    )
    wrong = memoryview(frame[:6] + b"?" + frame[7:])
    assert decompress(Compression.LZ4, with_right_lz4_checksum(wrong)) == NOISE + b"value " * 20_000


def test_zstd_frames_without_content_size_or_in_sequence_are_read() -> None:
    """A streaming client does not know the size when it writes the header; other frames may follow,
    also skippable ones (RFC 8878).
    """
    compressor = cramjam.zstd.Compressor()
    for _ in range(20):
        compressor.compress(b"value " * 10_000)
    streamed = bytes(compressor.finish())
    skipped = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    assert decompress(Compression.ZSTD, streamed) == b"value " * 200_000
    assert (
        decompress(Compression.ZSTD, compress(Compression.ZSTD, b"one") + skipped + streamed)
        == b"one" + b"value " * 200_000
    )
    for bad in (streamed + b"\x00", skipped[:-1], streamed[:-1], streamed[:4]):
        with pytest.raises(UndecodableRecords):
            decompress(Compression.ZSTD, bad)


def test_snappy_headers_differ_between_writers() -> None:
    """The magic is the same, the versions after it differ, and readers ignore them."""
    framed = compress(Compression.SNAPPY, b"value")
    assert decompress(Compression.SNAPPY, framed[:8] + bytes(8) + framed[16:]) == b"value"
    with pytest.raises(UndecodableRecords):
        decompress(Compression.SNAPPY, framed[:12])


def test_trailing_bytes_after_a_gzip_member_are_ignored() -> None:
    """As in Java's GZIPInputStream."""
    assert decompress(Compression.GZIP, compress(Compression.GZIP, b"one") + b"behind") == b"one"
    with pytest.raises(UndecodableRecords):
        decompress(Compression.GZIP, b"")


@pytest.mark.parametrize("codec", CODECS)
def test_broken_compressed_data_is_refused_quickly(codec: Compression) -> None:
    """No decompression is repeated with a larger buffer: the maximum size of a block follows from
    its headers.
    """
    whole = bytearray(compress(codec, b"value " * 3000))
    started = time.perf_counter()
    for position in range(16, len(whole)):
        whole[position] ^= 0x55
        with contextlib.suppress(UndecodableRecords):
            assert len(decompress(codec, whole)) < 1 << 22
        whole[position] ^= 0x55
    assert (time.perf_counter() - started) / (len(whole) - 16) < 0.02


def test_snappy_is_read_raw_and_framed_and_written_framed() -> None:
    """librdkafka writes one raw block, the Java client xerial's framing."""
    data = b"value " * 20_000
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
    framed = compress(Compression.SNAPPY, data)
    assert framed.startswith(XERIAL_HEADER)
    first_size = int.from_bytes(framed[16:20])
    assert len(bytes(cramjam.snappy.decompress_raw(framed[20 : 20 + first_size]))) == 32 * 1024


def test_several_gzip_members_are_read() -> None:
    assert (
        decompress(
            Compression.GZIP,
            compress(Compression.GZIP, b"one") + compress(Compression.GZIP, b"two"),
        )
        == b"onetwo"
    )


@pytest.mark.parametrize("size_bytes", [0, 1, 600, 70_000, 300_000], ids=str)
def test_consecutive_gzip_members_of_every_size_are_read(size_bytes: int) -> None:
    """Longer and shorter than the input chunks of zlib, compressed and decompressed."""
    members = [NOISE[:size_bytes], b"v" * size_bytes, NOISE[: size_bytes // 2], b""] * 2
    whole = b"".join(compress(Compression.GZIP, each) for each in members)
    assert decompress(Compression.GZIP, whole) == b"".join(members)
    assert decompress(Compression.GZIP, bytearray(whole) + b"behind") == b"".join(members)
    with pytest.raises(UndecodableRecords):
        decompress(Compression.GZIP, whole[:-1])


def test_many_gzip_members_take_linear_time() -> None:
    """With a large max.message.bytes, half a million empty members fit into a batch of 10 MB;
    copying the rest for each would take minutes.
    """
    one = compress(Compression.GZIP, b"")
    started = time.process_time()
    assert decompress(Compression.GZIP, one * 200_000) == b""
    assert time.process_time() - started < 3.0


def test_the_same_data_gives_the_same_bytes() -> None:
    """gzip would include the current time by default."""
    for codec in CODECS:
        assert compress(codec, DATA[2]) == compress(codec, DATA[2])
    assert compress(Compression.GZIP, b"x")[4:8] == bytes(4)


@pytest.mark.parametrize("codec", CODECS)
def test_undecodable_data_raises_one_error_class(codec: Compression) -> None:
    """For any input of a peer: truncated at any position, or garbage."""
    whole = compress(codec, b"value " * 3000)
    for size in range(1, len(whole), 7):
        with pytest.raises(UndecodableRecords):
            decompress(codec, whole[:size])
    for garbage in (
        b"\x05",
        b"garbage garbage garbage",
        b"\xff" * 64,
        XERIAL_HEADER + b"\xff" * 8,
        LZ4_HEADER + b"\xff" * 8,
    ):
        with pytest.raises(UndecodableRecords):
            decompress(codec, garbage)


@pytest.mark.parametrize(
    "codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
)
def test_a_small_block_cannot_exhaust_memory(
    codec: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of a megabyte may decompress to gigabytes; the limit is lowered here to keep the test
    fast.
    """
    monkeypatch.setattr("protocol.records.record.PLAIN_BYTES_MAX", 1 << 20)
    at_the_limit, above = bytes(1 << 20), bytes((1 << 20) + 1)
    assert decompress(codec, compress(codec, at_the_limit)) == at_the_limit
    with pytest.raises(UndecodableRecords):
        decompress(codec, compress(codec, above))
