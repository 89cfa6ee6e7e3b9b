"""EndTxn (26): commit and abort of producers up to version 4.

Source: KIP-98, KIP-588; TransactionCoordinator.endTransaction.
"""

from collections.abc import Iterator

from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.transactional_id import Producer, TransactionalId, partitions_of
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

REQUIREMENTS = Requirements("transactions", 6, "EndTxn")
COORDINATOR = "TransactionCoordinator.endTransaction"
LAST_WITHOUT_BUMP, FENCED_SINCE = 4, 2
NOBODYS_PRODUCER_ID = 1 << 40
BY_NAME_UNTIL = 5
STATES = {True: "CompleteCommit", False: "CompleteAbort"}


def versions(target: Target) -> Iterator[int]:
    """Yield the versions that do not raise the epoch."""
    return (version for version in target.versions(ApiKey.END_TXN) if version <= LAST_WITHOUT_BUMP)


def fenced(version: int) -> ErrorCode:
    """Return the error of a version for a fenced producer."""
    return (
        ErrorCode.PRODUCER_FENCED if version >= FENCED_SINCE else ErrorCode.INVALID_PRODUCER_EPOCH
    )


def begun(target: Target) -> tuple[TransactionalId, Producer]:
    """A transaction with one partition."""
    topic, transactional_id = target.topic(), TransactionalId(target)
    producer = transactional_id.producer()
    transactional_id.begin(producer, [(topic.name, 0)])
    return transactional_id, producer


@REQUIREMENTS.that(
    1, "a transaction completes soon after EndTxn, and has no partitions any more", source="KIP-98"
)
def ends(target: Target) -> None:
    for version in versions(target):
        for commits, state in STATES.items():
            transactional_id, producer = begun(target)
            expect_error(
                transactional_id.end(producer, version, commits=commits).error_code,
                ErrorCode.NONE,
                f"version {version}",
            )
            expect_equal(
                partitions_of(transactional_id.reached(state)), [], f"version {version}: partitions"
            )


@REQUIREMENTS.that(2, "a retry with the same result returns no error", source=COORDINATOR)
def same_result_retried(target: Target) -> None:
    for commits in (True, False):
        transactional_id, producer = begun(target)
        transactional_id.ended(producer, commits=commits)
        for version in versions(target):
            expect_error(
                transactional_id.end(producer, version, commits=commits).error_code,
                ErrorCode.NONE,
                f"version {version}",
            )


@REQUIREMENTS.that(3, "a retry with the other result returns INVALID_TXN_STATE", source=COORDINATOR)
def other_end(target: Target) -> None:
    for commits in (True, False):
        transactional_id, producer = begun(target)
        transactional_id.ended(producer, commits=commits)
        for version in versions(target):
            error = transactional_id.end(producer, version, commits=not commits).error_code
            expect_error(error, ErrorCode.INVALID_TXN_STATE, f"version {version}")


@REQUIREMENTS.that(
    4, "without a transaction either result returns INVALID_TXN_STATE", source=COORDINATOR
)
def not_begun(target: Target) -> None:
    transactional_id = TransactionalId(target)
    producer = transactional_id.producer()
    for version in versions(target):
        for commits in (True, False):
            error = transactional_id.end(producer, version, commits=commits).error_code
            expect_error(error, ErrorCode.INVALID_TXN_STATE, f"version {version}")


@REQUIREMENTS.that(
    5,
    "an uninitialised transactional id, and another producer id, return "
    "INVALID_PRODUCER_ID_MAPPING",
    source=COORDINATOR,
)
def unknown(target: Target) -> None:
    uninitialised = TransactionalId(target)
    transactional_id, (_, epoch) = begun(target)
    for version in versions(target):
        error = uninitialised.end((5, 0), version, commits=True).error_code
        expect_error(
            error, ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"version {version}: an uninitialised id"
        )
        error = transactional_id.end((NOBODYS_PRODUCER_ID, epoch), version, commits=True).error_code
        expect_error(error, ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"version {version}: another's")


