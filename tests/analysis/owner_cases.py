"""Histories of producers that own a transactional id, and of what checkers of client histories
found: rows for the table in `cases.py`.
"""

from collections.abc import Callable
from random import Random

from kraftsim.clients.events import (
    BranchRead,
    HistoryAnomalyFound,
    HistoryChecked,
    MetadataChangeAnswered,
    MetadataChangeSent,
)
from kraftsim.clients.events_transactions import (
    InitProducerIdSent,
    TransactionalIdTaken,
    TransactionErred,
)
from kraftsim.events.event import Event
from kraftsim.metadata.events import ConfigChanged, ControllerElected, TopicCreated
from kraftsim.partitions.events import LeaderElected
from kraftsim.producer_ids.events import InitProducerIdRefused, ProducerIdReturned
from kraftsim.transactions.events import TransactionAbortForced, TransactionsLoaded
from tests.analysis.history import History, Row
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, on

OWNER = "rightful-owner-not-fenced"
EXPLAINED = "client-histories-explained"
TOTAL = "bank-total-constant"
PAST_EPOCH, FENCED, OUT_OF_ORDER = 47, 90, 45


def asks(client_id: str = "c", identity: tuple[int, int] = (-1, -1), name: str = "x") -> Event:
    """A producer sends InitProducerId."""
    return InitProducerIdSent(
        client_id=client_id,
        transactional_id=name,
        producer_id=identity[0],
        producer_epoch=identity[1],
    )


def takes(client_id: str = "c", epoch: int = 0, name: str = "x") -> Event:
    """It has initialised its transactional id."""
    return TransactionalIdTaken(
        client_id=client_id, transactional_id=name, producer_id=5, producer_epoch=epoch
    )


def errs(client_id: str = "c", error_code: int = FENCED, name: str = "x") -> Event:
    """It gets an error."""
    return TransactionErred(
        client_id=client_id,
        transactional_id=name,
        transaction=f"{client_id}/1",
        error_code=error_code,
        is_fatal=True,
    )


def answered(client_id: str = "c", epoch: int = 0, name: str = "x") -> Event:
    """A coordinator answers it."""
    return ProducerIdReturned(
        producer_id=5,
        producer_epoch=epoch,
        fresh=False,
        transactional_id=name,
        client_id=client_id,
    )


def rejected(client_id: str = "c", name: str = "x") -> Event:
    """A coordinator refuses it."""
    return InitProducerIdRefused(error_code=51, transactional_id=name, client_id=client_id)


def forced(name: str = "x") -> Event:
    """A coordinator aborts its transaction."""
    return TransactionAbortForced(
        transactional_id=name, producer_id=5, producer_epoch=0, reason="timeout"
    )


def loads() -> Event:
    """A broker becomes the coordinator of some transactional ids."""
    return TransactionsLoaded(partition=0, coordinator_epoch=1, transaction_count=1, next_offset=9)


def leads() -> Event:
    """It becomes the leader of their partition before."""
    return LeaderElected(topic="__transaction_state", partition=0, leader_epoch=1, next_offset=0)


def checked(operations: int = 3) -> Event:
    """A checker has read a history."""
    return HistoryChecked(workload="w", model="kafka", operation_count=operations)


def found(key: str = "a") -> Event:
    """It has found something."""
    return HistoryAnomalyFound(workload="w", anomaly="G1a", key=key, witness="T1 read 1")


def branch(total: int = 500, transfer: int = 1, number: int = 0) -> Event:
    """A reader has read a branch of the bank."""
    return BranchRead(
        client_id="r", branch=number, transfer=transfer, total=total, expected_total=500
    )


OWNED = (asks(), takes())

