"""Histories of migrations from ZooKeeper, clean and violating: rows for the table in `cases.py`."""

from collections.abc import Callable
from random import Random

from kraftsim.clients.events import RecordFailed
from kraftsim.clients.events_transactions import (
    TransactionBegun,
    TransactionEndAsked,
    TransactionErred,
    TransactionOffsetSent,
)
from kraftsim.events.event import Event
from kraftsim.events.runs import (
    ClientErrorsChecked,
    FaultInjected,
    OnlyRetriableErrorsExpected,
)
from kraftsim.migration.events import (
    MetadataCarriedOver,
    ZookeeperCompared,
    ZookeeperControllerClaimed,
)
from kraftsim.producer_ids.events import InitProducerIdRefused
from kraftsim.server.events import NodeStarted
from kraftsim.transactions.events import TransactionAbortForced
from kraftsim.zookeeper.events import ZookeeperControllerElected
from tests.analysis.event_factories import (
    acknowledged,
    allocated_by_quorum,
    committed,
    flushed,
    returned,
    said,
)
from tests.analysis.history import History, Row
from tests.analysis.metadata_log_cases import replicated
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, on

MIRRORS = "zookeeper-mirrors-log"
CARRIED = "metadata-carried-over"
RISE = "controller-epochs-rise"
PASSING = "only-retriable-errors"
EXPECTED = OnlyRetriableErrorsExpected(scenario="s")
CHECKED = ClientErrorsChecked(scenario="s", provoked_errors="")
UNKNOWN_MEMBER, ABORTABLE = 25, 120
TIMED_OUT, LOADING, OUT_OF_ORDER, NOT_LEADER, FENCED = 7, 14, 45, 6, 90
OTHER_RESULT = 48


def checked_errors(provoked_errors: str) -> Event:
    """The run checks errors, apart from some."""
    return ClientErrorsChecked(scenario="s", provoked_errors=provoked_errors)


def replaced() -> Event:
    """A fault replaces answers."""
    return FaultInjected(fault="request-fault", target="", trigger="")


def begun() -> Event:
    """A client begins a transaction."""
    return TransactionBegun(
        client_id="c", transactional_id="x", transaction="c/1", producer_id=1, producer_epoch=0
    )


def end_asked(*, is_commit: bool = True) -> Event:
    """It ends that transaction."""
    return TransactionEndAsked(
        client_id="c", transactional_id="x", transaction="c/1", is_commit=is_commit
    )


def abort_forced(producer_id: int = 1) -> Event:
    """The coordinator aborts it."""
    return TransactionAbortForced(
        transactional_id="x", producer_id=producer_id, producer_epoch=1, reason="timeout"
    )


def offset_sent() -> Event:
    """It sends an offset."""
    return TransactionOffsetSent(
        client_id="c",
        transaction="c/1",
        producer_id=1,
        producer_epoch=0,
        group_id="g",
        generation_id=1,
        topic="t",
        partition=0,
        offset=1,
    )


def compared(offset: int, what: str = "", *, controller: str = "a") -> ZookeeperCompared:
    """A comparison with ZooKeeper at an offset."""
    return ZookeeperCompared(
        controller=controller,
        offset=offset,
        differences=len(what.split(",")) if what else 0,
        what=what,
    )


def carried_over(what: str = "") -> MetadataCarriedOver:
    """A comparison of a log with what ZooKeeper had before."""
    return MetadataCarriedOver(
        controller="a", differences=len(what.split(",")) if what else 0, what=what
    )


def claimed(controller_epoch: int) -> ZookeeperControllerClaimed:
    """A KRaft controller takes /controller."""
    return ZookeeperControllerClaimed(controller_epoch=controller_epoch, kraft_controller_epoch=1)


def broker_elected(controller_epoch: int) -> ZookeeperControllerElected:
    """A broker takes /controller."""
    return ZookeeperControllerElected(controller_epoch=controller_epoch)


def started(release: str) -> NodeStarted:
    """A node of a release starts."""
    return NodeStarted(role="broker", node_id=1, release=release, cluster_id="c")


def refused(error_code: int) -> InitProducerIdRefused:
    """A broker returns no producer id."""
    return InitProducerIdRefused(error_code=error_code, client_id="c")


def failed(error_code: int) -> RecordFailed:
    """A client fails a record."""
    return RecordFailed(
        client_id="c", topic="t", partition=0, record_key="k", error_code=error_code, reason="r"
    )


