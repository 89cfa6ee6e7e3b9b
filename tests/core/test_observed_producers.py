"""What the frames of a producer claim: no more than holds for a correct client of a correct
cluster, and enough that a lost, doubled or torn record is found.
"""

import pytest

from kraftsim.clients.events import (
    ClientInitialized,
    ClientStarted,
    RecordAcknowledged,
    RecordFailed,
    RecordReportedDuplicate,
    RecordSent,
)
from kraftsim.clients.events_transactions import (
    TransactionalIdTaken,
    TransactionBegun,
    TransactionEndAsked,
    TransactionEnded,
    TransactionErred,
    TransactionOffsetAccepted,
    TransactionOffsetSent,
)
from kraftsim.core.record_keys import record_key
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from protocol.messages.k18_api_versions import ApiVersionsRequest
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.records.batches import SEQUENCES
from protocol.records.record import Compression
from tests.core.observed_frames import TOPIC, Talk, batch

ME = (7, 0)


def keys_sent(talk: Talk) -> list[str]:
    return [event.record_key for event in talk.of(RecordSent)]


def acknowledged(talk: Talk) -> list[tuple[str, int]]:
    return [(event.record_key, event.offset) for event in talk.of(RecordAcknowledged)]


# Records
# --------------------------------------------------------------------------------------------------


def test_acknowledged_batch_names_the_offset_of_each_record() -> None:
    """acks=all with error 0: the leader returns the base offset (KIP-98)."""
    talk = Talk()
    talk.initialize(*ME)
    talk.produced(talk.produce(batch("a", "b", producer=ME, sequence=0)), 40)
    assert keys_sent(talk) == ["a", "b"]
    assert acknowledged(talk) == [("a", 40), ("b", 41)]
    assert {event.client_id for event in talk.of(RecordSent)} == {"app-1/shop"}
    assert talk.of(ClientInitialized)[0].producer_id == 7


def test_retried_batch_of_an_idempotent_producer_was_sent_once() -> None:
    """The same producer id, epoch and sequence, on another connection after a lost response."""
    talk = Talk()
    talk.initialize(*ME)
    data = batch("a", "b", producer=ME, sequence=0)
    talk.produce(data)
    talk.lose()
    talk.produced(talk.produce(data), 3)
    assert keys_sent(talk) == ["a", "b"] and acknowledged(talk) == [("a", 3), ("b", 4)]


def test_batch_that_is_split_was_sent_once() -> None:
    """After MESSAGE_TOO_LARGE a producer sends the records in smaller batches; none has failed."""
    talk = Talk()
    talk.initialize(*ME)
    too_large = talk.produce(batch("a", "b", "c", producer=ME, sequence=5))
    talk.produced(too_large, -1, error_code=ErrorCode.MESSAGE_TOO_LARGE)
    talk.produced(talk.produce(batch("a", producer=ME, sequence=5)), 0)
    talk.produced(talk.produce(batch("b", "c", producer=ME, sequence=6)), 1)
    assert keys_sent(talk) == ["a", "b", "c"]
    assert acknowledged(talk) == [("a", 0), ("b", 1), ("c", 2)] and not talk.of(RecordFailed)


def test_other_record_with_a_used_sequence_was_sent_too() -> None:
    """A producer that gives up on a batch may use its sequences for other records."""
    talk = Talk()
    talk.produce(batch("a", producer=ME, sequence=5))
    talk.produce(batch("b", producer=ME, sequence=5))
    assert keys_sent(talk) == ["a", "b"]


def test_record_under_another_epoch_was_sent_again() -> None:
    """Brokers detect duplicates within an epoch only, so both may be in the log (KIP-360)."""
    talk = Talk()
    talk.initialize(*ME)
    talk.produce(batch("a", producer=ME, sequence=3))
    talk.produced(talk.produce(batch("a", producer=(7, 1), sequence=0)), 8)
    assert keys_sent(talk) == ["a", "a"]
    assert {event.client_id for event in talk.events if isinstance(event, RecordSent)} == {
        "app-1/shop"
    }


