"""Histories with the range of KIP-758 in which a leader appends a later batch of a producer before
its first one: what may be missing.
"""

from kraftsim.clients.events import RecordReportedDuplicate
from kraftsim.events.event import Event
from kraftsim.invariants.verdict import Outcome
from tests.analysis.event_factories import acknowledged, appended, final_log, final_record
from tests.analysis.history import LoggedEvent, Row
from tests.analysis.replica_cases import EVERYWHERE, IN_FINAL_LOG, ONE, in_sync, on

OK, VIOLATED = Outcome.OK, Outcome.VIOLATED
END = 2**31


def called(sequence: int, key: str = "k", *, epoch: int = 0, topic: str = "t") -> Event:
    """A client received error 46 for the batch of producer 7 that contains the record."""
    return RecordReportedDuplicate(
        client_id="c",
        topic=topic,
        partition=0,
        record_key=key,
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def without(
    *events: Event, key: str = "k", offset: int = -1, replicas: tuple[str, ...] = ()
) -> list[LoggedEvent]:
    """A record was acknowledged, and the final log has only another one; the replicas are in
    sync.
    """
    acknowledgement = acknowledged(offset, key)
    return [
        *on(ONE, *events),
        ("x", acknowledgement),
        *in_sync(*replicas),
        *on("final", final_log(1, 1), final_record(0, "other")),
    ]


LOST: tuple[tuple[str, ...], tuple[tuple[str, ...], ...]] = (("t/0/k/-1",), (("x.1.0",),))

OVERTAKEN_ROWS: list[Row] = [
    (
        "a batch before the first one of its producer",
        IN_FINAL_LOG,
        without(appended(0, 0, (7, 0, 2)), called(0)),
        OK,
        1,
    ),
    (
        "it is reported as a duplicate before that",
        IN_FINAL_LOG,
        without(called(1), appended(0, 0, (7, 0, 2))),
        OK,
        1,
    ),
    (
        "across the wrap of the sequence numbers",
        IN_FINAL_LOG,
        without(appended(0, 0, (7, 0, 1)), called(END - 3)),
        OK,
        1,
    ),
    (
        "the first batch itself",
        IN_FINAL_LOG,
        without(appended(0, 0, (7, 0, 2)), called(2)),
        VIOLATED,
        1,
        *LOST,
    ),
    (
        "a batch after the first one",
        IN_FINAL_LOG,
        without(appended(0, 0, (7, 0, 2)), appended(1, 1, (7, 0, 5)), called(3)),
        VIOLATED,
        1,
        *LOST,
    ),
    (
        "more than 2^30 before it",
        IN_FINAL_LOG,
        without(appended(0, 0, (7, 0, 0)), called(END - 2**30 - 1)),
        VIOLATED,
        1,
        *LOST,
    ),
    (
        "2^30 before it",
        IN_FINAL_LOG,
        without(appended(0, 0, (7, 0, 0)), called(END - 2**30)),
        OK,
        1,
    ),
    (
        "a producer of which nothing was appended",
        IN_FINAL_LOG,
        without(appended(0, 0, (8, 0, 2)), called(0)),
        VIOLATED,
        1,
        *LOST,
    ),
    (
        "another epoch",
        IN_FINAL_LOG,
        without(appended(0, 0, (7, 0, 2)), called(0, epoch=1)),
        VIOLATED,
        1,
        *LOST,
    ),
    (
        "another topic",
        IN_FINAL_LOG,
        without(appended(0, 0, (7, 0, 2), topic="u"), called(0, topic="u")),
        VIOLATED,
        1,
        *LOST,
    ),
    (
        "another partition",
        IN_FINAL_LOG,
        without(appended(0, 0, (7, 0, 2), partition=1), called(0)),
        VIOLATED,
        1,
        *LOST,
    ),
    (
        "another record",
        IN_FINAL_LOG,
        without(appended(0, 0, (7, 0, 2)), called(0, "other")),
        VIOLATED,
        1,
        *LOST,
    ),
    (
        "nothing was reported as a duplicate",
        IN_FINAL_LOG,
        without(appended(0, 0, (7, 0, 2))),
        VIOLATED,
        1,
        *LOST,
    ),
    (
        "an offset was returned",
        IN_FINAL_LOG,
        without(appended(0, 0, (7, 0, 2)), called(0), offset=3),
        VIOLATED,
        1,
        ("t/0/k/3",),
        (("x.1.0",),),
    ),
    (
        "on every replica",
        EVERYWHERE,
        without(appended(0, 0, (7, 0, 2)), called(0), replicas=("b",)),
        OK,
        1,
    ),
    (
        "on every replica, after the first one",
        EVERYWHERE,
        without(appended(0, 0, (7, 0, 2)), called(3), replicas=("b",)),
        VIOLATED,
        1,
        ("b/t/0/k/-1",),
        (("x.1.0",),),
    ),
]
