"""AddPartitionsToTxn (24) of producers, versions 0 to 3.

Source: KIP-98, KIP-588; KafkaApis.handleAddPartitionsToTxnRequest.
"""

from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.transaction_client import find_transaction_coordinator
from kraftsim.conformance.transactional_id import TransactionalId, partitions_of
from protocol.errors import ErrorCode

REQUIREMENTS = Requirements("transactions", 3, "AddPartitionsToTxn of producers")
HANDLER = "KafkaApis.handleAddPartitionsToTxnRequest"
COORDINATOR = "TransactionCoordinator.handleAddPartitionsToTransaction"
VERSIONS = (0, 1, 2, 3)
FENCED_SINCE = 2
NOBODYS_PRODUCER_ID = 1 << 40


def fenced(version: int) -> ErrorCode:
    """Return the error of a version for a fenced producer."""
    return (
        ErrorCode.PRODUCER_FENCED if version >= FENCED_SINCE else ErrorCode.INVALID_PRODUCER_EPOCH
    )


@REQUIREMENTS.that(
    1,
    "added partitions are part of the transaction, which starts with the first of them",
    source="KIP-98",
)
def added(target: Target) -> None:
    topic = target.topic(2)
    for version in VERSIONS:
        transactional_id = TransactionalId(target)
        producer = transactional_id.producer()
        expect_equal(
            transactional_id.add(producer, [(topic.name, 1), (topic.name, 0)], version),
            [0, 0],
            f"version {version}",
        )
        found = transactional_id.described()
        expect_equal(
            (found.transaction_state, partitions_of(found)),
            ("Ongoing", [(topic.name, 0), (topic.name, 1)]),
            f"version {version}",
        )
        expect(found.transaction_start_time_ms > 0, "a transaction without beginning")


@REQUIREMENTS.that(
    2, "adding a partition again returns no error, and nothing changes", source=COORDINATOR
)
def added_twice(target: Target) -> None:
    topic, transactional_id = target.topic(2), TransactionalId(target)
    producer = transactional_id.producer()
    transactional_id.begin(producer, [(topic.name, 0), (topic.name, 1)])
    before = transactional_id.described()
    for version in VERSIONS:
        expect_equal(
            transactional_id.add(producer, [(topic.name, 1)], version), [0], f"version {version}"
        )
    expect_equal(transactional_id.described(), before, "the description")


@REQUIREMENTS.that(
    3,
    "partitions may be added later, without changing the start time of the transaction",
    source=COORDINATOR,
)
def joined(target: Target) -> None:
    topic, other, transactional_id = target.topic(2), target.topic(), TransactionalId(target)
    producer = transactional_id.producer()
    transactional_id.begin(producer, [(topic.name, 1)])
    begun = transactional_id.described().transaction_start_time_ms
    transactional_id.begin(producer, [(other.name, 0), (topic.name, 0)])
    found = transactional_id.described()
    expect_equal(
        partitions_of(found),
        sorted([(topic.name, 0), (topic.name, 1), (other.name, 0)]),
        "partitions",
    )
    expect_equal(found.transaction_start_time_ms, begun, "begin")


@REQUIREMENTS.that(
    4,
    "an unknown topic returns UNKNOWN_TOPIC_OR_PARTITION, and all others OPERATION_NOT_ATTEMPTED",
    source=HANDLER,
)
def no_topic(target: Target) -> None:
    topic, transactional_id = target.topic(), TransactionalId(target)
    producer = transactional_id.producer()
    missing = target.fresh_name("missing")
    for version in VERSIONS:
        errors = transactional_id.add(
            producer, [(topic.name, 0), (missing, 0), (missing, 1)], version
        )
        expect_equal(errors, [55, 3, 3], f"version {version}: errors")
    expect_equal(transactional_id.described().transaction_state, "Empty", "state")


@REQUIREMENTS.that(
    5, "an unknown partition of a topic returns UNKNOWN_TOPIC_OR_PARTITION", source=HANDLER
)
def no_partition(target: Target) -> None:
    topic, transactional_id = target.topic(), TransactionalId(target)
    producer = transactional_id.producer()
    for version in VERSIONS:
        expect_equal(
            transactional_id.add(producer, [(topic.name, 0), (topic.name, 7)], version),
            [55, 3],
            f"version {version}: errors",
        )