def test_each_attempt_without_a_producer_id_may_be_in_the_log() -> None:
    """A retry without sequence numbers may append twice: it is sent twice, acknowledged once."""
    talk = Talk()
    talk.produce(batch("a"))
    talk.lose()
    talk.produced(talk.produce(batch("a")), 6)
    assert keys_sent(talk) == ["a", "a"] and acknowledged(talk) == [("a", 6)]


def test_sequences_wrap_around() -> None:
    """After 2^31 - 1 comes 0: the retry of such a batch is no other record."""
    talk = Talk()
    data = batch("a", "b", producer=ME, sequence=SEQUENCES - 1)
    talk.produce(data)
    talk.produced(talk.produce(data), 0)
    assert keys_sent(talk) == ["a", "b"] and acknowledged(talk) == [("a", 0), ("b", 1)]


@pytest.mark.parametrize("acks", [0, 1])
def test_fewer_acks_acknowledge_nothing(acks: int) -> None:
    """With acks=1 a leader may lose a record that it has acknowledged; with acks=0 there is no
    response, and the next one is that of the next request.
    """
    talk = Talk()
    sent = talk.produce(batch("a"), acks=acks)
    if acks:
        talk.produced(sent, 0)
    talk.produced(talk.produce(batch("b")), 1)
    assert keys_sent(talk) == ["a", "b"] and acknowledged(talk) == [("b", 1)]


@pytest.mark.parametrize("compression", list(Compression))
def test_compressed_batches_are_read(compression: Compression) -> None:
    """gzip, snappy, lz4 and zstd."""
    talk = Talk()
    keys = [f"key-{index}" for index in range(20)]
    talk.produced(talk.produce(batch(*keys, compression=compression)), 100)
    assert keys_sent(talk) == keys and acknowledged(talk)[-1] == ("key-19", 119)


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        (b"k", b"v", "k"),
        (b"k", None, "k"),
        (b"", b"v", ""),
        (None, b"v", "v"),
        (None, None, ""),
        (b"\xff", b"v", "\\xff"),
        (None, b"x" * 65, "sha256:9537c5fdf120482f"),
    ],
)
def test_record_is_named_by_its_key_or_else_by_its_value(
    key: bytes | None, value: bytes | None, name: str
) -> None:
    """A tombstone has a key; many applications send none."""
    assert record_key(key, value) == name


def test_equal_records_of_a_partition_are_counted() -> None:
    """Three records without a key and with one value are three sends of one name."""
    talk = Talk()
    talk.produced(talk.produce(batch(None, None, None, producer=ME, sequence=0)), 0)
    assert keys_sent(talk) == ["v", "v", "v"]
    assert acknowledged(talk) == [("v", 0), ("v", 1), ("v", 2)]


@pytest.mark.parametrize(
    ("error", "fails"),
    [
        (ErrorCode.INVALID_RECORD, True),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False),
        (ErrorCode.UNKNOWN_PRODUCER_ID, False),
    ],
)
def test_only_an_error_that_no_producer_retries_fails_a_record(
    error: ErrorCode, *, fails: bool
) -> None:
    """A record that is sent again has not failed."""
    talk = Talk()
    talk.produced(talk.produce(batch("a", producer=ME, sequence=0)), -1, error_code=error)
    assert [event.error_code for event in talk.of(RecordFailed)] == ([int(error)] if fails else [])
    assert not talk.of(RecordAcknowledged)


