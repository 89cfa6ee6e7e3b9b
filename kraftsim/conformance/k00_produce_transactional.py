"""Produce (0): batches of transactions, and their verification by the coordinator.

Source: KIP-98, KIP-890; ReplicaManager.handleProduceAppend,
UnifiedLog.analyzeAndValidateProducerState.
"""

import time
from contextlib import ExitStack

from kraftsim.conformance.batches import batch, produce, produce_request, produce_versions
from kraftsim.conformance.expect import expect_equal, expect_error
from kraftsim.conformance.marker_client import (
    PRODUCE_VERSION,
    TransactionAt,
    end_at,
    expect_seen,
    marker,
)
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, TargetTopic
from kraftsim.conformance.transactional_id import TransactionalId
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k27_write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

REQUIREMENTS = Requirements("transactions", 12, "Batches of transactions")
HANDLER = "KIP-890; ReplicaManager.handleProduceAppend"
ABORTABLE_SINCE = 11
ADDS_SINCE = 12
VERIFIES_SINCE = 4
"""The version of AddPartitionsToTxn that leaders verify with."""
ATTEMPTS, TRANSACTIONS_AT_ONCE = 30, 8
FIRST_STEP_SECONDS, STEP_FACTOR, LAST_STEP_SECONDS = 0.002, 0.9, 0.0002
MARKERS_VERSION = 1


def _asking_versions(target: Target) -> list[int]:
    """Return the versions of Produce in which the producer itself adds partitions."""
    return [version for version in produce_versions(target) if version < ADDS_SINCE]


@REQUIREMENTS.that(
    1, "a batch for an added partition is accepted, in every version", source=HANDLER
)
def added(target: Target) -> None:
    for version in _asking_versions(target):
        topic = target.topic()
        transaction = TransactionAt(target, topic)
        transaction.id.begin(transaction.producer, [(topic.name, 0)])
        for sequence in (0, 1):
            row = transaction.write(sequence, version=version)
            expect_error(row.error_code, ErrorCode.NONE, f"version {version}, sequence {sequence}")
            expect_equal(row.base_offset, sequence, f"version {version}: its offset")


@REQUIREMENTS.that(
    2,
    "a batch for a partition that was not added returns INVALID_TXN_STATE, since version 11 "
    "TRANSACTION_ABORTABLE",
    source=HANDLER,
    since="3.6",
)
def not_added(target: Target) -> None:
    topic = target.topic(partitions=2)
    transaction = TransactionAt(target, topic)
    transaction.id.begin(transaction.producer, [(topic.name, 1)])
    for version in _asking_versions(target):
        row = transaction.write(0, version=version)
        expected = (
            ErrorCode.TRANSACTION_ABORTABLE
            if version >= ABORTABLE_SINCE
            else ErrorCode.INVALID_TXN_STATE
        )
        expect_error(row.error_code, expected, f"version {version}")
        expect_equal(
            (row.base_offset, row.log_start_offset),
            (-1, -1),
            f"version {version}: offset, log start",
        )


@REQUIREMENTS.that(
    3,
    "a producer epoch that the coordinator does not know returns INVALID_PRODUCER_EPOCH",
    source=HANDLER,
    since="3.6",
)
def other_epochs(target: Target) -> None:
    topic = target.topic()
    transaction = TransactionAt(target, topic)
    transaction.producer = transaction.id.producer()  # one more epoch
    transaction.id.begin(transaction.producer, [(topic.name, 0)])
    producer_id, epoch = transaction.producer
    for strange in (epoch - 1, epoch + 1):
        row = transaction.write(0, producer=(producer_id, strange))
        expect_error(
            row.error_code, ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {strange} instead of {epoch}"
        )


@REQUIREMENTS.that(
    4,
    "the producer id of another transactional id, and an unknown transactional id, return "
    "INVALID_PRODUCER_ID_MAPPING",
    source=HANDLER,
    since="3.6",
)
def other_ids(target: Target) -> None:
    topic = target.topic()
    transaction, unknown = TransactionAt(target, topic), TransactionAt(target, topic)
    expect_error(
        transaction.write(0, producer=(4711, 0)).error_code,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        "another producer id",
    )
    unknown.id.name = TransactionalId(target).name
    expect_error(
        unknown.write(0).error_code,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        "an unused transactional id",
    )


@REQUIREMENTS.that(
    5,
    "after EndTxn no batch of the transaction is accepted, not even a duplicate",
    source=f"{HANDLER}; KAFKA-14402",
    since="3.6",
)
def late(target: Target) -> None:
    for commits in (True, False):
        topic = target.topic()
        transaction = TransactionAt(target, topic)
        transaction.wrote(0)
        transaction.ended(commits=commits)
        for sequence, what in ((1, "a new batch"), (0, "one that is in the log already")):
            expect_error(
                transaction.write(sequence).error_code,
                ErrorCode.INVALID_TXN_STATE,
                f"{what}, committed {commits}",
            )


