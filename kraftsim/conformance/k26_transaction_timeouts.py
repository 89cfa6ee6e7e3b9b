"""Transaction time-outs: the coordinator aborts the transaction and fences its producer.

Source: KIP-98, KAFKA-6119; TransactionCoordinator.abortTimedOutTransactions.
"""

from kraftsim.conformance.expect import expect_equal, expect_error
from kraftsim.conformance.k01_fetch_replicated import followed_topic
from kraftsim.conformance.k26_end_txn_bump import after, identity_in, version_of
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.transactional_id import TransactionalId, partitions_of
from protocol.errors import ErrorCode

REQUIREMENTS = Requirements("transactions", 8, "Transaction time-outs")
COORDINATOR = "TransactionCoordinator.abortTimedOutTransactions"
SHORT_MS = 100
SCAN_SECONDS = 25.0
"""A coordinator checks for time-outs every ten seconds."""


@REQUIREMENTS.that(
    1,
    "a transaction that exceeds its time-out is aborted, and its producer is fenced by the next "
    "epoch",
    source="KAFKA-6119",
)
def aborted(target: Target) -> None:
    topic, transactional_id, patient = (
        target.topic(),
        TransactionalId(target),
        TransactionalId(target),
    )
    producer, other = transactional_id.producer(SHORT_MS), patient.producer()
    idle = TransactionalId(target)
    idle_producer = idle.producer(SHORT_MS)
    for each, who in ((transactional_id, producer), (patient, other)):
        each.begin(who, [(topic.name, 0)])
    found = transactional_id.reached("CompleteAbort", SCAN_SECONDS)
    expect_equal(
        (found.producer_id, found.producer_epoch, partitions_of(found)),
        (producer[0], producer[1] + 1, []),
        "id, epoch, partitions",
    )
    expect_equal(
        patient.described().transaction_state, "Ongoing", "state of the one that may last longer"
    )
    expect_equal(
        (idle.described().transaction_state, idle.described().producer_epoch),
        ("Empty", idle_producer[1]),
        "where none was begun",
    )
    expect_error(
        transactional_id.add(producer, [(topic.name, 0)])[0],
        ErrorCode.PRODUCER_FENCED,
        "AddPartitionsToTxn afterwards",
    )
    for commits in (True, False):
        expect_error(
            transactional_id.end(producer, commits=commits).error_code,
            ErrorCode.PRODUCER_FENCED,
            "EndTxn afterwards",
        )
    expect_equal(transactional_id.producer(), (producer[0], producer[1] + 2), "the next producer")


@REQUIREMENTS.that(
    2,
    "where EndTxn raises the epoch, one that comes after the time-out returns "
    "CONCURRENT_TRANSACTIONS until its markers are done; from then on a commit returns "
    "INVALID_TXN_STATE, and an abort the next epoch",
    source="KIP-890, KAFKA-19367",
    since="4.0",
)
def ended_late(target: Target) -> None:
    version, transactional_id = version_of(target), TransactionalId(target)
    producer = transactional_id.producer(SHORT_MS)
    with followed_topic(target, min_in_sync=2) as followed:
        transactional_id.begin(producer, [(followed.topic.name, 0)])
        transactional_id.reached("PrepareAbort", SCAN_SECONDS)  # the follower never has the marker
        for commits in (True, False):
            expect_error(
                transactional_id.end(producer, version, commits=commits).error_code,
                ErrorCode.CONCURRENT_TRANSACTIONS,
                f"{'commit' if commits else 'abort'} before the marker is written",
            )
    transactional_id.reached("CompleteAbort", SCAN_SECONDS)  # a deleted topic needs no marker
    expect_error(
        transactional_id.end(producer, version, commits=True).error_code,
        ErrorCode.INVALID_TXN_STATE,
        "commit afterwards",
    )
    expect_equal(
        identity_in(transactional_id.end(producer, version, commits=False)),
        (0, *after(producer)),
        "abort afterwards: error, id, epoch",
    )