OWNER_ROWS: list[Row] = [
    ("an owner without a cause", OWNER, on("c", *OWNED, errs()), VIOLATED, 1, ("c.1.2",),
     (("c.1.1", "c.1.2"),)),
    ("from the leader of a partition", OWNER, on("c", *OWNED, errs(error_code=PAST_EPOCH)),
     VIOLATED, 1, ("c.1.2",)),
    ("another error", OWNER, on("c", *OWNED, errs(error_code=OUT_OF_ORDER)), OK, 1),
    ("a producer that does not own the id yet", OWNER, on("c", asks(), errs()), OK, 1),
    ("a producer of which no request is known", OWNER, on("c", takes(), errs()), VACUOUS, 0),
    ("another producer asked for the id", OWNER,
     [*on("c", *OWNED), *on("d", asks("d")), *on("c", errs())], OK, 1),
    ("another producer asked before", OWNER,
     [*on("d", asks("d")), *on("c", *OWNED, errs())], VIOLATED, 1, ("c.1.2",)),
    ("a request of another producer is answered late", OWNER,
     [*on("d", asks("d")), *on("c", *OWNED), *on("b", rejected("d")), *on("c", errs())], OK, 1),
    ("another producer asked for another id", OWNER,
     [*on("c", *OWNED), *on("d", asks("d", name="y")), *on("c", errs())], VIOLATED, 1,
     ("c.1.2",)),
    ("its transaction timed out", OWNER,
     [*on("c", *OWNED), *on("b", forced()), *on("c", errs())], OK, 1),
    ("its own initialisation aborted the transaction before", OWNER,
     [*on("c", asks()), *on("b", forced()), *on("c", takes(), errs())], VIOLATED, 1, ("c.1.2",)),
    ("it asked twice without an identity", OWNER,
     [*on("c", asks(), asks(), takes(), errs())], OK, 1),
    ("one request was answered twice", OWNER,
     [*on("c", asks()), *on("b", answered()), *on("c", takes()), *on("b", answered(epoch=1)),
      *on("c", errs())], OK, 1),
    ("a retry of a bump", OWNER,
     on("c", *OWNED, asks(identity=(5, 0)), asks(identity=(5, 0)), errs()), VIOLATED, 1,
     ("c.1.4",)),
    ("a retry of a bump after a failover", OWNER,
     [*on("c", *OWNED, asks(identity=(5, 0))), *on("b", loads()),
      *on("c", asks(identity=(5, 0)), errs())], OK, 1),
    ("two bumps, and a failover before both", OWNER,
     [*on("b", loads()), *on("c", *OWNED, asks(identity=(5, 0)), asks(identity=(5, 0)), errs())],
     VIOLATED, 1, ("c.1.4",)),
    ("bumps of two identities", OWNER,
     [*on("c", *OWNED, asks(identity=(5, 0))), *on("b", loads()),
      *on("c", asks(identity=(5, 1)), errs())], VIOLATED, 1, ("c.1.4",)),
    ("a clean history", EXPLAINED, on("h", checked(3), checked(4)), OK, 7),
    ("an anomaly", EXPLAINED, on("h", checked(), found(), found("b")), VIOLATED, 3,
     ("h.1.1", "h.1.2"), (("h.1.1",), ("h.1.2",))),
    ("an empty history", EXPLAINED, on("h", checked(0)), VACUOUS, 0),
    ("a constant total", TOTAL, on("h", branch(), branch(transfer=2)), OK, 2),
    ("another total, read twice", TOTAL,
     on("h", branch(), branch(490, 2), branch(490, 2), branch(510, 2, 1)), VIOLATED, 4,
     ("0/2/490", "1/2/510"), (("h.1.1",), ("h.1.3",))),
]  # fmt: skip


