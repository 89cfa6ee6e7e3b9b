"""The lengths of gzipped records are checked chunk by chunk, with the same result as all of them
together.
"""

import contextlib
import zlib
from collections.abc import Iterator
from random import Random

import pytest

from protocol.records import record
from protocol.records.batches import CRC, HEADER_SIZE_BYTES, RecordBatch, build_batch, checksum_of
from protocol.records.record import Compression, MalformedRecord, Record, estimated_plain_bytes

GZIP_ATTRIBUTE = 22
MEBIBYTE = 1 << 20


def gzipped(records: bytes, count: int = 1) -> RecordBatch:
    """Return a batch whose records are arbitrary bytes."""
    block = zlib.compress(records, wbits=31)
    data = (
        bytearray(build_batch([Record(timestamp=0, value=b"v")] * count)[:HEADER_SIZE_BYTES])
        + block
    )
    data[8:12] = (len(data) - 12).to_bytes(4)
    data[GZIP_ATTRIBUTE] = Compression.GZIP
    CRC.pack_into(data, 17, checksum_of(data))
    return RecordBatch(bytes(data))


@pytest.mark.parametrize("piece_bytes", [1, 2, 7, 31, 1000])
def test_result_does_not_depend_on_the_chunks(
    monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    """Complete, truncated, and with too many or too few records."""
    monkeypatch.setattr(record, "PIECE_BYTES", piece_bytes)
    rng = Random(piece_bytes)
    for _ in range(60):
        count = rng.randrange(1, 9)
        values = [
            Record(timestamp=0, value=bytes(rng.choice((0, 1, 50, 100, 300)))) for _ in range(count)
        ]
        plain = build_batch(values)[HEADER_SIZE_BYTES:]
        announced = max(count + rng.choice((0, 0, 1, -1)), 1)
        sent = plain[: len(plain) - rng.choice((0, 0, 1, 5))] + bytes(rng.choice((0, 0, 1, 40)))
        is_whole = announced == count and sent == plain
        with contextlib.nullcontext() if is_whole else pytest.raises(MalformedRecord):
            gzipped(sent, announced).require_whole_records()


def test_bytes_after_an_error_are_never_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MiB of zeros are not a record: the first chunk shows it."""
    unpacked = 0
    pieces = record._gzip_pieces

    def counted(data: bytes) -> Iterator[bytes]:
        nonlocal unpacked
        for piece in pieces(data):
            unpacked += len(piece)
            yield piece

    monkeypatch.setattr(record, "_gzip_pieces", counted)
    with pytest.raises(MalformedRecord):
        gzipped(bytes(64 * MEBIBYTE)).require_whole_records()
    assert unpacked <= 2 * record.PIECE_BYTES


@pytest.mark.parametrize("codec", [each for each in Compression if each is not Compression.NONE])
def test_block_decompresses_to_no_more_than_estimated(codec: Compression) -> None:
    """Not less, or it would be decompressed on the event loop; nor much more, or small batches
    would be moved off it.
    """
    for size_bytes in (1, 1000, 100_000, 4 * MEBIBYTE):
        for plain in (bytes(size_bytes), Random(1).randbytes(size_bytes)):
            block = record.compress(codec, plain, 2)
            estimate = estimated_plain_bytes(codec, memoryview(block))
            assert estimate >= size_bytes
            assert estimate <= max(1100 * len(block), 5 * MEBIBYTE)


@pytest.mark.parametrize("codec", [each for each in Compression if each is not Compression.NONE])
def test_random_bytes_have_an_estimate(codec: Compression) -> None:
    """Errors are reported at decompression."""
    rng = Random(2)
    assert all(
        estimated_plain_bytes(codec, memoryview(rng.randbytes(rng.randrange(60)))) >= 0
        for _ in range(300)
    )
