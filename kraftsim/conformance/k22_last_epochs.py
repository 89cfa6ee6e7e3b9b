"""The last epochs of a producer id: whose epochs are used up gets another id, and the epoch that is
reserved for fencing is returned to no producer.

InitProducerId raises the epoch by one, and a connection takes requests before the first of them is
answered: one node of Apache Kafka is at the last epoch after two to three seconds.
Source: KIP-360, KIP-890; TransactionMetadata.isEpochExhausted; KAFKA-19367, KAFKA-20090.
"""

import time

from kraftsim.conformance.expect import Inapplicable, expect, expect_equal, expect_error
from kraftsim.conformance.k26_end_txn_bump import version_of
from kraftsim.conformance.peer import joined, request_bytes
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.transactional_id import (
    INIT_VERSION,
    TIMEOUT_MS,
    Producer,
    TransactionalId,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.requests import decode_response

REQUIREMENTS = Requirements("transactions", 14, "The last epochs of a producer id")
LAST_EPOCH = 32766
"""32767 is the coordinator's own, to fence the producer with."""
REQUESTS_AT_ONCE = 512
"""Few enough for the responses to fit into the buffers of the connection."""
JUDGED_AFTER_SECONDS = 2.0
WORTH_SECONDS = 30.0
"""A cluster that replicates each epoch to slow disks would take minutes."""


def _at_last_epoch(target: Target) -> tuple[TransactionalId, Producer]:
    """A transactional id whose producer has the last epoch.

    Raises Inapplicable if the node is too slow for that.
    """
    transactional_id = TransactionalId(target)
    producer_id, epoch = transactional_id.producer()
    asked = InitProducerIdRequest(
        transactional_id=transactional_id.name, transaction_timeout_ms=TIMEOUT_MS
    )
    first_epoch, started = epoch, time.monotonic()
    with target.peer(transactional_id.address) as peer:
        while epoch < LAST_EPOCH:
            count = min(REQUESTS_AT_ONCE, LAST_EPOCH - epoch)
            peer.send_bytes(
                joined([request_bytes(asked, INIT_VERSION, number) for number in range(count)])
            )
            frames = [peer.receive_frame() for _ in range(count)]
            epoch += count
            _, answer = decode_response(ApiKey.INIT_PRODUCER_ID, INIT_VERSION, frames[-1])
            assert isinstance(answer, InitProducerIdResponse), "InitProducerId has the response one"
            returned = (answer.error_code, answer.producer_id, answer.producer_epoch)
            expect_equal(returned, (0, producer_id, epoch), "error, id, epoch of InitProducerId")
            _expect_worth(epoch - first_epoch, time.monotonic() - started)
    return transactional_id, (producer_id, epoch)


def _expect_worth(count: int, seconds: float) -> None:
    needed_seconds = LAST_EPOCH / count * seconds
    if seconds > JUDGED_AFTER_SECONDS and needed_seconds > WORTH_SECONDS:
        raise Inapplicable(
            f"{LAST_EPOCH} epochs would take {needed_seconds:.0f} s: {count} took {seconds:.1f} s"
        )


def _interrupted(target: Target) -> tuple[TransactionalId, Producer]:
    """A producer at its last epoch, whose open transaction its coordinator has aborted."""
    transactional_id, producer = _at_last_epoch(target)
    transactional_id.begin(producer, [(target.topic().name, 0)])
    expect_error(
        transactional_id.init().error_code,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        "InitProducerId while a transaction of the last epoch is open",
    )
    transactional_id.reached("CompleteAbort")
    return transactional_id, producer


def _expect_fresh(fresh: Producer, producer: Producer, what: str, last_epoch: int = 0) -> None:
    expect(fresh[0] != producer[0], f"{what} returns the exhausted producer id {producer[0]}")
    expect(fresh[1] <= last_epoch, f"{what} returns epoch {fresh[1]} of another producer id")


@REQUIREMENTS.that(
    1,
    f"in the last epoch, {LAST_EPOCH}, InitProducerId aborts an open transaction, and the retry "
    "returns another producer id",
    source="KIP-360; KAFKA-19367",
)
def restarted(target: Target) -> None:
    """Since 4.3 the abort has assigned the other id already; the retry raises its epoch to 1."""
    transactional_id, producer = _interrupted(target)
    fresh = transactional_id.producer()
    _expect_fresh(fresh, producer, "InitProducerId", last_epoch=1)
    transactional_id.begin(fresh, [(target.topic().name, 0)])
    transactional_id.ended(fresh, commits=True)


@REQUIREMENTS.that(
    2,
    "a producer that aborts a transaction of its last epoch after its coordinator has gets another "
    "producer id with epoch 0, and not the reserved epoch",
    source="KAFKA-20090",
    since="4.3",
)
def aborts_after_its_coordinator(target: Target) -> None:
    version = version_of(target)
    transactional_id, producer = _interrupted(target)
    answer = transactional_id.end(producer, version, commits=False)
    expect_error(answer.error_code, ErrorCode.NONE, "EndTxn after the abort by the coordinator")
    fresh = (answer.producer_id, answer.producer_epoch)
    _expect_fresh(fresh, producer, "EndTxn")
    transactional_id.begin(fresh, [(target.topic().name, 0)])
    transactional_id.ended(fresh, version, commits=True)
