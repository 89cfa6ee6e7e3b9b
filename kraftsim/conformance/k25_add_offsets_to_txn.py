"""AddOffsetsToTxn (25): the offsets of a group become part of a transaction.

Source: KIP-98, KIP-588; KafkaApis.handleAddOffsetsToTxnRequest.
"""

from kraftsim.conformance.expect import expect_equal, expect_error
from kraftsim.conformance.group_client import find_coordinator
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.transactional_id import TransactionalId, partitions_of
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode

REQUIREMENTS = Requirements("transactions", 5, "AddOffsetsToTxn")
HANDLER = "KafkaApis.handleAddOffsetsToTxnRequest"
COORDINATOR = "TransactionCoordinator.handleAddPartitionsToTransaction"
OFFSETS = "__consumer_offsets"
FENCED_SINCE = 2
NOBODYS_PRODUCER_ID = 1 << 40


@REQUIREMENTS.that(
    1,
    f"the partition of {OFFSETS} of the group is added to the transaction, which it may start",
    source="KIP-98",
)
def joins(target: Target) -> None:
    group_id = target.fresh_name("group")
    find_coordinator(target, group_id)
    for version in target.versions(ApiKey.ADD_OFFSETS_TO_TXN):
        transactional_id = TransactionalId(target)
        producer = transactional_id.producer()
        expect_error(
            transactional_id.add_offsets(producer, group_id, version),
            ErrorCode.NONE,
            f"version {version}",
        )
        found = transactional_id.described()
        expect_equal(
            (found.transaction_state, [topic for topic, _ in partitions_of(found)]),
            ("Ongoing", [OFFSETS]),
            f"version {version}",
        )


@REQUIREMENTS.that(
    2,
    "the same group always maps to the same partition, which is added once",
    source="GroupCoordinator.partitionFor",
)
def same_partition(target: Target) -> None:
    group_id = target.fresh_name("group")
    find_coordinator(target, group_id)
    places = []
    for _ in range(2):
        transactional_id = TransactionalId(target)
        producer = transactional_id.producer()
        for _ in range(2):
            expect_error(
                transactional_id.add_offsets(producer, group_id), ErrorCode.NONE, "offsets"
            )
        places.append(partitions_of(transactional_id.described()))
    expect_equal(places[0], places[1], "partitions of two transactions")


@REQUIREMENTS.that(3, "an empty group id is processed like any other", source=HANDLER)
def nameless(target: Target) -> None:
    find_coordinator(target, target.fresh_name("group"))
    transactional_id = TransactionalId(target)
    producer = transactional_id.producer()
    expect_error(transactional_id.add_offsets(producer, ""), ErrorCode.NONE, "the empty group id")


@REQUIREMENTS.that(
    4,
    "an uninitialised transactional id, and another producer id, return "
    "INVALID_PRODUCER_ID_MAPPING",
    source=COORDINATOR,
)
def unknown(target: Target) -> None:
    transactional_id, uninitialised = TransactionalId(target), TransactionalId(target)
    _, epoch = transactional_id.producer()
    for version in target.versions(ApiKey.ADD_OFFSETS_TO_TXN):
        expect_error(
            uninitialised.add_offsets((5, 0), "g", version),
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"version {version}: an uninitialised id",
        )
        error = transactional_id.add_offsets((NOBODYS_PRODUCER_ID, epoch), "g", version)
        expect_error(error, ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"version {version}: another's")


@REQUIREMENTS.that(
    5,
    "any other epoch returns PRODUCER_FENCED, up to version 1 INVALID_PRODUCER_EPOCH",
    source="KIP-588",
)
def other_epochs(target: Target) -> None:
    transactional_id = TransactionalId(target)
    before = transactional_id.producer()
    producer_id, epoch = transactional_id.producer()
    for version in target.versions(ApiKey.ADD_OFFSETS_TO_TXN):
        wanted = (
            ErrorCode.PRODUCER_FENCED
            if version >= FENCED_SINCE
            else ErrorCode.INVALID_PRODUCER_EPOCH
        )
        expect_error(
            transactional_id.add_offsets(before, "g", version), wanted, f"version {version}: behind"
        )
        expect_error(
            transactional_id.add_offsets((producer_id, epoch + 1), "g", version),
            wanted,
            f"version {version}: ahead",
        )


@REQUIREMENTS.that(6, "an empty transactional id returns INVALID_REQUEST", source=COORDINATOR)
def empty(target: Target) -> None:
    transactional_id = TransactionalId(target)
    producer = transactional_id.producer()
    for version in target.versions(ApiKey.ADD_OFFSETS_TO_TXN):
        expect_error(
            transactional_id.add_offsets(producer, "g", version, name=""),
            ErrorCode.INVALID_REQUEST,
            f"version {version}",
        )


@REQUIREMENTS.that(
    7, "records and offsets are part of one transaction, and end with it", source="KIP-98"
)
def together(target: Target) -> None:
    group_id, topic, transactional_id = (
        target.fresh_name("group"),
        target.topic(),
        TransactionalId(target),
    )
    find_coordinator(target, group_id)
    producer = transactional_id.producer()
    transactional_id.begin(producer, [(topic.name, 0)])
    expect_error(transactional_id.add_offsets(producer, group_id), ErrorCode.NONE, "offsets")
    expect_equal(
        {name for name, _ in partitions_of(transactional_id.described())},
        {topic.name, OFFSETS},
        "topics of the transaction",
    )
    transactional_id.ended(producer, commits=True)
    expect_equal(partitions_of(transactional_id.described()), [], "partitions afterwards")
