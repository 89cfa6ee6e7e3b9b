"""Histories in which producer ids, blocks and epochs are spent, with and without cause: rows for
the table in `cases.py`.
"""

from collections.abc import Callable
from random import Random

from kraftsim.clients.events_transactions import InitProducerIdSent, TransactionalIdTaken
from kraftsim.events.event import Event
from kraftsim.producer_ids.events import (
    ProducerIdBlockReceived,
    ProducerIdBlockRequested,
    ProducerIdReturned,
    ProducerIdSpent,
)
from kraftsim.producer_ids.invariants.spent_ids import (
    EXHAUSTED,
    IN_ORDER,
    LAST_GIVEN_EPOCH,
    NEW,
    WITH_CAUSE,
    WITH_NEED,
)
from kraftsim.transactions.events import (
    TransactionAbortForced,
    TransactionalIdExpired,
    TransactionLoaded,
    TransactionsLoaded,
    TransactionStateChanged,
    TransactionsUnloaded,
)
from kraftsim.transactions.invariants.epoch_bumps import NAME as BUMPED
from tests.analysis.history import History, Row
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, on

FAR = 5_000_000
"""Ids that no other part of a random history has."""


def block(first_id: int = FAR, size: int = 3) -> Event:
    """A broker receives a block."""
    return ProducerIdBlockReceived(first_producer_id=first_id, next_producer_id=first_id + size)


def returned(producer_id: int, transactional_id: str | None = None) -> Event:
    """InitProducerId returns an id."""
    return ProducerIdReturned(
        producer_id=producer_id, producer_epoch=0, fresh=True, transactional_id=transactional_id
    )


def spent(producer_id: int, reason: str = NEW, transactional_id: str | None = "spender") -> Event:
    """An id is taken for a transactional id."""
    return ProducerIdSpent(
        producer_id=producer_id, reason=reason, transactional_id=transactional_id
    )


def state(producer_epoch: int = 0, coordinator_epoch: int = 1) -> Event:
    """A coordinator has written a state."""
    return TransactionStateChanged(
        transactional_id="spender",
        producer_id=FAR,
        producer_epoch=producer_epoch,
        state="Empty",
        partitions="",
        coordinator_epoch=coordinator_epoch,
        partition=9,
        offset=0,
    )


def known(producer_epoch: int = 0, coordinator_epoch: int = 1) -> Event:
    """A coordinator has loaded a state."""
    return TransactionLoaded(
        transactional_id="spender",
        producer_id=FAR,
        producer_epoch=producer_epoch,
        state="Empty",
        partitions="",
        coordinator_epoch=coordinator_epoch,
        partition=9,
        record_offset=0,
    )


def loaded(coordinator_epoch: int = 1) -> Event:
    """It has loaded all of them."""
    return TransactionsLoaded(
        partition=9, coordinator_epoch=coordinator_epoch, transaction_count=1, next_offset=1
    )