@REQUIREMENTS.that(
    6,
    "non-transactional records of a producer with an open transaction are rejected with "
    "INVALID_TXN_STATE",
    source="ProducerAppendInfo.appendDataBatch",
)
def beside(target: Target) -> None:
    for version in _asking_versions(target):
        topic = target.topic()
        transaction = TransactionAt(target, topic)
        transaction.wrote(0)
        producer_id, epoch = transaction.producer
        plain = batch(1, producer_id=producer_id, producer_epoch=epoch, base_sequence=1)
        with target.peer(topic.leader) as peer:
            row = produce(peer, topic.name, plain, version)
            expect_error(row.error_code, ErrorCode.INVALID_TXN_STATE, f"version {version}")
            transaction.ended(commits=True)
            expect_error(
                produce(peer, topic.name, plain, version).error_code,
                ErrorCode.NONE,
                f"version {version}, after the end",
            )


@REQUIREMENTS.that(
    7,
    "without a transactional id every partition returns TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "
    "with two producers INVALID_PRODUCER_ID_MAPPING",
    source=HANDLER,
    since="3.6",
)
def whole_requests(target: Target) -> None:
    topic = target.topic(partitions=2)
    transaction = TransactionAt(target, topic)

    def rows(*producers: tuple[int, int]) -> list[PartitionProduceData]:
        batches = [
            batch(
                1,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=0,
                transactional=producer_id >= 0,
            )
            for producer_id, epoch in producers
        ]
        return [
            PartitionProduceData(index=index, records=records)
            for index, records in enumerate(batches)
        ]

    for transactional_id, producers, expected in (
        (None, [transaction.producer, (-1, -1)], ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (
            transaction.id.name,
            [transaction.producer, (4711, 0)],
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ),
    ):
        for version in _asking_versions(target):
            topics = [TopicProduceData(name=topic.name, partition_data=rows(*producers))]
            asked = ProduceRequest(
                transactional_id=transactional_id, acks=-1, timeout_ms=5000, topic_data=topics
            )
            with target.peer(topic.leader) as peer:
                answer = peer.ask(asked, version, ProduceResponse)
            for row in answer.responses[0].partition_responses:
                expect_error(row.error_code, expected, f"version {version}, partition {row.index}")


@REQUIREMENTS.that(
    8,
    "an unknown partition in a transaction returns UNKNOWN_TOPIC_OR_PARTITION",
    source="ReplicaManager.appendToLocalLog",
)
def unknown_partition(target: Target) -> None:
    topic = target.topic()
    transaction = TransactionAt(target, topic)
    expect_error(
        transaction.write(0, partition=9).error_code,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "partition 9",
    )


@REQUIREMENTS.that(
    9,
    "sequences continue after a marker, and restart with a new epoch",
    source="ProducerAppendInfo.checkSequence",
)
def sequences(target: Target) -> None:
    topic = target.topic()
    transaction = TransactionAt(target, topic)
    transaction.wrote(0, 3)
    transaction.ended(commits=True)
    transaction.wrote(3)
    transaction.ended(commits=False)
    transaction.producer = transaction.id.producer()
    transaction.id.begin(transaction.producer, [(topic.name, 0)])
    expect_error(
        transaction.write(4).error_code,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        "sequence 4 of a new epoch",
    )
    expect_error(transaction.write(0).error_code, ErrorCode.NONE, "sequence 0 of a new epoch")


@REQUIREMENTS.that(
    10,
    "since version 12 the leader adds the partition; the producer need not send AddPartitionsToTxn",
    source="KIP-890 part 2",
    since="4.0",
)
def leader_adds(target: Target) -> None:
    topic = target.topic()
    transaction = TransactionAt(target, topic)
    for sequence in (0, 1):
        expect_error(
            transaction.write(sequence, version=ADDS_SINCE).error_code,
            ErrorCode.NONE,
            f"sequence {sequence} in version {ADDS_SINCE}",
        )
    expect_equal(
        transaction.id.described().transaction_state, "Ongoing", "the state of the transaction"
    )
    answer = transaction.id.ended(transaction.producer, 5, commits=True)
    expect_equal(
        (answer.producer_id, answer.producer_epoch),
        (transaction.producer_id, transaction.producer[1] + 1),
        "the producer of the next transaction",
    )
    expect_seen(target, topic, 0, ([0, 1, 2], 3, 3, []), "the partition")
    expect_error(
        transaction.write(2, version=ADDS_SINCE).error_code,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        "the epoch of the transaction before",
    )


@REQUIREMENTS.that(
    11,
    "the first transactional batch of a producer without state in the partition must have "
    "sequence 0",
    source="KIP-890 part 2",
    since="4.1",
)
def begins_at_zero(target: Target) -> None:
    topic = target.topic()
    transaction = TransactionAt(target, topic)
    expect_error(
        transaction.write(3, version=ADDS_SINCE).error_code,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        "sequence 3 first",
    )


@REQUIREMENTS.that(
    12,
    "a marker with a later epoch fences the producer of the open transaction in the partition",
    source="UnifiedLog.analyzeAndValidateProducerState",
)
def fenced_by_marker(target: Target) -> None:
    topic = target.topic()
    transaction = TransactionAt(target, topic)
    transaction.wrote(0)
    producer_id, epoch = transaction.producer
    expect_error(
        end_at(target, topic, (producer_id, epoch + 1), commits=False),
        ErrorCode.NONE,
        "a marker with a later epoch",
    )
    with target.peer(topic.leader) as peer:
        plain = batch(1, producer_id=producer_id, producer_epoch=epoch, base_sequence=1)
        row = (
            peer.ask(produce_request(topic.name, plain), 9, ProduceResponse)
            .responses[0]
            .partition_responses[0]
        )
    expect_error(row.error_code, ErrorCode.INVALID_PRODUCER_EPOCH, "a batch of the epoch before")


@REQUIREMENTS.that(
    13,
    "a batch whose transaction ends while it is verified returns INVALID_PRODUCER_EPOCH, and never "
    "INVALID_TXN_STATE: its producer was fenced and has made no mistake",
    source="KAFKA-19690; 4.0.2 and 4.1.1",
    since="4.0",
)
def ended_while_verified(target: Target) -> None:
    """The markers are sent after a pause that follows the moment of the append: shorter after most
    batches were appended before their markers, longer after most were not.
    """
    next(target.versions(ApiKey.ADD_PARTITIONS_TO_TXN, since=VERIFIES_SINCE))
    topic, pause, step = target.topic(), 0.0, FIRST_STEP_SECONDS
    for _ in range(ATTEMPTS):
        errors = _race(target, topic, pause)
        for error in errors:
            if error != ErrorCode.NONE:
                expect_error(error, ErrorCode.INVALID_PRODUCER_EPOCH, "a batch of the past epoch")
        is_late = 2 * errors.count(ErrorCode.NONE) > len(errors)
        pause = max(0.0, pause - step) if is_late else pause + step
        step = max(step * STEP_FACTOR, LAST_STEP_SECONDS)


def _race(target: Target, topic: TargetTopic, pause: float) -> list[int]:
    """Send a batch of each of some transactions, and after a pause the markers of their time-outs,
    which the node writes one after the other; return the errors of the batches.
    """
    transactions = [TransactionAt(target, topic) for _ in range(TRANSACTIONS_AT_ONCE)]
    for each in transactions:
        each.id.begin(each.producer, [(topic.name, 0)])
    batches = [_first_batch(each) for each in transactions]
    ends = [_end_by_time_out(each) for each in transactions]
    with ExitStack() as connections:
        peers = [connections.enter_context(target.peer(topic.leader)) for _ in batches]
        ending = connections.enter_context(target.peer(topic.leader))
        for peer in (*peers, ending):
            peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        sent = [
            (peer, asked, peer.send(asked, PRODUCE_VERSION))
            for peer, asked in zip(peers, batches, strict=True)
        ]
        time.sleep(pause)
        ended = [(end, ending.send(end, MARKERS_VERSION)) for end in ends]
        answers = [
            peer.receive(asked, PRODUCE_VERSION, number, ProduceResponse)
            for peer, asked, number in sent
        ]
        for end, number in ended:
            ending.receive(end, MARKERS_VERSION, number, WriteTxnMarkersResponse)
    return [each.responses[0].partition_responses[0].error_code for each in answers]


def _end_by_time_out(transaction: TransactionAt) -> WriteTxnMarkersRequest:
    producer_id, epoch = transaction.producer
    topics = {transaction.topic.name: [0]}
    return WriteTxnMarkersRequest(
        markers=[marker((producer_id, epoch + 1), commits=False, topics=topics)]
    )


def _first_batch(transaction: TransactionAt) -> ProduceRequest:
    producer_id, epoch = transaction.producer
    data = batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
    return produce_request(transaction.topic.name, data, transactional_id=transaction.id.name)
