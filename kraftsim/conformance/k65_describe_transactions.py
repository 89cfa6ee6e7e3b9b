"""DescribeTransactions (65): the state of transactional ids.

Source: KIP-664; TransactionCoordinator.handleDescribeTransactions.
"""

import time

from kraftsim.conformance.expect import expect, expect_equal
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.transactional_id import DESCRIBE_VERSION, TransactionalId, partitions_of
from protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

REQUIREMENTS = Requirements("transactions", 9, "DescribeTransactions")
COORDINATOR = "TransactionCoordinator.handleDescribeTransactions"
NO_TIME = -1
CLOCKS_APART_MS = 120_000


def described(transactional_id: TransactionalId, names: list[str]) -> list[TransactionState]:
    """Return the descriptions of several ids."""
    with transactional_id.target.peer(transactional_id.address) as peer:
        asked = DescribeTransactionsRequest(transactional_ids=names)
        return peer.ask(asked, DESCRIBE_VERSION, DescribeTransactionsResponse).transaction_states


@REQUIREMENTS.that(
    1, "an initialised id is Empty, without a start time and without partitions", source=COORDINATOR
)
def initialised(target: Target) -> None:
    transactional_id = TransactionalId(target)
    producer = transactional_id.producer(12_345)
    found = transactional_id.described()
    returned = (
        found.error_code,
        found.transactional_id,
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
    )
    expect_equal(
        returned, (0, transactional_id.name, "Empty", *producer), "error, id, state, producer"
    )
    expect_equal(
        (found.transaction_timeout_ms, found.transaction_start_time_ms, found.topics),
        (12_345, NO_TIME, []),
        "time-out, begin, topics",
    )


@REQUIREMENTS.that(
    2,
    "an open transaction is Ongoing, with its start time and its partitions by topic",
    source=COORDINATOR,
)
def ongoing(target: Target) -> None:
    first, second, transactional_id = target.topic(2), target.topic(), TransactionalId(target)
    producer = transactional_id.producer()
    partitions = [(first.name, 1), (second.name, 0), (first.name, 0)]
    transactional_id.begin(producer, partitions)
    found = transactional_id.described()
    expect_equal(
        (found.transaction_state, partitions_of(found)),
        ("Ongoing", sorted(partitions)),
        "state, partitions",
    )
    expect_equal(len(found.topics), 2, "topics")
    expect(
        abs(found.transaction_start_time_ms - time.time_ns() // 1_000_000) < CLOCKS_APART_MS,
        "it begins at another time",
    )


@REQUIREMENTS.that(
    3,
    "after EndTxn the state contains the result, with the start time of the transaction",
    source=COORDINATOR,
)
def ended(target: Target) -> None:
    topic = target.topic()
    for commits, state in ((True, "CompleteCommit"), (False, "CompleteAbort")):
        transactional_id = TransactionalId(target)
        producer = transactional_id.producer()
        transactional_id.begin(producer, [(topic.name, 0)])
        begun = transactional_id.described().transaction_start_time_ms
        transactional_id.ended(producer, commits=commits)
        found = transactional_id.described()
        returned = (found.transaction_state, found.transaction_start_time_ms, found.topics)
        expect_equal(returned, (state, begun, []), "state, begin, topics")


@REQUIREMENTS.that(
    4,
    "an uninitialised id returns TRANSACTIONAL_ID_NOT_FOUND, an empty one INVALID_REQUEST",
    source=COORDINATOR,
)
def unknown(target: Target) -> None:
    idle = TransactionalId(target)
    rows = described(idle, [idle.name, ""])
    expect_equal(
        [(row.transactional_id, row.error_code) for row in rows],
        [(idle.name, 105), ("", 42)],
        "ids and errors",
    )


@REQUIREMENTS.that(
    5,
    "several ids are returned independently, in their order; an empty list returns nothing",
    source=COORDINATOR,
)
def several(target: Target) -> None:
    known = TransactionalId(target)
    known.producer()
    unknown_name = ""
    rows = described(known, [unknown_name, known.name, unknown_name])
    expect_equal([row.error_code for row in rows], [42, 0, 42], "errors")
    expect_equal(described(known, []), [], "nothing")


def _reinitialised(target: Target) -> tuple[TransactionState, int]:
    """The description after a transaction and another InitProducerId, and the start time of the
    transaction.
    """
    topic, transactional_id = target.topic(), TransactionalId(target)
    producer = transactional_id.producer()
    transactional_id.begin(producer, [(topic.name, 0)])
    begun = transactional_id.described().transaction_start_time_ms
    transactional_id.ended(producer, commits=True)
    transactional_id.producer()
    return transactional_id.described(), begun


@REQUIREMENTS.that(
    6,
    "the start time of the last transaction is kept until the next one starts, even across "
    "InitProducerId",
    source=COORDINATOR,
    until="4.0",
)
def last_beginning(target: Target) -> None:
    found, begun = _reinitialised(target)
    expect_equal(
        (found.transaction_state, found.transaction_start_time_ms), ("Empty", begun), "state, begin"
    )


@REQUIREMENTS.that(
    7,
    "InitProducerId clears the start time of the last transaction",
    source=COORDINATOR,
    since="4.1",
)
def no_beginning(target: Target) -> None:
    found, _ = _reinitialised(target)
    expect_equal(
        (found.transaction_state, found.transaction_start_time_ms),
        ("Empty", NO_TIME),
        "state, begin",
    )