def asked(producer_epoch: int, producer_id: int = FAR, client_id: str = "s") -> Event:
    """A producer asks for another epoch."""
    return InitProducerIdSent(
        client_id=client_id,
        transactional_id="spender",
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def got(producer_epoch: int, producer_id: int = FAR, client_id: str = "s") -> Event:
    """It gets one."""
    return TransactionalIdTaken(
        client_id=client_id,
        transactional_id="spender",
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def requested(last_producer_id: int) -> Event:
    """A broker asks for a block when it has taken an id."""
    return ProducerIdBlockRequested(broker_epoch=1, last_producer_id=last_producer_id)


REQUESTED = requested(-1)
UNLOADED = TransactionsUnloaded(partition=9, coordinator_epoch=1)
EXPIRED = TransactionalIdExpired(
    transactional_id="spender", producer_id=FAR, producer_epoch=0, partition=9, offset=1
)
FORCED = TransactionAbortForced(
    transactional_id="spender", producer_id=FAR, producer_epoch=1, reason="timeout"
)

SPENT_ROWS: list[Row] = [
    ("ids in turn", IN_ORDER,
     on("b", block(), returned(FAR), spent(FAR + 1), returned(FAR + 1, "spender"),
        returned(FAR + 2), block(FAR + 9), returned(FAR + 9)), OK, 4),
    ("an id is skipped", IN_ORDER, on("b", block(), returned(FAR), returned(FAR + 2)), VIOLATED, 2,
     ("b.1.2",), (("b.1.1", "b.1.2"),)),
    ("the first id is skipped", IN_ORDER, on("b", block(), returned(FAR + 1)), VIOLATED, 1,
     ("b.1.1",), (("b.1.1",),)),
    ("the rest of a block is skipped", IN_ORDER,
     on("b", block(), returned(FAR), block(FAR + 9), returned(FAR + 9)), VIOLATED, 2, ("b.1.3",)),
    ("a whole block is skipped", IN_ORDER,
     on("b", block(size=1), returned(FAR), block(FAR + 1), block(FAR + 9), returned(FAR + 9)),
     OK, 2),
    ("another process begins with its own block", IN_ORDER,
     [*on("b", block(), returned(FAR)), ("b", 2, block(FAR + 9)), ("b", 2, returned(FAR + 9))],
     OK, 2),
    ("ids without blocks", IN_ORDER, on("b", returned(FAR), returned(FAR + 5)), VACUOUS, 0),
    ("a block is begun before the next is asked for", WITH_NEED,
     on("b", REQUESTED, block(), returned(FAR), REQUESTED), OK, 2),
    ("a request that failed is repeated", WITH_NEED, on("b", REQUESTED, REQUESTED), OK, 2),
    ("another block than the one that is there", WITH_NEED, on("b", REQUESTED, block(), REQUESTED),
     VIOLATED, 2, ("b.1.2",), (("b.1.1", "b.1.2"),)),
    ("an empty block is no use", WITH_NEED, on("b", block(size=0), REQUESTED), OK, 1),
    ("an id of another block was taken", WITH_NEED,
     on("b", block(), block(FAR + 9), returned(FAR), REQUESTED), VIOLATED, 1, ("b.1.3",)),
    ("the id is returned after the request that it causes", WITH_NEED,
     on("b", block(), requested(FAR), returned(FAR), block(FAR + 3), requested(FAR + 2)), VIOLATED,
     2, ("b.1.4",), (("b.1.3", "b.1.4"),)),
    ("a block of one id", WITH_NEED, on("b", block(size=1), requested(FAR), returned(FAR)), OK, 1),
    ("a transactional id is new", WITH_CAUSE, on("b", spent(FAR), state()), OK, 1),
    ("two requests for a new transactional id", WITH_CAUSE,
     on("b", spent(FAR), spent(FAR + 1), state()), OK, 2),
    ("a known transactional id", WITH_CAUSE, on("b", state(), spent(FAR + 1)), VIOLATED, 1,
     ("b.1.1",), (("b.1.0", "b.1.1"),)),
    ("a loaded transactional id", WITH_CAUSE, on("b", known(), loaded(), spent(FAR + 1)), VIOLATED,
     1, ("b.1.2",)),
    ("it has expired", WITH_CAUSE, on("b", state(), EXPIRED, spent(FAR + 1)), OK, 1),
    ("it is unloaded", WITH_CAUSE, on("b", state(), UNLOADED, spent(FAR + 1)), OK, 1),
    ("it is not loaded again", WITH_CAUSE, on("b", state(), loaded(2), spent(FAR + 1)), OK, 1),
    ("another coordinator knew it", WITH_CAUSE, [("a", state()), ("b", spent(FAR + 1))], OK, 1),
    ("no epoch is left", WITH_CAUSE, on("b", state(LAST_GIVEN_EPOCH), spent(FAR + 1, EXHAUSTED)),
     OK, 1),
    ("an epoch is left", WITH_CAUSE, on("b", state(7), spent(FAR + 1, EXHAUSTED)), VIOLATED, 1,
     ("b.1.1",)),
    ("for a closed connection", WITH_CAUSE,
     on("b", state(), spent(FAR + 1, "closed connection", None)), VACUOUS, 0),
    ("the next epoch", BUMPED, on("c", asked(4), got(5)), OK, 1),
    ("the retry gets the next epoch, too", BUMPED, on("c", asked(4), asked(4), got(5)), OK, 1),
    ("each request bumps the epoch", BUMPED, on("c", asked(4), asked(4), got(6)), VIOLATED, 1,
     ("c.1.2",), (("c.1.1", "c.1.2"),)),
    ("a transaction is aborted in between", BUMPED, on("c", asked(4), FORCED, asked(4), got(6)), OK,
     1),
    ("one was aborted before", BUMPED, on("c", FORCED, asked(4), got(6)), VIOLATED, 1, ("c.1.2",)),
    ("another producer id", BUMPED, on("c", asked(4), got(6, producer_id=FAR + 1)), VACUOUS, 0),
    ("without an identity", BUMPED, on("c", asked(-1, producer_id=-1), got(6)), VACUOUS, 0),
    ("another client asked", BUMPED, on("c", asked(4, client_id="t"), got(6)), VACUOUS, 0),
]  # fmt: skip


def add_spent_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let brokers take ids, and a producer bump its epoch, mostly with need."""
    for number in range(random.randrange(1, 4)):
        first_id = FAR + 100 * number
        history.emit("b7", REQUESTED)
        for _ in range(2 if slip() else 1):
            history.emit("b7", block(first_id))
            if slip():
                history.emit("b7", random.choice((REQUESTED, requested(first_id))))
        for producer_id in range(first_id, first_id + 3):
            if slip():
                continue
            if random.random() < 0.3:
                if not slip():
                    history.emit("b7", EXPIRED)
                history.emit("b7", spent(producer_id, random.choice((NEW, EXHAUSTED))))
                history.emit("b7", state(LAST_GIVEN_EPOCH if slip() else 3))
            else:
                history.emit("b7", returned(producer_id))
    epoch = 0
    for _ in range(random.randrange(4)):
        for _ in range(random.randrange(1, 3)):
            history.emit("c", asked(epoch))
        if random.random() < 0.2:
            history.emit("b7", FORCED)
        epoch += 2 if slip() else 1
        history.emit("c", got(epoch))