@REQUIREMENTS.that(6, "internal topics return TOPIC_AUTHORIZATION_FAILED", source=HANDLER)
def internal(target: Target) -> None:
    topic, transactional_id = target.topic(), TransactionalId(target)
    producer = transactional_id.producer()
    for version in VERSIONS:
        errors = transactional_id.add(
            producer, [("__transaction_state", 0), (topic.name, 0)], version
        )
        expect_equal(errors, [29, 55], f"version {version}: errors")


@REQUIREMENTS.that(
    7, "an uninitialised transactional id returns INVALID_PRODUCER_ID_MAPPING", source=COORDINATOR
)
def unknown(target: Target) -> None:
    topic, transactional_id = target.topic(), TransactionalId(target)
    for version in VERSIONS:
        expect_equal(
            transactional_id.add((5, 0), [(topic.name, 0)], version), [49], f"version {version}"
        )


@REQUIREMENTS.that(8, "another producer id returns INVALID_PRODUCER_ID_MAPPING", source=COORDINATOR)
def foreign(target: Target) -> None:
    topic, transactional_id = target.topic(), TransactionalId(target)
    _, epoch = transactional_id.producer()
    for version in VERSIONS:
        expect_equal(
            transactional_id.add((NOBODYS_PRODUCER_ID, epoch), [(topic.name, 0)], version),
            [49],
            f"version {version}",
        )


@REQUIREMENTS.that(
    9,
    "an older producer epoch returns PRODUCER_FENCED, up to version 1 INVALID_PRODUCER_EPOCH",
    source="KIP-588",
)
def behind(target: Target) -> None:
    topic, transactional_id = target.topic(), TransactionalId(target)
    before = transactional_id.producer()
    transactional_id.producer()
    for version in VERSIONS:
        expect_error(
            transactional_id.add(before, [(topic.name, 0)], version)[0],
            fenced(version),
            f"version {version}",
        )


@REQUIREMENTS.that(10, "so does a newer producer epoch", source=COORDINATOR)
def ahead(target: Target) -> None:
    topic, transactional_id = target.topic(), TransactionalId(target)
    producer_id, epoch = transactional_id.producer()
    for version in VERSIONS:
        expect_error(
            transactional_id.add((producer_id, epoch + 1), [(topic.name, 0)], version)[0],
            fenced(version),
            f"version {version}",
        )


@REQUIREMENTS.that(11, "an empty transactional id returns INVALID_REQUEST", source=COORDINATOR)
def empty(target: Target) -> None:
    topic, transactional_id = target.topic(), TransactionalId(target)
    producer = transactional_id.producer()
    find_transaction_coordinator(target, "")
    for version in VERSIONS:
        expect_equal(
            transactional_id.add(producer, [(topic.name, 0)], version, name=""),
            [42],
            f"version {version}",
        )


@REQUIREMENTS.that(12, "unknown topics are reported before the producer is checked", source=HANDLER)
def order_of_checks(target: Target) -> None:
    transactional_id = TransactionalId(target)
    for version in VERSIONS:
        errors = transactional_id.add((5, 0), [(target.fresh_name("missing"), 0)], version)
        expect_equal(
            errors, [3], f"version {version}: error of an unknown topic in an unknown transaction"
        )


@REQUIREMENTS.that(13, "a request without partitions starts a transaction, too", source=COORDINATOR)
def nothing(target: Target) -> None:
    transactional_id = TransactionalId(target)
    producer = transactional_id.producer()
    transactional_id.begin(producer, [])
    found = transactional_id.described()
    expect_equal(
        (found.transaction_state, partitions_of(found)), ("Ongoing", []), "state, partitions"
    )
    transactional_id.ended(producer, commits=True)


@REQUIREMENTS.that(
    14,
    "the next transaction has only its own partitions, and another start time",
    source=COORDINATOR,
)
def next_one(target: Target) -> None:
    topic, transactional_id = target.topic(2), TransactionalId(target)
    producer = transactional_id.producer()
    transactional_id.begin(producer, [(topic.name, 0)])
    begun = transactional_id.described().transaction_start_time_ms
    transactional_id.ended(producer, commits=True)
    transactional_id.begin(producer, [(topic.name, 1)])
    found = transactional_id.described()
    expect_equal(partitions_of(found), [(topic.name, 1)], "partitions")
    expect(found.transaction_start_time_ms >= begun, "it began before the one before")
