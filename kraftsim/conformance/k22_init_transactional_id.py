"""InitProducerId (22) of transactional ids: epoch bumps and fencing.

Source: KIP-98, KIP-360, KIP-588; TransactionCoordinator.handleInitProducerId.
"""

from collections.abc import Iterator

from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.transactional_id import (
    UNKNOWN_ID,
    Producer,
    TransactionalId,
    partitions_of,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k22_init_producer_id import InitProducerIdResponse

REQUIREMENTS = Requirements("transactions", 2, "InitProducerId with a transactional id")
COORDINATOR = "TransactionCoordinator.handleInitProducerId"
NAMES_ITSELF_SINCE, FENCED_SINCE = 3, 4
MAX_TIMEOUT_MS = 900_000
NOBODYS_PRODUCER_ID = 1 << 40


def naming(target: Target) -> Iterator[tuple[int, ErrorCode]]:
    """Yield the versions in which a producer sends its id and epoch, with the error of each for a
    fenced producer.
    """
    for version in target.versions(ApiKey.INIT_PRODUCER_ID, since=NAMES_ITSELF_SINCE):
        yield (
            version,
            ErrorCode.PRODUCER_FENCED
            if version >= FENCED_SINCE
            else ErrorCode.INVALID_PRODUCER_EPOCH,
        )


def refused(answer: InitProducerIdResponse, error: ErrorCode, what: str) -> None:
    """Expect an error, and neither id nor epoch."""
    expect_error(answer.error_code, error, what)
    expect_equal(
        (answer.producer_id, answer.producer_epoch),
        UNKNOWN_ID,
        f"{what}: id and epoch in an error response",
    )


@REQUIREMENTS.that(
    1,
    "a new transactional id gets its own producer id, with epoch 0, in every version",
    source="KIP-98",
)
def fresh(target: Target) -> None:
    given = []
    for version in target.versions(ApiKey.INIT_PRODUCER_ID):
        answer = TransactionalId(target).init(version)
        expect_error(answer.error_code, ErrorCode.NONE, f"version {version}")
        expect_equal(answer.producer_epoch, 0, f"version {version}: epoch")
        given.append(answer.producer_id)
    expect_equal(len(set(given)), len(given), "different ids")


@REQUIREMENTS.that(
    2, "the next InitProducerId returns the same producer id with the next epoch", source="KIP-98"
)
def next_epoch(target: Target) -> None:
    transactional_id = TransactionalId(target)
    returned = [
        transactional_id.init(version) for version in target.versions(ApiKey.INIT_PRODUCER_ID)
    ]
    expect_equal(
        [answer.producer_epoch for answer in returned], list(range(len(returned))), "epochs"
    )
    expect_equal(len({answer.producer_id for answer in returned}), 1, "producer ids")


@REQUIREMENTS.that(
    3,
    f"a time-out that is not positive, or above {MAX_TIMEOUT_MS} ms, returns "
    "INVALID_TRANSACTION_TIMEOUT",
    source=COORDINATOR,
)
def timeouts(target: Target) -> None:
    transactional_id = TransactionalId(target)
    for version in target.versions(ApiKey.INIT_PRODUCER_ID):
        for timeout_ms in (0, -1, MAX_TIMEOUT_MS + 1, 2**31 - 1):
            refused(
                transactional_id.init(version, timeout_ms=timeout_ms),
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"{timeout_ms} ms",
            )


@REQUIREMENTS.that(
    4,
    f"time-outs of 1 and of {MAX_TIMEOUT_MS} ms are accepted, and the last one applies",
    source=COORDINATOR,
)
def timeout_limits(target: Target) -> None:
    transactional_id = TransactionalId(target)
    for timeout_ms in (1, MAX_TIMEOUT_MS, 5000):
        expect_error(
            transactional_id.init(timeout_ms=timeout_ms).error_code,
            ErrorCode.NONE,
            f"{timeout_ms} ms",
        )
        expect_equal(
            transactional_id.described().transaction_timeout_ms, timeout_ms, "described time-out"
        )


@REQUIREMENTS.that(
    5,
    "a producer id without epoch, or vice versa, returns INVALID_REQUEST even if the time-out is "
    "invalid, too",
    source=COORDINATOR,
)
def order_of_checks(target: Target) -> None:
    transactional_id = TransactionalId(target)
    for version in target.versions(ApiKey.INIT_PRODUCER_ID, since=NAMES_ITSELF_SINCE):
        refused(
            transactional_id.init(version, (7, -1), timeout_ms=0),
            ErrorCode.INVALID_REQUEST,
            f"version {version}",
        )


@REQUIREMENTS.that(
    6, "a producer that sends its id and epoch gets the next epoch", source="KIP-360"
)
def raises_its_own(target: Target) -> None:
    transactional_id = TransactionalId(target)
    producer = transactional_id.producer()
    for version, _ in naming(target):
        answer = transactional_id.init(version, producer)
        returned = (answer.error_code, answer.producer_id, answer.producer_epoch)
        expect_equal(returned, (0, producer[0], producer[1] + 1), f"version {version}")
        producer = answer.producer_id, answer.producer_epoch


@REQUIREMENTS.that(
    7,
    "a retry with the previous epoch returns the current one and raises nothing",
    source="KIP-360",
)
def repeated(target: Target) -> None:
    for version, _ in naming(target):
        transactional_id = TransactionalId(target)
        before = transactional_id.producer()
        first = transactional_id.init(version, before)
        for _ in range(2):
            again = transactional_id.init(version, before)
            returned = (again.error_code, again.producer_id, again.producer_epoch)
            expect_equal(
                returned, (0, first.producer_id, first.producer_epoch), f"version {version}"
            )


@REQUIREMENTS.that(
    8,
    "a fenced producer gets PRODUCER_FENCED, up to version 3 INVALID_PRODUCER_EPOCH",
    source="KIP-360; KIP-588",
)
def taken(target: Target) -> None:
    for version, fenced in naming(target):
        transactional_id = TransactionalId(target)
        before = transactional_id.producer()
        transactional_id.producer()
        refused(transactional_id.init(version, before), fenced, f"version {version}")


@REQUIREMENTS.that(
    9,
    "an epoch that was never assigned returns PRODUCER_FENCED, up to version 3 "
    "INVALID_PRODUCER_EPOCH",
    source=COORDINATOR,
)
def ahead(target: Target) -> None:
    for version, fenced in naming(target):
        transactional_id = TransactionalId(target)
        producer_id, epoch = transactional_id.producer()
        for ahead_by in (1, 5):
            refused(
                transactional_id.init(version, (producer_id, epoch + ahead_by)),
                fenced,
                f"version {version}, {ahead_by} ahead",
            )


@REQUIREMENTS.that(
    10,
    "another producer id returns PRODUCER_FENCED, up to version 3 INVALID_PRODUCER_EPOCH",
    source=COORDINATOR,
)
def foreign(target: Target) -> None:
    for version, fenced in naming(target):
        transactional_id = TransactionalId(target)
        _, epoch = transactional_id.producer()
        refused(
            transactional_id.init(version, (NOBODYS_PRODUCER_ID, epoch)),
            fenced,
            f"version {version}",
        )


@REQUIREMENTS.that(
    11,
    "an unknown transactional id accepts any producer id and epoch: it returns a new id with "
    "epoch 0",
    source=COORDINATOR,
)
def unknown_id(target: Target) -> None:
    for version, _ in naming(target):
        answer = TransactionalId(target).init(version, (NOBODYS_PRODUCER_ID, 5))
        expect_error(answer.error_code, ErrorCode.NONE, f"version {version}")
        expect(
            answer.producer_id != NOBODYS_PRODUCER_ID,
            f"version {version}: the id that was named is given",
        )
        expect_equal(answer.producer_epoch, 0, f"version {version}: epoch")


@REQUIREMENTS.that(12, "a rejected request changes nothing", source=COORDINATOR)
def refused_changes_nothing(target: Target) -> None:
    transactional_id = TransactionalId(target)
    producer = transactional_id.producer()
    transactional_id.init(producer=(producer[0], producer[1] + 3), timeout_ms=7777)
    found = transactional_id.described()
    returned = (found.producer_id, found.producer_epoch, found.transaction_timeout_ms)
    expect_equal(returned, (*producer, 60_000), "id, epoch, time-out")


def _interrupted(
    target: Target, version: int
) -> tuple[TransactionalId, Producer, InitProducerIdResponse]:
    transactional_id, topic = TransactionalId(target), target.topic()
    producer = transactional_id.producer()
    transactional_id.begin(producer, [(topic.name, 0)])
    return transactional_id, producer, transactional_id.init(version)


@REQUIREMENTS.that(
    13,
    "InitProducerId with an open transaction returns CONCURRENT_TRANSACTIONS, and the "
    "transaction is aborted",
    source="KIP-98",
)
def interrupts(target: Target) -> None:
    for version in target.versions(ApiKey.INIT_PRODUCER_ID):
        transactional_id, _, answer = _interrupted(target, version)
        refused(answer, ErrorCode.CONCURRENT_TRANSACTIONS, f"version {version}")
        found = transactional_id.reached("CompleteAbort")
        expect_equal(partitions_of(found), [], f"version {version}: partitions")


@REQUIREMENTS.that(
    14, "the abort uses one epoch, and the retry gets the next one", source=COORDINATOR
)
def takes_two(target: Target) -> None:
    transactional_id, producer, _ = _interrupted(target, target.newest(ApiKey.INIT_PRODUCER_ID))
    expect_equal(
        transactional_id.reached("CompleteAbort").producer_epoch,
        producer[1] + 1,
        "epoch of the abort",
    )
    expect_equal(transactional_id.producer(), (producer[0], producer[1] + 2), "the retry")


@REQUIREMENTS.that(
    15,
    "the producer of the aborted transaction gets PRODUCER_FENCED since version 2 of "
    "AddPartitionsToTxn and EndTxn, INVALID_PRODUCER_EPOCH before",
    source="KIP-588",
)
def fenced_afterwards(target: Target) -> None:
    transactional_id, producer, _ = _interrupted(target, target.newest(ApiKey.INIT_PRODUCER_ID))
    transactional_id.reached("CompleteAbort")
    topic = target.topic()
    for version in (0, 1, 2, 3):
        wanted = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        expect_error(
            transactional_id.add(producer, [(topic.name, 0)], version)[0],
            wanted,
            f"AddPartitionsToTxn version {version}",
        )
        expect_error(
            transactional_id.end(producer, version, commits=True).error_code,
            wanted,
            f"EndTxn version {version}",
        )


@REQUIREMENTS.that(
    16,
    "a producer may abort its own transaction with its id and epoch, and continues with the "
    "epoch after that of the abort",
    source="KIP-360",
)
def interrupts_itself(target: Target) -> None:
    transactional_id, topic = TransactionalId(target), target.topic()
    producer = transactional_id.producer()
    transactional_id.begin(producer, [(topic.name, 0)])
    refused(transactional_id.init(producer=producer), ErrorCode.CONCURRENT_TRANSACTIONS, "at once")
    transactional_id.reached("CompleteAbort")
    refused(
        transactional_id.init(producer=(producer[0], producer[1] + 2)),
        ErrorCode.PRODUCER_FENCED,
        "an epoch that was never assigned",
    )
    answer = transactional_id.init(producer=(producer[0], producer[1] + 1))
    expect_equal((answer.error_code, answer.producer_epoch), (0, producer[1] + 2), "error, epoch")


@REQUIREMENTS.that(
    17, "after a transaction the next epoch is assigned as before the first one", source=COORDINATOR
)
def after_a_transaction(target: Target) -> None:
    for commits in (True, False):
        transactional_id, topic = TransactionalId(target), target.topic()
        producer = transactional_id.producer()
        transactional_id.begin(producer, [(topic.name, 0)])
        transactional_id.ended(producer, commits=commits)
        expect_equal(transactional_id.producer(), (producer[0], producer[1] + 1), "producer")
        expect_equal(transactional_id.described().transaction_state, "Empty", "state")