def erred(error_code: int, transaction: str = "c/1") -> TransactionErred:
    """A transaction fails."""
    return TransactionErred(
        client_id="c",
        transactional_id="x",
        transaction=transaction,
        error_code=error_code,
        is_fatal=False,
    )


MIGRATION_ROWS: list[Row] = [
    (
        "a retriable error",
        PASSING,
        [
            *on("h", EXPECTED),
            *on("b", refused(LOADING), returned(1)),
            *on("c", acknowledged(0, "k"), failed(NOT_LEADER), erred(NOT_LEADER)),
        ],
        OK,
        5,
    ),
    (
        "no expectation was declared",
        PASSING,
        on("b", refused(OUT_OF_ORDER), failed(OUT_OF_ORDER)),
        VACUOUS,
        0,
    ),
    (
        "before the expectation was declared",
        PASSING,
        [*on("b", refused(OUT_OF_ORDER)), *on("h", EXPECTED), *on("b", returned(1))],
        OK,
        1,
    ),
    (
        "in every run, an error that nothing provoked",
        PASSING,
        [*on("h", CHECKED), *on("b", refused(OUT_OF_ORDER)), *on("c", failed(OUT_OF_ORDER))],
        VIOLATED,
        2,
        ("b.1.0", "c.1.0"),
    ),
    (
        "in every run, fenced producers",
        PASSING,
        [*on("h", CHECKED), *on("b", refused(FENCED)), *on("c", erred(FENCED), erred(ABORTABLE))],
        OK,
        3,
    ),
    (
        "a record of a transactional producer",
        PASSING,
        on("h", CHECKED, begun(), failed(OUT_OF_ORDER)),
        OK,
        1,
    ),
    (
        "the commit of a transaction that the coordinator has aborted",
        PASSING,
        on("h", CHECKED, started("4.3"), begun(), abort_forced(), end_asked(), erred(OTHER_RESULT)),
        OK,
        1,
    ),
    (
        "a commit fails with INVALID_TXN_STATE: others were aborted, by the coordinator or before",
        PASSING,
        on(
            "h",
            CHECKED,
            started("4.3"),
            abort_forced(),
            begun(),
            abort_forced(2),
            end_asked(),
            erred(OTHER_RESULT),
        ),
        VIOLATED,
        1,
        ("h.1.6",),
    ),
    (
        "an abort fails with INVALID_TXN_STATE",
        PASSING,
        on(
            "h",
            CHECKED,
            started("4.3"),
            begun(),
            abort_forced(),
            end_asked(is_commit=False),
            erred(OTHER_RESULT),
        ),
        VIOLATED,
        1,
        ("h.1.5",),
    ),
    (
        "a commit fails with INVALID_TXN_STATE in an upgrade",
        PASSING,
        on(
            "h", EXPECTED, started("4.3"), begun(), abort_forced(), end_asked(), erred(OTHER_RESULT)
        ),
        VIOLATED,
        1,
        ("h.1.5",),
    ),
    (
        "nodes write no events, and a commit fails with INVALID_TXN_STATE, then an abort",
        PASSING,
        [
            *on("h", CHECKED, begun(), end_asked(), erred(OTHER_RESULT)),
            *on("d", erred(OTHER_RESULT, "d/1")),
        ],
        VIOLATED,
        2,
        ("d.1.0",),
    ),
    (
        "a member that loses its group, with and without offsets",
        PASSING,
        on("h", CHECKED, erred(UNKNOWN_MEMBER), offset_sent(), erred(UNKNOWN_MEMBER)),
        VIOLATED,
        2,
        ("h.1.1",),
    ),
    (
        "what a scenario provokes, and a code that contains it",
        PASSING,
        on("h", checked_errors("10,45"), failed(OUT_OF_ORDER), failed(10), failed(4)),
        VIOLATED,
        3,
        ("h.1.3",),
    ),
    (
        "answers that a fault replaces",
        PASSING,
        on("h", CHECKED, failed(OUT_OF_ORDER), replaced(), failed(OUT_OF_ORDER)),
        VIOLATED,
        2,
        ("h.1.1",),
    ),
    (
        "fenced during an upgrade",
        PASSING,
        on("h", CHECKED, EXPECTED, erred(FENCED)),
        VIOLATED,
        1,
        ("h.1.2",),
    ),
    (
        "a release that is known to time out",
        PASSING,
        [*on("b", started("3.1")), *on("h", EXPECTED), *on("b", refused(TIMED_OUT))],
        OK,
        1,
    ),
    (
        "a release that is not known to time out",
        PASSING,
        [
            *on("b", started("3.5")),
            *on("a", started("3.1")),
            *on("h", EXPECTED),
            *on("b", refused(TIMED_OUT)),
        ],
        VIOLATED,
        1,
        ("b.1.1",),
        (("b.1.1",),),
    ),
    (
        "the next incarnation of a node has another release",
        PASSING,
        [
            ("b", 1, started("3.1")),
            ("b", 2, started("3.6")),
            ("h", EXPECTED),
            ("b", 2, refused(TIMED_OUT)),
        ],
        VIOLATED,
        1,
        ("b.2.1",),
        (("b.2.1",),),
    ),
    (
        "an error that is not retriable",
        PASSING,
        [
            *on("h", EXPECTED),
            *on("b", refused(OUT_OF_ORDER)),
            *on("c", failed(OUT_OF_ORDER), erred(FENCED)),
        ],
        VIOLATED,
        3,
        ("b.1.0", "c.1.0", "c.1.1"),
    ),
    (
        "ZooKeeper matches the log",
        MIRRORS,
        on("harness", compared(5), compared(9), compared(9, controller="b")),
        OK,
        3,
    ),
    (
        "a topic is not in ZooKeeper",
        MIRRORS,
        on("harness", compared(5), compared(9, "partition t-0,topic t")),
        VIOLATED,
        2,
        ("a/9",),
        (("harness.1.1",),),
    ),
    ("a log has all", CARRIED, on("harness", carried_over(), carried_over()), OK, 2),
    (
        "a second log lacks a topic",
        CARRIED,
        on("harness", carried_over(), carried_over("topic t")),
        VIOLATED,
        2,
        ("harness.1.1",),
        (("harness.1.1",),),
    ),
    (
        "controller epochs of brokers and of KRaft controllers, one known late",
        RISE,
        [
            *on("b", broker_elected(1)),
            *on("c", claimed(3)),
            *on("d", broker_elected(2)),
            *on("c", claimed(3)),
        ],
        OK,
        4,
    ),
    (
        "two controllers in one controller epoch",
        RISE,
        [*on("b", broker_elected(1), broker_elected(2)), *on("c", claimed(2))],
        VIOLATED,
        3,
        ("c.1.0",),
        (("b.1.1", "c.1.0"),),
    ),
    ("no comparison", MIRRORS, on("harness", said(0, 5, "x")), VACUOUS, 0),
]