def test_reported_duplicate_is_acknowledged_without_an_offset() -> None:
    """DUPLICATE_SEQUENCE_NUMBER: the leader says that it has the batch, not where."""
    talk = Talk()
    sent = talk.produce(batch("a", producer=ME, sequence=4))
    talk.produced(sent, -1, error_code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert [event.base_sequence for event in talk.of(RecordReportedDuplicate)] == [4]
    assert acknowledged(talk) == [("a", -1)]


def test_response_that_never_arrives_claims_nothing() -> None:
    """The record may or may not be in the log."""
    talk = Talk()
    talk.produce(batch("a", producer=ME, sequence=0))
    talk.observer.ended()
    assert keys_sent(talk) == ["a"] and len(talk.events) == 2  # and ClientStarted


def test_pipelined_requests_are_paired_by_correlation_id() -> None:
    """Also if responses came in another order; one that answers nothing is ignored."""
    talk = Talk()
    first = talk.produce(batch("a", producer=ME, sequence=0))
    second = talk.produce(batch("b", producer=ME, sequence=1))
    talk.produced(second, 11)
    talk.produced(999, 50)
    talk.produced(first, 10)
    assert acknowledged(talk) == [("b", 11), ("a", 10)]


def test_frames_may_arrive_in_any_pieces() -> None:
    """TCP keeps no boundaries."""
    talk, whole = Talk(piece_bytes=1), Talk()
    for each in (talk, whole):
        each.initialize(*ME)
        each.produced(each.produce(batch("a", "b", producer=ME, sequence=0)), 3)
    assert talk.events == whole.events and acknowledged(talk) == [("a", 3), ("b", 4)]


@pytest.mark.parametrize("version", [3, 8, 9, 11, 12])
def test_versions_of_produce_with_topic_names(version: int) -> None:
    """Flexible from v9 on."""
    talk = Talk()
    sent = talk.produce(batch("a", producer=ME, sequence=0), version=version)
    talk.produced(sent, 2, version=version)
    assert acknowledged(talk) == [("a", 2)]


def test_topic_ids_are_resolved_by_metadata() -> None:
    """Produce v13 has ids alone (KIP-516); of an id that no Metadata response named nothing is
    claimed.
    """
    known, unknown = b"k" * 16, b"u" * 16
    talk = Talk()
    talk.exchange(
        ApiKey.METADATA,
        12,
        MetadataRequest(topics=[]),
        MetadataResponse(topics=[MetadataResponseTopic(name=TOPIC, topic_id=known)]),
    )
    data = batch("a", producer=ME, sequence=0)
    talk.produced(
        talk.produce(data, version=13, topic_id=known), 5, version=13, topic_id=known, peer="b1"
    )
    talk.produced(talk.produce(data, version=13, topic_id=unknown), 6, version=13, topic_id=unknown)
    assert acknowledged(talk) == [("a", 5)]
    assert [event.topic for event in talk.of(RecordSent)] == [TOPIC]


def test_copy_of_a_request_counts_where_it_may_be_written_twice() -> None:
    """A fault sends a request a second time, and its client sees no response of that."""
    talk = Talk()
    talk.produce(batch("a"))
    talk.produce(batch("b", producer=ME, sequence=0))
    talk.connections["copies"] = talk.observer.connect("b1", is_copy=True)
    talk.produced(talk.produce(batch("a"), peer="copies"), 1, peer="copies")
    again = talk.produce(batch("b", producer=ME, sequence=0), peer="copies")
    talk.produced(again, 2, peer="copies")
    assert keys_sent(talk) == ["a", "b", "a"] and not acknowledged(talk)


# Names
# --------------------------------------------------------------------------------------------------


def test_producers_with_one_client_id_have_names_of_their_own() -> None:
    """Transactions are found by the name of the client: two producers must not share one."""
    talk = Talk()
    talk.initialize(1)
    talk.initialize(2)
    talk.initialize(3, 0, "pay")
    talk.initialize(3, 1, "pay")
    assert [event.client_id for event in talk.of(ClientStarted)] == [
        "app-1/shop",
        "app-1/shop#2",
        "app-1/pay",
        "app-1/pay#2",
    ]


def test_library_is_what_the_client_says_of_itself() -> None:
    """KIP-511."""
    talk = Talk()
    request = ApiVersionsRequest(client_software_name="aiokafka", client_software_version="0.14.0")
    talk.send(ApiKey.API_VERSIONS, 3, request)
    talk.initialize(1)
    assert talk.of(ClientStarted)[0].library == "aiokafka 0.14.0"


# Transactions
# --------------------------------------------------------------------------------------------------


def begun(talk: Talk, identity: tuple[int, int] = ME, key: str = "a", sequence: int = 0) -> int:
    data = batch(key, producer=identity, sequence=sequence, transactional=True)
    return talk.produce(data, transactional_id="t")


def outcomes(talk: Talk) -> list[tuple[str, str]]:
    return [(event.transaction, event.outcome) for event in talk.of(TransactionEnded)]


@pytest.mark.parametrize(("commit", "outcome"), [(True, "committed"), (False, "aborted")])
def test_transaction_has_the_outcome_that_end_txn_reported(*, commit: bool, outcome: str) -> None:
    """EndTxn is answered once the decision is in the transaction log."""
    talk = Talk()
    talk.initialize(*ME, "t")
    assert [event.producer_epoch for event in talk.of(TransactionalIdTaken)] == [0]
    talk.produced(begun(talk), 0)
    talk.end(ME, commit=commit)
    assert [event.transaction for event in talk.of(RecordSent)] == ["app-1/t/1"]
    assert [event.is_commit for event in talk.of(TransactionEndAsked)] == [commit]
    assert outcomes(talk) == [("app-1/t/1", outcome)]
    talk.produced(begun(talk, sequence=1), 2)
    assert [event.transaction for event in talk.of(TransactionBegun)] == [
        "app-1/t/1",
        "app-1/t/2",
    ]


def test_end_of_a_transaction_is_requested_once() -> None:
    """A lost response, a retriable error, and a retry: one request of the application."""
    talk = Talk()
    talk.initialize(*ME, "t")
    talk.produced(begun(talk), 0)
    talk.end(ME, commit=True, error_code=None)
    talk.lose()
    talk.end(ME, commit=True, error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
    assert not outcomes(talk)
    talk.end(ME, commit=True)
    assert len(talk.of(TransactionEndAsked)) == 1
    assert outcomes(talk) == [("app-1/t/1", "committed")]


@pytest.mark.parametrize("how", ["process ends", "fenced", "initialises again"])
def test_outcome_that_was_not_reported_is_unknown(how: str) -> None:
    """The coordinator may have decided either way."""
    talk = Talk()
    talk.initialize(*ME, "t")
    talk.produced(begun(talk), 0)
    talk.end(ME, commit=True, error_code=None)
    if how == "fenced":
        talk.end(ME, commit=True, error_code=ErrorCode.PRODUCER_FENCED)
        assert [event.is_fatal for event in talk.of(TransactionErred)] == [True]
    elif how == "process ends":
        talk.observer.ended()
    else:
        talk.exchange(
            ApiKey.INIT_PRODUCER_ID,
            4,
            InitProducerIdRequest(
                transactional_id="t", transaction_timeout_ms=1, producer_id=7, producer_epoch=0
            ),
            InitProducerIdResponse(producer_id=7, producer_epoch=1),
        )
    assert outcomes(talk) == [("app-1/t/1", "unknown")]


def test_abortable_error_leaves_the_transaction_open() -> None:
    """TRANSACTION_ABORTABLE: the application aborts next (KIP-890)."""
    talk = Talk()
    talk.initialize(*ME, "t")
    begun(talk)
    talk.end(ME, commit=True, error_code=ErrorCode.TRANSACTION_ABORTABLE)
    assert not outcomes(talk)
    talk.end(ME, commit=False)
    assert outcomes(talk) == [("app-1/t/1", "aborted")]
    assert [event.is_commit for event in talk.of(TransactionEndAsked)] == [True, False]


def test_end_txn_continues_with_the_epoch_that_it_returns() -> None:
    """v5 bumps the epoch with the decision (KIP-890, transaction.version 2)."""
    talk = Talk()
    talk.initialize(*ME, "t")
    begun(talk)
    ending = EndTxnRequest(transactional_id="t", producer_id=7, producer_epoch=0, committed=True)
    talk.exchange(ApiKey.END_TXN, 5, ending, EndTxnResponse(producer_id=7, producer_epoch=1))
    begun(talk, (7, 1), key="b")
    assert [event.transaction for event in talk.of(RecordSent)] == ["app-1/t/1", "app-1/t/2"]
    assert [event.producer_epoch for event in talk.of(ClientInitialized)] == [0, 1]


def test_late_acknowledgement_of_an_earlier_transaction_claims_nothing() -> None:
    """The next transaction may have sent the same key, and the acknowledgement would count for
    it.
    """
    talk = Talk()
    talk.initialize(*ME, "t")
    late = begun(talk)
    talk.end(ME, commit=False)
    begun(talk, sequence=1)
    talk.produced(late, 0)
    assert not acknowledged(talk)


def test_retry_after_the_abort_stays_in_its_transaction() -> None:
    """A batch that is still retried then is no record of the next transaction."""
    talk = Talk()
    talk.initialize(*ME, "t")
    begun(talk)
    talk.end(ME, commit=False)
    talk.produced(begun(talk), 0)
    assert [event.transaction for event in talk.of(RecordSent)] == ["app-1/t/1"]
    assert len(talk.of(TransactionBegun)) == 1 and acknowledged(talk) == [("a", 0)]


def test_first_request_of_a_transaction_begins_it() -> None:
    """AddPartitionsToTxn comes before the first record; its errors reach the application."""
    talk = Talk()
    talk.initialize(*ME, "t")
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0, 1])],
    )
    errors = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OPERATION_NOT_ATTEMPTED)
    results = [
        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
        for index, error in enumerate(errors)
    ]
    response = AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(name=TOPIC, results_by_partition=results)
        ]
    )
    talk.exchange(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request, response)
    talk.exchange(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request, response)
    assert len(talk.of(TransactionBegun)) == 1
    assert [(event.error_code, event.is_fatal) for event in talk.of(TransactionErred)] == [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)
    ]


