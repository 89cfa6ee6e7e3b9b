"""Numbers and fields claimed in design documents, computed: KIP-730's storage and response,
KIP-758's ten million.
Source: KIP-730, KIP-758.
"""

import pytest

from kraftsim.core.decision import Decision
from kraftsim.core.timeline import Journal
from kraftsim.producer_ids.rules_allocation import LastIdProducerIdControl, ProducerIdControl
from kraftsim.producer_state.rules_entries import SEQUENCES_BEHIND_DEFAULT
from protocol.codec.message_codec import CompiledMessage, compiled
from protocol.malformed import MalformedMessage
from protocol.messages.k22_init_producer_id import InitProducerIdRequest
from protocol.messages.k28_txn_offset_commit import TxnOffsetCommitRequest
from protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsResponse
from protocol.metadata.controller import ProducerIdsRecord
from protocol.records.batches import build_batch
from protocol.records.record import Compression, Record, compress
from protocol.schema import int16, int32, int64, message
from tools.claims.recording import Figures

LEAST_RECORD_BYTES = 7
BUFFER_BYTES = 32 * 1024 * 1024
REQUEST_BYTES = 1024 * 1024
REQUESTS = 5
PETABYTE = 10**15


@message(kind="response", versions="0", flexible="0+", kafka_name="AllocateProducerIdsResponse")
class ResponseOfTheText:
    """The response as KIP-730 specifies it: nothing precedes the error."""

    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()


def control(kind: type[ProducerIdControl]) -> ProducerIdControl:
    return kind(Journal(), lambda broker_id, epoch: True)


def test_storing_the_whole_id_space_in_blocks_of_1000_takes_petabytes(figures: Figures) -> None:
    """20 bytes per record as the KIP counts, or 24 with frame, version and tagged fields."""
    blocks = 2**63 // 1000
    assert [round(blocks * size / PETABYTE) for size in (20, 24)] == [184, 221]
    figures(
        petabytes_of_the_text=round(blocks * 20 / PETABYTE),
        petabytes_as_shipped=round(blocks * 24 / PETABYTE),
    )


def test_parser_of_the_kip_text_misreads_the_released_response(figures: Figures) -> None:
    """The response begins with the throttle time, which a parser written from the KIP's text reads
    as error and block start.
    """
    sent = AllocateProducerIdsResponse(producer_id_start=7000, producer_id_len=1000)
    shipped = compiled(AllocateProducerIdsResponse, 0).encode(sent)
    read, end = compiled(ResponseOfTheText, 0).decode(shipped, 0)
    assert (read.producer_id_start, read.producer_id_len) != (
        sent.producer_id_start,
        sent.producer_id_len,
    ) and end != len(shipped)
    figures(
        start_sent=sent.producer_id_start,
        start_read=read.producer_id_start,
        bytes_sent=len(shipped),
        bytes_read=end,
    )


@pytest.mark.parametrize(
    "writer, reader, overlap",
    [
        (ProducerIdControl, ProducerIdControl, 0),
        (LastIdProducerIdControl, LastIdProducerIdControl, 0),
        (LastIdProducerIdControl, ProducerIdControl, 1),
        (ProducerIdControl, LastIdProducerIdControl, -1),
    ],
)
def test_different_readings_of_the_block_end_repeat_or_skip_an_id(
    writer: type[ProducerIdControl], reader: type[ProducerIdControl], overlap: int, figures: Figures
) -> None:
    """The KIP does not say whether the record's end is inclusive; in Kafka it is the first id
    outside of the block.
    """
    first, second = control(writer), control(reader)
    decided = first.decide_allocate(1, 5)
    assert isinstance(decided, Decision)
    for record in decided.records:
        assert isinstance(record, ProducerIdsRecord)
        second.replay(record)
    assert decided.result.next_producer_id - second.next_producer_id == overlap
    if writer is reader:
        figures(overlap_where_both_agree=overlap)
    else:
        figures(**{"ids_repeated" if overlap > 0 else "ids_lost": abs(overlap)})


