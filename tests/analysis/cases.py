"""Histories, clean and violating, with the expected result of each invariant: the table behind the
tests of both forms.

A row has the invariant, the events (node, event, or node, incarnation, event), the outcome, and the
keys of the violations.
"""

from typing import NamedTuple

from kraftsim.events.event import Event
from kraftsim.invariants.verdict import Outcome
from tests.analysis.broker_cases import BROKER_ROWS
from tests.analysis.cleaned_cases import CLEANED_ROWS
from tests.analysis.client_view_cases import CLIENT_VIEW_ROWS
from tests.analysis.connection_cases import CONNECTION_ROWS
from tests.analysis.coordinator_cases import COORDINATOR_ROWS
from tests.analysis.durable_metadata_cases import DURABLE_METADATA_ROWS
from tests.analysis.election_cases import ELECTION_ROWS, NS_PER_MS
from tests.analysis.epoch_cases import EPOCH_ROWS
from tests.analysis.event_factories import (
    acknowledged,
    allocated,
    appended,
    final_batch,
    final_log,
    final_record,
    received,
    registered,
    returned,
    sent,
    settled,
)
from tests.analysis.history import STEP_NS, History, LoggedEvent
from tests.analysis.joining_cases import JOINING_ROWS
from tests.analysis.member_cases import MEMBER_ROWS
from tests.analysis.metadata_log_cases import METADATA_LOG_ROWS
from tests.analysis.migration_cases import MIGRATION_ROWS
from tests.analysis.missing_first_batch_cases import OVERTAKEN_ROWS
from tests.analysis.owner_cases import ADMIN_ROWS, OWNER_ROWS
from tests.analysis.pending_cases import LATE_PENDING_ROWS, MINUTE_MS, PENDING_ROWS
from tests.analysis.quorum_cases import QUORUM_ROWS
from tests.analysis.quota_cases import QUOTA_ROWS
from tests.analysis.reading_cases import READING_ROWS
from tests.analysis.remote_cases import REMOTE_ROWS
from tests.analysis.replica_cases import REPLICA_ROWS
from tests.analysis.sequence_retry_cases import NEXT_ROWS, TURN_ROWS
from tests.analysis.share_cases import SHARE_ROWS
from tests.analysis.share_group_cases import SHARE_GROUP_ROWS
from tests.analysis.share_leader_cases import SHARE_LEADER_ROWS
from tests.analysis.share_state_cases import SHARE_STATE_ROWS
from tests.analysis.spent_cases import SPENT_ROWS
from tests.analysis.tiered_cases import TIERED_ROWS
from tests.analysis.topic_config_cases import TOPIC_CONFIG_ROWS
from tests.analysis.transaction_cases import TRANSACTION_ROWS
from tests.analysis.two_phase_cases import TWO_PHASE_ROWS
from tests.analysis.waste_cases import WASTE_ROWS

UNIQUE = "producer-id-unique"
DISJOINT = "producer-id-blocks-disjoint"
MONOTONIC = "next-producer-id-monotonic"
OWNED = "producer-id-inside-owned-block"
ONE_APPEND = "one-append-per-sequence"
SETTLES = "recovers-after-heal"
ONCE = "records-in-final-log-once"
PRESENT = "producer-id-block-to-current-incarnation"
ACKNOWLEDGED = "acknowledged-records-in-final-log"

A, B = (7, 0, 0), (7, 0, 5)
"""Producer id, epoch and base sequence of two batches."""
WITHOUT_ID = (-1, -1, 0)
"""As aiokafka writes without idempotence: no producer id, and yet a base sequence."""


class Case(NamedTuple):
    """One row."""

    name: str
    invariant: str
    events: list[LoggedEvent]
    outcome: Outcome
    examined: int
    keys: tuple[str, ...] = ()
    witnesses: tuple[tuple[str, ...], ...] = ()
    between_ms: int = 0
    """Time between two consecutive events; 0: one microsecond."""

    def history(self) -> History:
        """Return the events with envelopes."""
        history = History()
        for node, *rest in self.events:
            *incarnation, event = rest
            assert isinstance(event, Event)
            number = incarnation[0] if incarnation and isinstance(incarnation[0], int) else 1
            history.emit(
                node, event, incarnation=number, after_ns=max(STEP_NS, self.between_ms * NS_PER_MS)
            )
        return history


def broker(*events: Event) -> list[LoggedEvent]:
    return [("b", event) for event in events]


OK, VIOLATED, UNKNOWN, VACUOUS = Outcome.OK, Outcome.VIOLATED, Outcome.UNKNOWN, Outcome.VACUOUS