def add_migration_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let a controller allocate blocks, and compare its log with ZooKeeper, mostly equal."""
    first_id = 1_000_000
    for step in range(random.randrange(1, 5)):
        last_id = first_id + 10
        for voter in ("controller-8", "controller-9"):
            history.emit(voter, replicated(first_id + 1, last_id))
            if not slip():
                history.emit(voter, flushed(last_id + 1))
        if not slip():
            history.emit("controller-9", committed(99, last_id + 1))
        history.emit("controller-9", allocated_by_quorum(first_id, last_id))
        history.emit(
            "harness", compared(step, "topic t" if slip() else "", controller="controller-9")
        )
        first_id = last_id
    add_error_events(history, random, slip)


def add_error_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let brokers of some releases refuse, and clients fail, mostly with retriable errors."""
    if random.random() < 0.5:
        history.emit("harness", checked_errors(random.choice(("", "45", "10,90"))))
    if not slip() and random.random() < 0.7:
        history.emit("harness", EXPECTED)
    for event in (begun(), abort_forced(), end_asked(), offset_sent(), replaced()):
        if random.random() < 0.2:
            history.emit("harness", event)
    for incarnation in (1, 2):
        if not slip():
            history.emit(
                "broker-8", started(random.choice(("3.1", "3.5"))), incarnation=incarnation
            )
        for _ in range(random.randrange(1, 4)):
            event = random.choice((refused, failed, erred))(
                random.choice((TIMED_OUT, OUT_OF_ORDER, FENCED, OTHER_RESULT))
                if slip()
                else LOADING
            )
            history.emit("broker-8", event, incarnation=incarnation)


def add_controller_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let brokers and KRaft controllers take /controller, and compare logs with what was before."""
    controller_epoch = 0
    for _ in range(random.randrange(1, 6)):
        controller_epoch += 0 if slip() else 1
        take = random.choice((claimed, broker_elected))
        history.emit(random.choice(("b-8", "c-8")), take(controller_epoch))
    history.emit("harness", carried_over("topic t" if slip() else ""))