def add_owner_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let two producers share a transactional id, mostly with a cause for each fencing."""
    for number in range(random.randrange(1, 6)):
        client_id = random.choice(("c", "d"))
        history.emit(client_id, asks(client_id))
        if random.random() < 0.8:
            history.emit("b", random.choice((answered, rejected))(client_id))
        if random.random() < 0.8:
            history.emit(client_id, takes(client_id))
        for _ in range(random.randrange(3)):
            history.emit(client_id, asks(client_id, (5, number)))
            if random.random() < 0.3:
                cause = random.choice((loads, forced, answered))
                if cause is loads and not slip():
                    history.emit("b", leads())
                history.emit("b", cause())
        if slip() or random.random() < 0.2:
            history.emit(client_id, errs(client_id, random.choice((PAST_EPOCH, FENCED, 45))))
    history.emit("h", checked(random.randrange(1, 3)))
    if slip():
        history.emit("h", found())
    for transfer in range(random.randrange(4)):
        history.emit("h", branch(random.choice((490, 510)) if slip() else 500, transfer))


# Changes of metadata, and the answers to them
# --------------------------------------------------------------------------------------------------

ADMIN = "admin-answers-in-metadata-log"
EXISTS, NOT_CONTROLLER = 36, 41


def changes(
    request: int = 1, value: str | None = None, *, config: str = "", topic: str = "t"
) -> Event:
    """An administrator sends a change."""
    return MetadataChangeSent(
        client_id="a", request=request, topic=topic, config_name=config, config_value=value
    )


def gets(request: int = 1, error_code: int = 0, *, topic: str = "t") -> Event:
    """It gets an answer."""
    return MetadataChangeAnswered(
        client_id="a", request=request, topic=topic, error_code=error_code
    )


def logged(value: str | None = None, *, config: str = "", topic: str = "t") -> Event:
    """The metadata log has a topic, or a configuration of it."""
    if not config:
        return TopicCreated(topic=topic, topic_id="id", partition_count=1)
    return ConfigChanged(
        resource_type=2, resource_name=topic, name=config, value=value, is_removed=value is None
    )


def elected() -> Event:
    """A controller is elected."""
    return ControllerElected(leader_epoch=5, epoch_start_offset=0)


AGE = "retention.ms"
ADMIN_ROWS: list[Row] = [
    ("a topic is created before the answer", ADMIN, on("a", changes(), logged(), gets()), OK, 1),
    ("and after it", ADMIN, on("a", changes(), gets(), logged()), VIOLATED, 1, ("a/1/t/",),
     (("a.1.0", "a.1.1"),)),
    ("it was there before", ADMIN, on("a", logged(), changes(), gets()), VIOLATED, 1,
     ("a/1/t/",)),
    ("it is created twice", ADMIN, on("a", changes(), logged(), logged(), gets()), VIOLATED, 1,
     ("a/1/t/",)),
    ("it exists, as the answer says", ADMIN, on("a", logged(), changes(), gets(1, EXISTS)), OK, 1),
    ("it does not exist", ADMIN, on("a", changes(), gets(1, EXISTS)), VIOLATED, 1, ("a/1/t/",)),
    ("a request without an answer may have created it", ADMIN,
     on("a", changes(), changes(2), gets(2, EXISTS)), OK, 1),
    ("a request without an answer may have set the value", ADMIN,
     on("a", changes(1, "5", config=AGE), changes(2, "5", config=AGE), gets(2)), OK, 1),
    ("a broker may have forwarded the request to two controllers", ADMIN,
     on("a", changes(1, "5", config=AGE), elected(), gets()), OK, 1),
    ("but a controller was elected before the request", ADMIN,
     on("a", elected(), changes(1, "5", config=AGE), gets()), VIOLATED, 1, (f"a/1/t/{AGE}",)),
    ("a request without an answer asked for another value", ADMIN,
     on("a", changes(1, "6", config=AGE), changes(2, "5", config=AGE), gets(2)), VIOLATED, 1,
     (f"a/2/t/{AGE}",)),
    ("an answer says that it was created, and an earlier request had none", ADMIN,
     on("a", changes(), changes(2), gets(2)), VIOLATED, 1, ("a/2/t/",)),
    ("a retriable error promises nothing", ADMIN, on("a", changes(), gets(1, NOT_CONTROLLER)),
     VACUOUS, 0),
    ("a configuration is set", ADMIN,
     on("a", changes(1, "5", config=AGE), logged("5", config=AGE), gets()), OK, 1),
    ("to another value", ADMIN,
     on("a", changes(1, "5", config=AGE), logged("6", config=AGE), gets()), VIOLATED, 1,
     (f"a/1/t/{AGE}",)),
    ("it had the value already", ADMIN,
     on("a", logged("5", config=AGE), changes(1, "5", config=AGE), gets()), OK, 1),
    ("it had the value, and another one since", ADMIN,
     on("a", logged("5", config=AGE), logged("6", config=AGE), changes(1, "5", config=AGE),
        gets()), VIOLATED, 1, (f"a/1/t/{AGE}",)),
    ("another request sets another value meanwhile", ADMIN,
     on("a", changes(1, "5", config=AGE), logged("5", config=AGE), logged("6", config=AGE),
        gets()), OK, 1),
    ("a configuration that never was is deleted", ADMIN,
     on("a", changes(1, config=AGE), gets()), OK, 1),
    ("a configuration is not deleted", ADMIN,
     on("a", logged("5", config=AGE), changes(1, config=AGE), gets()), VIOLATED, 1,
     (f"a/1/t/{AGE}",)),
    ("of another topic", ADMIN,
     on("a", changes(1, "5", config=AGE), logged("5", config=AGE, topic="u"), gets()), VIOLATED,
     1, (f"a/1/t/{AGE}",)),
]  # fmt: skip


def add_admin_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let an administrator create topics and set configurations, which are mostly logged."""
    for request in range(random.randrange(6)):
        topic, config = random.choice(("t", "u")), random.choice(("", AGE))
        value = random.choice((None, "5", "6")) if config else None
        history.emit("a", changes(request, value, config=config, topic=topic))
        if random.random() < 0.1:
            history.emit("c", elected())
        if not slip() and random.random() < 0.9:
            history.emit("c", logged("7" if slip() else value, config=config, topic=topic))
        history.emit("a", gets(request, EXISTS if random.random() < 0.2 else 0, topic=topic))