CASES = [
    # --- producer ids
    Case("each id once", UNIQUE, broker(returned(0), returned(1), returned(2)), OK, 3),
    Case(
        "an id twice",
        UNIQUE,
        [("a", returned(5)), ("b", returned(5))],
        VIOLATED,
        2,
        ("5",),
        (("a.1.0", "b.1.0"),),
    ),
    Case(
        "an id three times is one violation",
        UNIQUE,
        broker(returned(5), returned(4), returned(5), returned(5)),
        VIOLATED,
        4,
        ("5",),
        (("b.1.0", "b.1.2"),),
    ),
    Case(
        "two ids twice",
        UNIQUE,
        broker(returned(5), returned(4), returned(4), returned(5)),
        VIOLATED,
        4,
        ("4", "5"),
    ),
    Case(
        "an id returned to its owner again",
        UNIQUE,
        broker(returned(5), returned(5, fresh=False), returned(5, fresh=False)),
        OK,
        1,
    ),
    Case("only ids that were there before", UNIQUE, broker(returned(5, fresh=False)), VACUOUS, 0),
    # --- blocks
    Case(
        "blocks side by side",
        DISJOINT,
        broker(allocated(0, 1000), allocated(1000, 2000), allocated(5000, 6000)),
        OK,
        3,
    ),
    Case(
        "blocks in any order",
        DISJOINT,
        broker(allocated(2000, 3000), allocated(0, 1000), allocated(1000, 2000)),
        OK,
        3,
    ),
    Case("no blocks", DISJOINT, [], VACUOUS, 0),
    Case(
        "one id shared",
        DISJOINT,
        broker(allocated(0, 1000), allocated(999, 2000, broker_id=2)),
        VIOLATED,
        2,
        ("b.1.1",),
        (("b.1.0", "b.1.1"),),
    ),
    Case(
        "the same block twice",
        DISJOINT,
        [("a", allocated(0, 1000)), ("a", 2, allocated(0, 1000))],
        VIOLATED,
        2,
        ("a.2.0",),
        (("a.1.0", "a.2.0"),),
    ),
    Case(
        "a block inside an earlier one",
        DISJOINT,
        broker(allocated(0, 9000), allocated(9000, 9001), allocated(4000, 5000)),
        VIOLATED,
        3,
        ("b.1.2",),
    ),
    Case(
        "a block around two earlier ones",
        DISJOINT,
        broker(allocated(10, 20), allocated(30, 40), allocated(0, 50)),
        VIOLATED,
        3,
        ("b.1.2",),
    ),
    Case(
        "the earliest of several is named",
        DISJOINT,
        broker(allocated(30, 40), allocated(10, 20), allocated(0, 50), allocated(15, 35)),
        VIOLATED,
        4,
        ("b.1.2", "b.1.3"),
        (("b.1.0", "b.1.2"), ("b.1.0", "b.1.3")),
    ),
    Case(
        "an overlap behind a long block",
        DISJOINT,
        broker(allocated(0, 100), allocated(1, 2), allocated(90, 95)),
        VIOLATED,
        3,
        ("b.1.1", "b.1.2"),
    ),
    # --- the metadata log
    Case("next ids grow", MONOTONIC, broker(allocated(0, 1000), allocated(1000, 2000)), OK, 2),
    Case(
        "a next id again",
        MONOTONIC,
        [("a", allocated(0, 1000)), ("b", allocated(0, 1000))],
        VIOLATED,
        2,
        ("b.1.0",),
        (("a.1.0", "b.1.0"),),
    ),
    Case(
        "it goes back and continues from there",
        MONOTONIC,
        broker(allocated(0, 9), allocated(5, 8), allocated(8, 9)),
        VIOLATED,
        3,
        ("b.1.1",),
    ),
    Case(
        "what a broker allocates by itself",
        MONOTONIC,
        broker(allocated(0, 9), allocated(90, 99, given_by="itself"), allocated(9, 12)),
        OK,
        2,
    ),
    Case("nothing allocated", MONOTONIC, broker(received(0, 1000)), VACUOUS, 0),
    # --- owned blocks
    Case(
        "ids of own blocks",
        OWNED,
        broker(received(0, 3), returned(0), returned(2), received(5, 8), returned(5), returned(1)),
        OK,
        4,
    ),
    Case(
        "the first id after a block",
        OWNED,
        broker(received(0, 3), returned(3)),
        VIOLATED,
        1,
        ("b.1.1",),
        (("b.1.1",),),
    ),
    Case(
        "an id below all blocks",
        OWNED,
        broker(received(5, 8), returned(4)),
        VIOLATED,
        1,
        ("b.1.1",),
    ),
    Case(
        "an id between two blocks",
        OWNED,
        broker(received(0, 3), received(5, 8), returned(4), returned(7)),
        VIOLATED,
        2,
        ("b.1.2",),
    ),
    Case(
        "an id of another broker's block",
        OWNED,
        [("a", received(0, 3)), ("b", received(3, 6)), ("b", returned(1))],
        VIOLATED,
        1,
        ("b.1.1",),
    ),
    Case(
        "an id of a block of an earlier incarnation",
        OWNED,
        [("b", received(0, 3)), ("b", returned(0)), ("b", 2, returned(1))],
        VIOLATED,
        2,
        ("b.2.0",),
    ),
    Case("an existing id may be of any block", OWNED, broker(returned(7, fresh=False)), VACUOUS, 0),
    Case(
        "an id of a block received later",
        OWNED,
        broker(returned(1), received(0, 3), returned(2)),
        VIOLATED,
        2,
        ("b.1.0",),
    ),
    Case(
        "an id inside a long block behind a short one",
        OWNED,
        broker(received(0, 100), received(10, 20), returned(50)),
        OK,
        1,
    ),
    # --- one append per sequence
    Case(
        "each sequence once",
        ONE_APPEND,
        broker(appended(0, 4, A), appended(5, 5, B), appended(6, 6)),
        OK,
        2,
    ),
    Case("no producer ids", ONE_APPEND, broker(appended(0, 4), appended(5, 5)), VACUOUS, 0),
    Case(
        "sequences of producers without an id",
        ONE_APPEND,
        broker(appended(0, 4, WITHOUT_ID), appended(5, 9, WITHOUT_ID)),
        VACUOUS,
        0,
    ),
    Case(
        "a sequence twice",
        ONE_APPEND,
        broker(appended(0, 4, A), appended(5, 9, A)),
        VIOLATED,
        2,
        ("t/0/7/0/0",),
        (("b.1.0", "b.1.1"),),
    ),
    Case(
        "three appends are one violation",
        ONE_APPEND,
        broker(appended(0, 4, A), appended(5, 9, A), appended(10, 14, A)),
        VIOLATED,
        3,
        ("t/0/7/0/0",),
        (("b.1.0", "b.1.1"),),
    ),
    Case(
        "other epochs, partitions and topics are other sequences",
        ONE_APPEND,
        [
            *broker(
                appended(0, 0, A),
                appended(1, 1, (7, 1, 0)),
                appended(0, 0, A, partition=1),
                appended(0, 0, A, topic="u"),
            ),
        ],
        OK,
        4,
    ),
    Case(
        "lost and appended again at the same place",
        ONE_APPEND,
        [("b", appended(0, 4, A)), ("b", 2, appended(0, 4, A))],
        OK,
        2,
    ),
    Case(
        "lost, its place taken, appended again",
        ONE_APPEND,
        broker(appended(0, 0, A), appended(1, 1, B), appended(0, 0, B), appended(1, 1, A)),
        OK,
        4,
    ),
    Case(
        "overwritten by a batch that starts inside it",
        ONE_APPEND,
        broker(appended(0, 4, A), appended(3, 3), appended(4, 8, A)),
        OK,
        2,
    ),
    Case(
        "the batch below the lost one still exists",
        ONE_APPEND,
        broker(appended(0, 4, A), appended(5, 5, B), appended(5, 9, A)),
        VIOLATED,
        3,
        ("t/0/7/0/0",),
    ),
    Case(
        "a loss in another partition does not count",
        ONE_APPEND,
        broker(
            appended(0, 4, A),
            appended(0, 4, partition=1),
            appended(5, 9, A),
        ),
        VIOLATED,
        2,
        ("t/0/7/0/0",),
    ),
    Case(
        "lost once, then twice",
        ONE_APPEND,
        broker(
            appended(0, 4, A),
            appended(0, 4, A),
            appended(5, 9, A),
        ),
        VIOLATED,
        3,
        ("t/0/7/0/0",),
        (("b.1.1", "b.1.2"),),
    ),
    Case(
        "once in the final log",
        ONE_APPEND,
        [
            *broker(appended(0, 4, A)),
            ("final", final_batch(0, 4, A)),
            ("final", final_batch(5, 5, B)),
        ],
        OK,
        3,
    ),
    Case(
        "twice in the final log, independent of the events",
        ONE_APPEND,
        [
            ("b", appended(0, 4, A)),
            ("final", final_batch(0, 4, A)),
            ("final", final_batch(5, 9, A)),
            ("final", final_batch(10, 14, A)),
        ],
        VIOLATED,
        4,
        ("t/0/7/0/0",),
        (("final.1.0", "final.1.1"),),
    ),
    Case(
        "seen in the events before it is seen in the final log",
        ONE_APPEND,
        [
            *broker(appended(0, 4, A), appended(5, 9, A)),
            ("final", final_batch(0, 4, A)),
            ("final", final_batch(5, 9, A)),
        ],
        VIOLATED,
        4,
        ("t/0/7/0/0",),
        (("b.1.0", "b.1.1"),),
    ),
    Case(
        "replicas hold the same batch",
        ONE_APPEND,
        [("final", final_batch(0, 4, A)), ("final", final_batch(0, 4, A, broker="c"))],
        OK,
        2,
    ),
    # --- acknowledged records
    Case(
        "all there",
        ACKNOWLEDGED,
        [
            ("c", acknowledged(0, "x")),
            ("c", acknowledged(1, "y")),
            ("final", final_log(2, 2)),
            ("final", final_record(0, "x")),
            ("final", final_record(1, "y")),
        ],
        OK,
        2,
    ),
    Case(
        "nothing acknowledged",
        ACKNOWLEDGED,
        [("final", final_log(1, 1)), ("final", final_record(0, "x"))],
        VACUOUS,
        0,
    ),
    Case(
        "one lost at the end",
        ACKNOWLEDGED,
        [
            ("c", acknowledged(0, "x")),
            ("c", acknowledged(1, "y")),
            ("final", final_log(1, 1)),
            ("final", final_record(0, "x")),
        ],
        VIOLATED,
        2,
        ("t/0/y/1",),
        (("c.1.1",),),
    ),
    Case(
        "its offset taken by another record",
        ACKNOWLEDGED,
        [("c", acknowledged(0, "x")), ("final", final_log(1, 1)), ("final", final_record(0, "y"))],
        VIOLATED,
        1,
        ("t/0/x/0",),
    ),
    Case(
        "present, but at another offset",
        ACKNOWLEDGED,
        [("c", acknowledged(0, "x")), ("final", final_log(2, 1)), ("final", final_record(1, "x"))],
        VIOLATED,
        1,
        ("t/0/x/0",),
    ),
    Case(
        "acknowledged twice at two offsets, present once",
        ACKNOWLEDGED,
        [
            ("c", acknowledged(0, "x")),
            ("c", acknowledged(1, "x")),
            ("final", final_log(1, 1)),
            ("final", final_record(0, "x")),
        ],
        VIOLATED,
        2,
        ("t/0/x/1",),
    ),
    Case(
        "without an offset it may be anywhere",
        ACKNOWLEDGED,
        [
            ("c", acknowledged(-1, "x")),
            ("c", acknowledged(-1, "z")),
            ("final", final_log(3, 1)),
            ("final", final_record(2, "x")),
        ],
        VIOLATED,
        2,
        ("t/0/z/-1",),
    ),
    Case(
        "deleted by retention",
        ACKNOWLEDGED,
        [
            ("c", acknowledged(0, "x")),
            ("c", acknowledged(5, "y")),
            ("final", final_log(6, 1, log_start_offset=5)),
            ("final", final_record(5, "y")),
        ],
        OK,
        2,
    ),
    Case(
        "an empty final log",
        ACKNOWLEDGED,
        [("c", acknowledged(0, "x")), ("final", final_log(0, 0))],
        VIOLATED,
        1,
        ("t/0/x/0",),
    ),
    Case("the final log was not read", ACKNOWLEDGED, [("c", acknowledged(0, "x"))], UNKNOWN, 1),
    Case(
        "the final log was read without its records",
        ACKNOWLEDGED,
        [("c", acknowledged(0, "x")), ("final", final_log(1, -1))],
        UNKNOWN,
        1,
    ),
    Case(
        "one log lost a record, another was not read",
        ACKNOWLEDGED,
        [
            ("c", acknowledged(0, "x")),
            ("c", acknowledged(0, "x", topic="u")),
            ("final", final_log(0, 0)),
        ],
        VIOLATED,
        2,
        ("t/0/x/0",),
    ),
    Case(
        "hostile names",
        ACKNOWLEDGED,
        [
            ("c", acknowledged(0, "'; DROP VIEW x; --\u2028</script>", topic="a/b")),
            ("final", final_log(0, 0, topic="a/b")),
        ],
        VIOLATED,
        1,
        ("a/b/0/'; DROP VIEW x; --\u2028</script>/0",),
    ),
    # --- duplicate records
    Case(
        "each as often as it was sent",
        ONCE,
        [
            ("c", sent("x")),
            ("c", sent("y")),
            ("d", sent("y")),
            *(("final", final_record(offset, key)) for offset, key in enumerate("xyy")),
        ],
        OK,
        3,
    ),
    Case(
        "once more than it was sent",
        ONCE,
        [
            ("c", sent("x")),
            ("c", sent("y")),
            *(("final", final_record(offset, key)) for offset, key in enumerate("xyxx")),
        ],
        VIOLATED,
        4,
        ("b/t/0/x",),
        (("final.1.0", "final.1.3"),),
    ),
    Case(
        "once in each replica's log",
        ONCE,
        [
            ("c", sent("x")),
            ("final", final_record(0, "x", broker="broker-1")),
            ("final", final_record(0, "x", broker="broker-2")),
        ],
        OK,
        2,
    ),
    Case(
        "records of other clients",
        ONCE,
        [("c", sent("x")), ("final", final_record(0, "")), ("final", final_record(1, ""))],
        VACUOUS,
        0,
    ),
    # --- blocks and incarnations
    Case(
        "a block for each incarnation",
        PRESENT,
        [
            ("a", registered(1)),
            ("a", allocated(0, 10)),
            ("a", registered(11)),
            ("a", allocated(10, 20, 1, 11)),
        ],
        OK,
        2,
    ),
    Case(
        "a block for an earlier incarnation",
        PRESENT,
        [("a", registered(1)), ("a", registered(5)), ("a", registered(7)), ("a", allocated(0, 10))],
        VIOLATED,
        1,
        ("10",),
        (("a.1.1", "a.1.3"),),
    ),
    Case(
        "a block allocated before",
        PRESENT,
        [("a", registered(1)), ("a", registered(15)), ("a", allocated(0, 10))],
        OK,
        1,
    ),
    Case(
        "another broker registered",
        PRESENT,
        [("a", registered(1)), ("a", registered(5, broker_id=2)), ("a", allocated(0, 10))],
        OK,
        1,
    ),
    # --- liveness
    Case(
        "all in time",
        SETTLES,
        [("h", settled("leader", 400)), ("h", settled("brokers", 10_000))],
        OK,
        2,
    ),
    Case(
        "never",
        SETTLES,
        [("h", settled("leader", 400)), ("h", settled("brokers", 10_000, is_settled=False))],
        VIOLATED,
        2,
        ("h.1.1",),
        (("h.1.1",),),
    ),
    Case(
        "too late",
        SETTLES,
        [("h", settled("leader", 10_001))],
        VIOLATED,
        1,
        ("h.1.0",),
        (("h.1.0",),),
    ),
    Case("a run without a second phase", SETTLES, [("c", acknowledged(0, "x"))], VACUOUS, 0),
    # --- the quorum of controllers
    *(
        Case(*row)
        for row in (
            *QUORUM_ROWS,
            *REPLICA_ROWS,
            *CLEANED_ROWS,
            *MIGRATION_ROWS,
            *TRANSACTION_ROWS,
            *EPOCH_ROWS,
            *COORDINATOR_ROWS,
        )
    ),
    *(
        Case(*row)
        for row in (
            *TIERED_ROWS,
            *CONNECTION_ROWS,
            *METADATA_LOG_ROWS,
            *DURABLE_METADATA_ROWS,
            *BROKER_ROWS,
            *ELECTION_ROWS,
        )
    ),
    *(
        Case(*row)
        for row in (*TURN_ROWS, *NEXT_ROWS, *JOINING_ROWS, *READING_ROWS, *OVERTAKEN_ROWS)
    ),
    *(
        Case(*row)
        for row in (
            *CLIENT_VIEW_ROWS,
            *MEMBER_ROWS,
            *SHARE_GROUP_ROWS,
            *OWNER_ROWS,
            *ADMIN_ROWS,
            *WASTE_ROWS,
            *TWO_PHASE_ROWS,
            *SHARE_ROWS,
        )
    ),
    *(
        Case(*row)
        for row in (
            *SHARE_STATE_ROWS,
            *PENDING_ROWS,
            *SPENT_ROWS,
            *REMOTE_ROWS,
            *QUOTA_ROWS,
            *TOPIC_CONFIG_ROWS,
            *SHARE_LEADER_ROWS,
        )
    ),
    *(Case(*row) for row in SHARE_STATE_ROWS),
    *(Case(*row)._replace(between_ms=MINUTE_MS) for row in LATE_PENDING_ROWS),
]
