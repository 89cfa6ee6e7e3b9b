"""EndTxn (26) since version 5: every EndTxn raises the epoch, so that a delayed request cannot
affect the next transaction.

Source: KIP-890; TransactionCoordinator.endTransaction of Apache Kafka 4.
"""

from kraftsim.conformance.expect import expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.transactional_id import UNKNOWN_ID, Producer, TransactionalId
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k26_end_txn import EndTxnResponse

REQUIREMENTS = Requirements("transactions", 7, "EndTxn that raises the epoch")
COORDINATOR = "TransactionCoordinator.endTransaction"
SINCE = 5
NOBODYS_PRODUCER_ID = 1 << 40


def version_of(target: Target) -> int:
    """Return the newest version. Raises Inapplicable if none raises the epoch."""
    return list(target.versions(ApiKey.END_TXN, since=SINCE))[-1]


def identity_in(answer: EndTxnResponse) -> tuple[int, int, int]:
    """Return error, producer id and epoch."""
    return answer.error_code, answer.producer_id, answer.producer_epoch


def after(producer: Producer) -> Producer:
    """Return producer id and epoch after an EndTxn."""
    return producer[0], producer[1] + 1


def _ended(target: Target, *, commits: bool) -> tuple[TransactionalId, Producer]:
    """A completed transaction, and its producer."""
    version = version_of(target)
    topic, transactional_id = target.topic(), TransactionalId(target)
    producer = transactional_id.producer()
    transactional_id.begin(producer, [(topic.name, 0)])
    expect_equal(
        identity_in(transactional_id.ended(producer, version, commits=commits)),
        (0, *after(producer)),
        "error, id, epoch",
    )
    return transactional_id, producer


@REQUIREMENTS.that(
    1,
    "EndTxn returns the same producer id and the next epoch, which applies from then on",
    source="KIP-890",
    since="4.0",
)
def raised(target: Target) -> None:
    for commits in (True, False):
        transactional_id, producer = _ended(target, commits=commits)
        found = transactional_id.described()
        expect_equal(
            (found.producer_id, found.producer_epoch), after(producer), "described producer"
        )


@REQUIREMENTS.that(2, "the producer continues with the next epoch", source="KIP-890", since="4.0")
def continues_with_next_epoch(target: Target) -> None:
    version = version_of(target)
    topic, transactional_id = target.topic(), TransactionalId(target)
    producer = transactional_id.producer()
    for commits in (True, False, True):
        transactional_id.begin(producer, [(topic.name, 0)])
        answer = transactional_id.ended(producer, version, commits=commits)
        expect_equal((answer.producer_id, answer.producer_epoch), after(producer), "producer")
        producer = after(producer)


@REQUIREMENTS.that(
    3,
    "a retry with the previous epoch and the same result returns the same response, and raises "
    "nothing",
    source=COORDINATOR,
    since="4.0",
)
def repeated(target: Target) -> None:
    for commits in (True, False):
        transactional_id, producer = _ended(target, commits=commits)
        for _ in range(2):
            again = transactional_id.end(producer, version_of(target), commits=commits)
            expect_equal(identity_in(again), (0, *after(producer)), "error, id, epoch")


@REQUIREMENTS.that(
    4,
    "a retry with the previous epoch and the other result returns INVALID_TXN_STATE",
    source=COORDINATOR,
    since="4.0",
)
def other_end(target: Target) -> None:
    for commits in (True, False):
        transactional_id, producer = _ended(target, commits=commits)
        again = transactional_id.end(producer, version_of(target), commits=not commits)
        expect_equal(
            identity_in(again), (int(ErrorCode.INVALID_TXN_STATE), *UNKNOWN_ID), "error, id, epoch"
        )


@REQUIREMENTS.that(
    5,
    "a commit with the current epoch and no transaction returns INVALID_TXN_STATE",
    source=COORDINATOR,
    since="4.0",
)
def nothing_to_commit(target: Target) -> None:
    for commits in (True, False):
        transactional_id, producer = _ended(target, commits=commits)
        again = transactional_id.end(after(producer), version_of(target), commits=True)
        expect_equal(
            identity_in(again), (int(ErrorCode.INVALID_TXN_STATE), *UNKNOWN_ID), "error, id, epoch"
        )


