"""AddPartitionsToTxn (24) of brokers, since version 4: several transactions at once, with
verification.

Source: KIP-890; TransactionCoordinator.handleVerifyPartitionsInTransaction.
"""

from collections.abc import Iterator

from kraftsim.conformance.expect import expect_equal
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.transactional_id import (
    Partitions,
    Producer,
    TransactionalId,
    partitions_of,
)
from protocol.api_keys import ApiKey

REQUIREMENTS = Requirements("transactions", 4, "AddPartitionsToTxn of brokers")
VERIFIES = "TransactionCoordinator.handleVerifyPartitionsInTransaction"
HANDLER = "KafkaApis.handleAddPartitionsToTxnRequest"
SINCE = 4
NOBODYS_PRODUCER_ID = 1 << 40


def versions(target: Target) -> Iterator[int]:
    """Yield the versions that brokers send."""
    return target.versions(ApiKey.ADD_PARTITIONS_TO_TXN, since=SINCE)


def verified(
    transactional_id: TransactionalId,
    producer: Producer,
    partitions: Partitions,
    version: int,
    *,
    name: str | None = None,
) -> list[int]:
    """Return the errors of partitions, in their order."""
    row = transactional_id.row(producer, partitions, verifies=True, name=name)
    found = transactional_id.ask_as_broker([row], version)[row.transactional_id]
    return [found[each] for each in partitions]


def _ongoing(target: Target) -> tuple[TransactionalId, Producer, str]:
    """A transaction that contains partition 0 of a topic, and not partition 1."""
    topic, transactional_id = target.topic(2), TransactionalId(target)
    producer = transactional_id.producer()
    transactional_id.begin(producer, [(topic.name, 0)])
    return transactional_id, producer, topic.name


@REQUIREMENTS.that(
    1,
    "verification returns no error for a partition of the transaction, TRANSACTION_ABORTABLE for "
    "another one",
    source="KIP-890",
    since="3.8",
)
def members(target: Target) -> None:
    transactional_id, producer, topic = _ongoing(target)
    for version in versions(target):
        expect_equal(
            verified(transactional_id, producer, [(topic, 0), (topic, 1)], version),
            [0, 120],
            f"version {version}",
        )


@REQUIREMENTS.that(
    2,
    "verification returns no error for a partition of the transaction, INVALID_TXN_STATE for "
    "another one",
    source="KIP-890",
    since="3.6",
    until="3.7",
)
def members_before(target: Target) -> None:
    transactional_id, producer, topic = _ongoing(target)
    for version in versions(target):
        expect_equal(
            verified(transactional_id, producer, [(topic, 0), (topic, 1)], version),
            [0, 48],
            f"version {version}",
        )


@REQUIREMENTS.that(3, "verification adds no partition", source=VERIFIES, since="3.6")
def asks_only(target: Target) -> None:
    transactional_id, producer, topic = _ongoing(target)
    for version in versions(target):
        verified(transactional_id, producer, [(topic, 1)], version)
        expect_equal(
            partitions_of(transactional_id.described()),
            [(topic, 0)],
            f"version {version}: partitions",
        )


@REQUIREMENTS.that(
    4,
    "an uninitialised transactional id, and another producer id, return "
    "INVALID_PRODUCER_ID_MAPPING",
    source=VERIFIES,
    since="3.6",
)
def unknown(target: Target) -> None:
    transactional_id, (_, epoch), topic = _ongoing(target)
    uninitialised = TransactionalId(target)
    for version in versions(target):
        expect_equal(
            verified(uninitialised, (5, 0), [(topic, 0)], version),
            [49],
            f"version {version}: an uninitialised id",
        )
        expect_equal(
            verified(transactional_id, (NOBODYS_PRODUCER_ID, epoch), [(topic, 0)], version),
            [49],
            f"version {version}: another's",
        )


@REQUIREMENTS.that(5, "any other epoch returns PRODUCER_FENCED", source=VERIFIES, since="3.6")
def other_epochs(target: Target) -> None:
    transactional_id, (producer_id, epoch), topic = _ongoing(target)
    for version in versions(target):
        for other in (epoch - 1, epoch + 1):
            expect_equal(
                verified(transactional_id, (producer_id, other), [(topic, 0)], version),
                [90],
                f"version {version}, epoch {other}",
            )


@REQUIREMENTS.that(
    6, "an empty transactional id returns INVALID_REQUEST", source=VERIFIES, since="3.6"
)
def empty(target: Target) -> None:
    transactional_id, producer, topic = _ongoing(target)
    for version in versions(target):
        expect_equal(
            verified(transactional_id, producer, [(topic, 0)], version, name=""),
            [42],
            f"version {version}",
        )


@REQUIREMENTS.that(
    7,
    "an unknown partition returns UNKNOWN_TOPIC_OR_PARTITION, and the others "
    "OPERATION_NOT_ATTEMPTED",
    source=HANDLER,
    since="3.6",
)
def not_there(target: Target) -> None:
    transactional_id, producer, topic = _ongoing(target)
    for version in versions(target):
        expect_equal(
            verified(transactional_id, producer, [(topic, 0), (topic, 9)], version),
            [55, 3],
            f"version {version}",
        )


@REQUIREMENTS.that(
    8,
    "after the end of a transaction, verification returns TRANSACTION_ABORTABLE for its partitions",
    source=VERIFIES,
    since="3.8",
)
def ended(target: Target) -> None:
    for commits in (True, False):
        transactional_id, producer, topic = _ongoing(target)
        transactional_id.ended(producer, commits=commits)
        for version in versions(target):
            expect_equal(
                verified(transactional_id, producer, [(topic, 0)], version),
                [120],
                f"version {version}",
            )


@REQUIREMENTS.that(
    9,
    "brokers may add partitions and verify others in the same request",
    source="KIP-890",
    since="3.8",
)
def adds(target: Target) -> None:
    for version in versions(target):
        transactional_id, producer, topic = _ongoing(target)
        other, other_producer, other_topic = _ongoing(target)
        if other.address != transactional_id.address:
            continue
        rows = [
            transactional_id.row(producer, [(topic, 1)], verifies=False),
            other.row(other_producer, [(other_topic, 1)], verifies=True),
        ]
        found = transactional_id.ask_as_broker(rows, version)
        wanted = {transactional_id.name: {(topic, 1): 0}, other.name: {(other_topic, 1): 120}}
        expect_equal(found, wanted, f"version {version}: errors")
        expect_equal(
            partitions_of(transactional_id.described()),
            [(topic, 0), (topic, 1)],
            f"version {version}: partitions",
        )


@REQUIREMENTS.that(
    10,
    "the errors of a transaction do not affect the others of its request",
    source="KIP-890",
    since="3.6",
)
def each_by_itself(target: Target) -> None:
    transactional_id, producer, topic = _ongoing(target)
    uninitialised = target.fresh_name("transaction")
    for version in versions(target):
        rows = [
            transactional_id.row((5, 0), [(topic, 0)], verifies=True, name=uninitialised),
            transactional_id.row(producer, [(topic, 0)], verifies=True),
        ]
        found = transactional_id.ask_as_broker(rows, version)
        expect_equal(
            found[transactional_id.name], {(topic, 0): 0}, f"version {version}: the good one"
        )
        expect_equal(
            found[uninitialised][topic, 0] in (49, 16),
            True,
            f"version {version}: the other one is unknown here, or belongs elsewhere",
        )
