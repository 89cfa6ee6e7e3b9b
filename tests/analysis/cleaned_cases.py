"""Histories in which logs are compacted: what may be gone from them, and what may not."""

from kraftsim.events.event import Event
from kraftsim.events.nodes import SegmentsCleaned
from kraftsim.invariants.verdict import Outcome
from tests.analysis.happenings import acknowledged, appended, final_batch, final_log, final_record
from tests.analysis.replica_cases import EQUAL, EVERYWHERE, IN_FINAL_LOG, MATCHING, ONE, TWO, Row, copied, in_sync, log_of, on

OK, VIOLATED, VACUOUS = Outcome.OK, Outcome.VIOLATED, Outcome.VACUOUS


def cleaned(until: int, *, topic: str = "t", partition: int = 0) -> Event:
    return SegmentsCleaned(topic=topic, partition=partition, first_offset=0, next_offset=until, segment_count=3)


CLEANED_ROWS: list[Row] = [
    (
        "a later record of its key stands for it",
        IN_FINAL_LOG,
        [*on(ONE, cleaned(5)), ("x", acknowledged(0, "k")), *on("final", final_log(9, 1), final_record(7, "k"))],
        OK,
        1,
    ),
    (
        "an earlier one does not",
        IN_FINAL_LOG,
        [*on(ONE, cleaned(5)), ("x", acknowledged(4, "k")), *on("final", final_log(9, 1), final_record(3, "k"))],
        VIOLATED,
        1,
        ("t/0/k/4",),
        (("x.1.0",),),
    ),
    (
        "nor one of another key",
        IN_FINAL_LOG,
        [*on(ONE, cleaned(5)), ("x", acknowledged(4, "k")), *on("final", final_log(9, 1), final_record(7, "l"))],
        VIOLATED,
        1,
        ("t/0/k/4",),
        (("x.1.0",),),
    ),
    (
        "nothing goes where nobody has cleaned",
        IN_FINAL_LOG,
        [*on(ONE, cleaned(5), cleaned(9, partition=1)), ("x", acknowledged(5, "k")), *on("final", final_log(9, 1), final_record(7, "k"))],
        VIOLATED,
        1,
        ("t/0/k/5",),
        (("x.1.0",),),
    ),
    (
        "on each replica a later one, or itself",
        EVERYWHERE,
        [
            *on(ONE, cleaned(5)),
            *in_sync("b", "c", "d"),
            ("x", acknowledged(0, "k")),
            *on("final", log_of("b", 9), final_record(7, "k"), log_of("c", 9), final_record(0, "k", broker="c"), log_of("d", 9)),
        ],
        VIOLATED,
        3,
        ("d/t/0/k/0",),
        (("x.1.0",),),
    ),
    (
        "each replica has cleaned for itself",
        EQUAL,
        [
            *on(ONE, cleaned(5)),
            *in_sync("b", "c"),
            *on("final", log_of("b", 10), final_batch(0, 4), final_batch(5, 9), log_of("c", 10), final_batch(5, 9, broker="c")),
        ],
        OK,
        2,
    ),
    (
        "behind what is clean they are equal",
        EQUAL,
        [*on(ONE, cleaned(5)), *in_sync("b", "c"), *on("final", log_of("b", 10), final_batch(5, 9), log_of("c", 10))],
        VIOLATED,
        1,
        ("t/0/b/c/5",),
        (("final.1.1",),),
    ),
    (
        "copied from a log that was cleaned",
        MATCHING,
        [*on(ONE, appended(0, 4), appended(5, 9), cleaned(5)), *on(TWO, copied(0, 4, crc=9), copied(5, 9))],
        OK,
        3,
    ),
    (
        "copied before it was cleaned",
        MATCHING,
        [*on(ONE, appended(0, 4)), *on(TWO, copied(0, 4, crc=9)), *on(ONE, cleaned(5))],
        VIOLATED,
        2,
        ("t/0/0/0",),
        (("broker-1.1.0", "broker-2.1.0"),),
    ),
]