@REQUIREMENTS.that(
    6,
    "any other epoch returns PRODUCER_FENCED, up to version 1 INVALID_PRODUCER_EPOCH, and ends "
    "nothing",
    source="KIP-588",
)
def other_epochs(target: Target) -> None:
    topic, transactional_id = target.topic(), TransactionalId(target)
    before = transactional_id.producer()
    producer = transactional_id.producer()
    transactional_id.begin(producer, [(topic.name, 0)])
    for version in versions(target):
        for commits in (True, False):
            expect_error(
                transactional_id.end(before, version, commits=commits).error_code,
                fenced(version),
                f"version {version}: behind",
            )
            ahead = (producer[0], producer[1] + 1)
            expect_error(
                transactional_id.end(ahead, version, commits=commits).error_code,
                fenced(version),
                f"version {version}: ahead",
            )
    expect_equal(transactional_id.described().transaction_state, "Ongoing", "state")


@REQUIREMENTS.that(7, "an empty transactional id returns INVALID_REQUEST", source=COORDINATOR)
def empty(target: Target) -> None:
    transactional_id, producer = begun(target)
    for version in versions(target):
        error = transactional_id.end(producer, version, commits=True, name="").error_code
        expect_error(error, ErrorCode.INVALID_REQUEST, f"version {version}")


@REQUIREMENTS.that(
    8, "EndTxn does not raise the epoch: the producer continues with the same one", source="KIP-98"
)
def same_epoch(target: Target) -> None:
    topic, transactional_id = target.topic(), TransactionalId(target)
    producer = transactional_id.producer()
    for version in versions(target):
        for commits in (True, False):
            transactional_id.begin(producer, [(topic.name, 0)])
            transactional_id.ended(producer, version, commits=commits)
            found = transactional_id.described()
            expect_equal(
                (found.producer_id, found.producer_epoch), producer, f"version {version}: producer"
            )


@REQUIREMENTS.that(
    9,
    "starting the next transaction too early returns at most CONCURRENT_TRANSACTIONS, and "
    "succeeds soon afterwards",
    source="KIP-98",
)
def next_one(target: Target) -> None:
    topic, transactional_id = target.topic(3), TransactionalId(target)
    producer = transactional_id.producer()
    partitions = [(topic.name, number) for number in range(3)]
    for _ in range(10):
        transactional_id.begin(producer, partitions)
        expect_error(
            transactional_id.end(producer, commits=True).error_code, ErrorCode.NONE, "the end"
        )
        errors = transactional_id.add(producer, partitions, waits=False)
        expect_equal(set(errors) in ({0}, {51}), True, "the same code for every partition")


@REQUIREMENTS.that(
    10,
    "a topic that was deleted meanwhile does not keep a transaction open",
    source="TransactionMarkerChannelManager",
)
def deleted_topic(target: Target) -> None:
    kept, gone, transactional_id = target.topic(), target.topic(), TransactionalId(target)
    producer = transactional_id.producer()
    transactional_id.begin(producer, [(kept.name, 0), (gone.name, 0)])
    with target.peer() as peer:
        asked = DeleteTopicsRequest(topic_names=[gone.name], timeout_ms=15_000)
        answer = peer.ask(
            asked, target.newest(ApiKey.DELETE_TOPICS, until=BY_NAME_UNTIL), DeleteTopicsResponse
        )
    expect_error(answer.responses[0].error_code, ErrorCode.NONE, "the deletion of a topic")
    transactional_id.ended(producer, commits=True)


@REQUIREMENTS.that(11, "a transaction of many partitions ends as one", source="KIP-98")
def many_partitions(target: Target) -> None:
    topic, transactional_id = target.topic(20), TransactionalId(target)
    producer = transactional_id.producer()
    transactional_id.begin(producer, [(topic.name, number) for number in range(20)])
    transactional_id.ended(producer, commits=False)


@REQUIREMENTS.that(
    12,
    "while markers are being written either result returns CONCURRENT_TRANSACTIONS",
    source="TransactionMetadata.prepareComplete",
)
def while_it_ends(target: Target) -> None:
    topic, transactional_id = target.topic(40), TransactionalId(target)
    producer = transactional_id.producer()
    partitions = [(topic.name, number) for number in range(40)]
    for commits in (True, False):
        for asked in (commits, not commits):
            transactional_id.begin(producer, partitions)
            expect_error(
                transactional_id.end(producer, commits=commits).error_code,
                ErrorCode.NONE,
                "the end",
            )
            error = transactional_id.end(producer, commits=asked).error_code
            over = ErrorCode.NONE if asked is commits else ErrorCode.INVALID_TXN_STATE
            expect(
                error in (ErrorCode.CONCURRENT_TRANSACTIONS, over),
                f"error {error}, before the transaction is over or afterwards",
            )
