"""The codecs of record batches, in the framings that other clients write and read."""

import struct
import zlib

import cramjam
import pytest

from protocol.compression import XERIAL_HEADER, Compression, compress, decompress
from protocol.lz4_frames import HEADER as LZ4_FRAME_HEADER
from protocol.malformed_batches import UndecodableRecords

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
NOISE = b"".join(zlib.crc32(struct.pack(">i", number)).to_bytes(4) for number in range(40_000))
DATA = [b"", b"a", b"value " * 20_000, NOISE, NOISE[:65_536], NOISE[:65_537], b"v" * 32_768]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("data", DATA, ids=len)
def test_what_is_compressed_comes_back(codec: Compression, data: bytes) -> None:
    """Also across the borders of blocks, and where compression makes the data larger."""
    assert decompress(codec, compress(codec, data)) == data
    assert decompress(codec, memoryview(compress(codec, memoryview(data)))) == data


@pytest.mark.parametrize("data", DATA, ids=len)
def test_lz4_is_written_in_independent_blocks(data: bytes) -> None:
    """Kafka's Java client refuses frames whose blocks depend on each other; the header is the one that it writes itself."""
    frame = compress(Compression.LZ4, data)
    assert frame.startswith(LZ4_FRAME_HEADER) and frame.endswith(bytes(4))
    assert bytes(cramjam.lz4.decompress(frame)) == data, "another reader of lz4 frames agrees, header checksum included"


def test_lz4_frames_of_other_clients_are_read() -> None:
    for frame in (cramjam.lz4.compress(NOISE), cramjam.lz4.compress(b"value " * 20_000)):
        assert len(decompress(Compression.LZ4, bytes(frame))) in (len(NOISE), 120_000)


def test_snappy_is_read_raw_and_framed_and_written_framed() -> None:
    """librdkafka writes one raw block, the Java client xerial's framing."""
    data = b"value " * 20_000
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
    framed = compress(Compression.SNAPPY, data)
    assert framed.startswith(XERIAL_HEADER)
    first_size = int.from_bytes(framed[16:20])
    assert len(bytes(cramjam.snappy.decompress_raw(framed[20 : 20 + first_size]))) == 32 * 1024


def test_gzip_may_come_in_several_members() -> None:
    assert decompress(Compression.GZIP, compress(Compression.GZIP, b"one") + compress(Compression.GZIP, b"two")) == b"onetwo"


def test_the_same_data_gives_the_same_bytes() -> None:
    """gzip would write the time of day, if it were asked to."""
    for codec in CODECS:
        assert compress(codec, DATA[2]) == compress(codec, DATA[2])
    assert compress(Compression.GZIP, b"x")[4:8] == bytes(4)


@pytest.mark.parametrize("codec", CODECS)
def test_undecodable_data_is_one_kind_of_error(codec: Compression) -> None:
    """Whatever a peer sends: cut at any place, or garbage."""
    whole = compress(codec, b"value " * 3000)
    for cut in range(1, len(whole), 7):
        with pytest.raises(UndecodableRecords):
            decompress(codec, whole[:cut])
    for garbage in (b"\x05", b"garbage garbage garbage", b"\xff" * 64, XERIAL_HEADER + b"\xff" * 8, LZ4_FRAME_HEADER + b"\xff" * 8):
        with pytest.raises(UndecodableRecords):
            decompress(codec, garbage)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_a_small_block_cannot_fill_the_memory(codec, monkeypatch):
    """A batch of a megabyte may unpack to gigabytes; the limit is lowered here to keep the test quick."""
    monkeypatch.setattr("protocol.compression.PLAIN_BYTES_MAX", 1 << 20)
    at_the_limit, above = bytes(1 << 20), bytes((1 << 20) + 1)
    assert decompress(codec, compress(codec, at_the_limit)) == at_the_limit
    with pytest.raises(UndecodableRecords):
        decompress(codec, compress(codec, above))