def test_offsets_of_a_transaction_are_sent_and_accepted_once() -> None:
    """TxnOffsetCommit is retried while its coordinator moves."""
    talk = Talk()
    talk.initialize(*ME, "t")
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=7,
        producer_epoch=0,
        generation_id_or_member_epoch=4,
        member_id="m",
        topics=[
            TxnOffsetCommitRequestTopic(
                name="in",
                partitions=[TxnOffsetCommitRequestPartition(partition_index=1, committed_offset=9)],
            )
        ],
    )
    for error in (ErrorCode.NOT_COORDINATOR, ErrorCode.NONE):
        partition = TxnOffsetCommitResponsePartition(partition_index=1, error_code=error)
        topic = TxnOffsetCommitResponseTopic(name="in", partitions=[partition])
        talk.exchange(ApiKey.TXN_OFFSET_COMMIT, 3, request, TxnOffsetCommitResponse(topics=[topic]))
    assert [(e.generation_id, e.offset) for e in talk.of(TransactionOffsetSent)] == [(4, 9)]
    assert [(e.transaction, e.offset) for e in talk.of(TransactionOffsetAccepted)] == [
        ("app-1/t/1", 9)
    ]


def test_zombie_in_the_same_process_keeps_its_own_transaction() -> None:
    """Two producers with one transactional id: what the fenced one hears is not the other's."""
    talk = Talk()
    talk.initialize(*ME, "t")
    begun(talk)
    talk.initialize(7, 1, "t")
    begun(talk, (7, 1))
    talk.end((7, 1), commit=True)
    talk.end(ME, commit=True, error_code=ErrorCode.PRODUCER_FENCED)
    assert outcomes(talk) == [("app-1/t#2/1", "committed"), ("app-1/t/1", "unknown")]