def test_ten_million_sequences_do_not_fit_uncompressed(figures: Figures) -> None:
    """A buffer full of the smallest records, or five requests of one megabyte, hold fewer; they
    would need a compression ratio above 13.
    """
    assert BUFFER_BYTES // LEAST_RECORD_BYTES == 4_793_490 < SEQUENCES_BEHIND_DEFAULT
    in_five_requests = REQUESTS * REQUEST_BYTES // LEAST_RECORD_BYTES
    assert in_five_requests == 748_982 < SEQUENCES_BEHIND_DEFAULT
    assert SEQUENCES_BEHIND_DEFAULT / in_five_requests == pytest.approx(13.4, abs=0.1)
    figures(
        window=SEQUENCES_BEHIND_DEFAULT,
        in_the_buffer=BUFFER_BYTES // LEAST_RECORD_BYTES,
        in_five_requests=in_five_requests,
        ratio_needed=round(SEQUENCES_BEHIND_DEFAULT / in_five_requests, 1),
    )


@pytest.mark.parametrize(
    "codec",
    [codec for codec in Compression if codec is not Compression.NONE],
    ids=lambda codec: codec.name,
)
def test_ten_million_sequences_do_not_fit_compressed(codec: Compression, figures: Figures) -> None:
    """The smallest records differ in their offsets: a batch of as many empty records as fit
    compresses best with zstd, at 11 to 1.
    """
    count = 150_000
    plain = build_batch([Record(offset, 0, None, None, ()) for offset in range(count)])
    in_five_requests = REQUESTS * REQUEST_BYTES * count // len(compress(codec, plain))
    assert (
        REQUESTS * REQUEST_BYTES // LEAST_RECORD_BYTES < in_five_requests < SEQUENCES_BEHIND_DEFAULT
    )
    figures(**{f"in_five_requests_{codec.name.lower()}": in_five_requests})


def test_init_producer_id_is_the_same_with_and_without_kip_447(figures: Figures) -> None:
    """InitProducerId v1 came with 2.0 and v2 with 2.4; TxnOffsetCommit went to v3 with KIP-447 in
    2.5. InitProducerId v3 belongs to KIP-360.
    """
    codecs = [compiled(InitProducerIdRequest, version) for version in (0, 1)]
    before, after = (
        codec.encode(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=5))
        for codec in codecs
    )
    assert before == after == b"\x00\x01t\x00\x00\x00\x05"
    others = {
        "transactional_id": "u",
        "transaction_timeout_ms": 7,
        "producer_id": 7,
        "producer_epoch": 7,
    }
    fields = [
        [name for name, value in others.items() if is_carried(codec, name, value)]
        for codec in codecs
    ]
    assert fields[0] == fields[1] == ["transactional_id", "transaction_timeout_ms"]
    figures(fields_before=fields[0], fields_after=fields[1])


def is_carried(codec: CompiledMessage[InitProducerIdRequest], field: str, value: object) -> bool:
    """Whether a version has a field: another value changes the bytes.

    A codec rejects or omits what its version does not support.
    """
    asked, changed = (
        InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=5) for _ in range(2)
    )
    setattr(changed, field, value)
    try:
        return bool(codec.encode(changed) != codec.encode(asked))
    except MalformedMessage:
        return False


def test_txn_offset_commit_v3_names_the_group_member(figures: Figures) -> None:
    """Generation, member and instance, with defaults that name none."""
    asked = TxnOffsetCommitRequest(
        transactional_id="t", group_id="g", producer_id=7, producer_epoch=0
    )
    sizes = {
        version: len(compiled(TxnOffsetCommitRequest, version).encode(asked)) for version in (2, 3)
    }
    decoded, _ = compiled(TxnOffsetCommitRequest, 3).decode(
        compiled(TxnOffsetCommitRequest, 3).encode(asked), 0
    )
    assert (
        decoded.generation_id_or_member_epoch,
        decoded.member_id,
        decoded.group_instance_id,
    ) == (-1, "", None)
    figures(
        bytes_2=sizes[2],
        bytes_3=sizes[3],
        default_generation=decoded.generation_id_or_member_epoch,
        default_member=decoded.member_id,
        default_instance=decoded.group_instance_id,
    )