@REQUIREMENTS.that(
    6,
    "an abort with the current epoch and no transaction returns no error, and raises the epoch",
    source="KIP-890",
    since="4.0",
)
def abort_of_nothing(target: Target) -> None:
    for commits in (True, False):
        transactional_id, producer = _ended(target, commits=commits)
        again = transactional_id.ended(after(producer), version_of(target), commits=False)
        expect_equal(identity_in(again), (0, *after(after(producer))), "error, id, epoch")


@REQUIREMENTS.that(
    7,
    "before the first transaction an abort raises the epoch, and a commit returns "
    "INVALID_TXN_STATE",
    source="KIP-890",
    since="4.0",
)
def before_the_first(target: Target) -> None:
    version, transactional_id = version_of(target), TransactionalId(target)
    producer = transactional_id.producer()
    expect_error(
        transactional_id.end(producer, version, commits=True).error_code,
        ErrorCode.INVALID_TXN_STATE,
        "commit",
    )
    expect_equal(
        identity_in(transactional_id.ended(producer, version, commits=False)),
        (0, *after(producer)),
        "abort: error, id, epoch",
    )


@REQUIREMENTS.that(
    8,
    "an epoch two below the current one, or above it, returns PRODUCER_FENCED",
    source=COORDINATOR,
    since="4.0",
)
def other_epochs(target: Target) -> None:
    version = version_of(target)
    topic, transactional_id = target.topic(), TransactionalId(target)
    producer = first = transactional_id.producer()
    for _ in range(2):
        transactional_id.begin(producer, [(topic.name, 0)])
        transactional_id.ended(producer, version, commits=True)
        producer = after(producer)
    for other in (first, after(producer)):
        for commits in (True, False):
            answer = transactional_id.end(other, version, commits=commits)
            expect_equal(
                identity_in(answer),
                (int(ErrorCode.PRODUCER_FENCED), *UNKNOWN_ID),
                f"epoch {other[1]}",
            )


@REQUIREMENTS.that(
    9,
    "in an open transaction the previous epoch returns PRODUCER_FENCED: it ended the previous "
    "transaction",
    source="KAFKA-17754",
    since="4.0",
)
def late_end(target: Target) -> None:
    version = version_of(target)
    topic, transactional_id = target.topic(), TransactionalId(target)
    producer = transactional_id.producer()
    transactional_id.begin(producer, [(topic.name, 0)])
    transactional_id.ended(producer, version, commits=True)
    transactional_id.begin(after(producer), [(topic.name, 0)])
    for commits in (True, False):
        answer = transactional_id.end(producer, version, commits=commits)
        expect_error(answer.error_code, ErrorCode.PRODUCER_FENCED, "an end that comes late")
    expect_equal(transactional_id.described().transaction_state, "Ongoing", "state")


@REQUIREMENTS.that(
    10,
    "with the previous epoch no partition can be added to the next transaction",
    source="KIP-890",
    since="4.0",
)
def late_partitions(target: Target) -> None:
    transactional_id, producer = _ended(target, commits=True)
    topic = target.topic()
    expect_equal(
        transactional_id.add(producer, [(topic.name, 0)]),
        [int(ErrorCode.PRODUCER_FENCED)],
        "AddPartitionsToTxn",
    )
    expect_error(
        transactional_id.add_offsets(producer, "g"), ErrorCode.PRODUCER_FENCED, "AddOffsetsToTxn"
    )


@REQUIREMENTS.that(
    11, "another producer id returns INVALID_PRODUCER_ID_MAPPING", source=COORDINATOR, since="4.0"
)
def foreign(target: Target) -> None:
    transactional_id, (_, epoch) = _ended(target, commits=True)
    for other in (epoch, epoch + 1):
        answer = transactional_id.end(
            (NOBODYS_PRODUCER_ID, other), version_of(target), commits=True
        )
        expect_equal(
            identity_in(answer),
            (int(ErrorCode.INVALID_PRODUCER_ID_MAPPING), *UNKNOWN_ID),
            f"epoch {other}",
        )


@REQUIREMENTS.that(
    12,
    "InitProducerId with the epoch before the EndTxn returns the current one",
    source="KIP-360; KIP-890",
    since="4.0",
)
def asks_for_an_epoch(target: Target) -> None:
    transactional_id, producer = _ended(target, commits=True)
    answer = transactional_id.init(producer=producer)
    expect_equal(
        (answer.error_code, answer.producer_id, answer.producer_epoch),
        (0, *after(producer)),
        "error, id, epoch",
    )
