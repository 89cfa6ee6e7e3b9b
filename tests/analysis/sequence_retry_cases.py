"""Histories of batches that arrive out of sequence, clean and violating: rows for the table in
`cases.py`.
"""

from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from kraftsim.clients.events import ClientInitialized, RecordFailed, RecordSent
from kraftsim.partitions.events import (
    BatchAppended,
    LeaderFollowed,
    PartitionTruncated,
    ProduceRefused,
    ProducerStateExpired,
)
from kraftsim.server.events_connections import ConnectionClosed
from tests.analysis.event_factories import appended
from tests.analysis.history import History, Row
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, on

TURN = "early-batches-wait"
OUT_OF_ORDER, UNKNOWN_PRODUCER, FENCED = 45, 59, 47
LAST_SEQUENCE = 2**31 - 1
PLAIN = RecordSent(client_id="c", topic="turns", partition=0, record_key="k")
NAMED = ClientInitialized(client_id="c", producer_id=7, producer_epoch=0)
IN_TRANSACTION = replace(PLAIN, transaction="x/1")
LOST = ConnectionClosed(connection=1, listener="outbound", peer="p", reason="reset")
GIVEN_UP = RecordFailed(
    client_id="c", topic="turns", partition=0, record_key="k", error_code=10, reason="r"
)


def early(
    base_sequence: int, producer_epoch: int = 0, *, error_code: int = OUT_OF_ORDER
) -> ProduceRefused:
    """A batch of one record is refused."""
    return ProduceRefused(
        topic="turns",
        partition=0,
        error_code=error_code,
        reason="r",
        producer_id=7,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def taken(base_sequence: int, producer_epoch: int = 0) -> BatchAppended:
    """A batch of one record is appended."""
    return appended(10, 10, (7, producer_epoch, base_sequence), topic="turns")


AGAIN, RENUMBERED = "turns-0/7/0/3/again", "turns-0/7/0/3/renumbered"
TURN_ROWS: list[Row] = [
    (
        "a batch is retried until it is in sequence",
        TURN,
        on("b", NAMED, PLAIN, early(3), early(4), taken(2), taken(3), early(4), taken(4)),
        OK,
        6,
    ),
    (
        "refused as often as requests are in flight",
        TURN,
        on("b", NAMED, PLAIN, *[early(3)] * 5, taken(2), taken(3)),
        OK,
        7,
    ),
    (
        "refused once more than that",
        TURN,
        on("b", NAMED, PLAIN, *[early(3)] * 8),
        VIOLATED,
        8,
        (AGAIN,),
        (("b.1.2", "b.1.7"),),
    ),
    (
        "the responses were lost with their connections",
        TURN,
        on("b", NAMED, PLAIN, *[early(3), LOST] * 8),
        OK,
        8,
    ),
    (
        "refused once more than that, besides the lost responses",
        TURN,
        on("b", NAMED, PLAIN, LOST, early(3), LOST, LOST, *[early(3)] * 7),
        VIOLATED,
        8,
        (AGAIN,),
        (("b.1.3", "b.1.12"),),
    ),
    (
        "a broker closed connections, and another client lost some",
        TURN,
        [
            *on("b", NAMED, PLAIN, early(3), *[replace(LOST, listener="PLAINTEXT")] * 4),
            *on("other", *[LOST] * 4),
            *on("b", *[early(3)] * 5),
        ],
        VIOLATED,
        6,
        (AGAIN,),
    ),
    (
        "refused for another reason",
        TURN,
        on("b", NAMED, PLAIN, *[early(3, error_code=FENCED)] * 8, taken(0)),
        OK,
        1,
    ),
    (
        "an epoch bump, although the batch was in sequence",
        TURN,
        on("b", NAMED, PLAIN, early(3), early(3), taken(2), taken(0, 1)),
        VIOLATED,
        4,
        (RENUMBERED,),
        (("b.1.3", "b.1.5"),),
    ),
    (
        "in sequence across the wrap",
        TURN,
        on("b", NAMED, PLAIN, early(0), taken(LAST_SEQUENCE), taken(0, 1)),
        VIOLATED,
        3,
        ("turns-0/7/0/0/renumbered",),
        (("b.1.2", "b.1.4"),),
    ),
    (
        "an epoch bump, because the batch did not get in sequence",
        TURN,
        on("b", NAMED, PLAIN, early(3), early(4), taken(0, 1), taken(1, 1), taken(2)),
        OK,
        5,
    ),
    (
        "an epoch bump, because it was refused although in sequence",
        TURN,
        on("b", NAMED, PLAIN, early(3), taken(2), early(3), taken(0, 1)),
        OK,
        4,
    ),
    (
        "an epoch bump, because its producer state expired",
        TURN,
        on(
            "b",
            NAMED,
            PLAIN,
            early(3),
            taken(2),
            early(3, error_code=UNKNOWN_PRODUCER),
            taken(0, 1),
        ),
        OK,
        4,
    ),
    (
        "an epoch bump after it is in the log",
        TURN,
        on("b", NAMED, PLAIN, early(3), taken(2), taken(3), taken(0, 1)),
        OK,
        4,
    ),
    (
        "an epoch bump, because a batch failed",
        TURN,
        on("b", NAMED, PLAIN, early(3), taken(2), GIVEN_UP, taken(0, 1)),
        OK,
        3,
    ),
    (
        "the epoch of another producer",
        TURN,
        on(
            "b",
            NAMED,
            PLAIN,
            early(3),
            taken(2),
            appended(1, 1, (8, 1, 0), topic="turns"),
            taken(3),
        ),
        OK,
        3,
    ),
    (
        "in a transaction",
        TURN,
        on("b", NAMED, PLAIN, early(3), IN_TRANSACTION, *[early(3)] * 8, taken(2), taken(0, 1)),
        OK,
        1,
    ),
    (
        "no producer of kraftsim writes there",
        TURN,
        on("b", NAMED, *[early(3)] * 8, taken(0)),
        VACUOUS,
        0,
    ),
    (
        "the producer does not log its identity",
        TURN,
        on("b", PLAIN, *[early(3)] * 8, taken(0)),
        VACUOUS,
        0,
    ),
]


def follows(topic: str = "turns") -> LeaderFollowed:
    """The broker follows another leader."""
    return LeaderFollowed(topic=topic, partition=0, leader_id=2, leader_epoch=1, log_end_offset=11)


CUT = PartitionTruncated(
    topic="turns",
    partition=0,
    leader_epoch=1,
    former_end_offset=11,
    log_end_offset=10,
    high_watermark=10,
)
FORGOTTEN = ProducerStateExpired(topic="turns", partition=0, producer_id=7)
NEXT = "next-sequence-accepted"
NEXT_ROWS: list[Row] = [
    (
        "the next batch is taken, across the wrap too",
        NEXT,
        on("b", taken(LAST_SEQUENCE - 1), taken(LAST_SEQUENCE), taken(0), taken(1)),
        OK,
        4,
    ),
    (
        "the next batch is refused",
        NEXT,
        on("b", taken(2), early(3)),
        VIOLATED,
        2,
        ("b/turns-0/7/0/3",),
        (("b.1.0", "b.1.1"),),
    ),
    (
        "the next batch is refused again after one of another producer",
        NEXT,
        on("b", taken(2), appended(11, 11, (8, 0, 4), topic="turns"), early(3), early(3)),
        VIOLATED,
        4,
        ("b/turns-0/7/0/3",),
        (("b.1.0", "b.1.2"),),
    ),
    (
        "the batch after the last sequence is refused",
        NEXT,
        on("b", taken(LAST_SEQUENCE), early(0)),
        VIOLATED,
        2,
        ("b/turns-0/7/0/0",),
        (("b.1.0", "b.1.1"),),
    ),
    ("a batch after the next one is refused", NEXT, on("b", taken(2), early(4)), OK, 2),
    ("the next batch of another epoch is refused", NEXT, on("b", taken(2), early(3, 1)), OK, 2),
    (
        "refused for another reason",
        NEXT,
        on("b", taken(2), early(3, error_code=FENCED)),
        OK,
        1,
    ),
    ("another replica refuses it", NEXT, [*on("b", taken(2)), *on("c", early(3))], OK, 2),
    ("the next process refuses it", NEXT, [*on("b", taken(2)), ("b", 2, early(3))], OK, 2),
    ("the leader followed another one", NEXT, on("b", taken(2), follows(), early(3)), OK, 2),
    (
        "it followed the leader of another topic",
        NEXT,
        on("b", taken(2), follows("other"), early(3)),
        VIOLATED,
        2,
        ("b/turns-0/7/0/3",),
    ),
    ("the leader truncated its log", NEXT, on("b", taken(2), CUT, early(3)), OK, 2),
    ("the state of the producer expired", NEXT, on("b", taken(2), FORGOTTEN, early(3)), OK, 2),
    (
        "the state of another producer expired",
        NEXT,
        on("b", taken(2), replace(FORGOTTEN, producer_id=8), early(3)),
        VIOLATED,
        2,
        ("b/turns-0/7/0/3",),
    ),
    (
        "in a transaction",
        NEXT,
        on("b", taken(1), replace(taken(2), is_transactional=True), early(3)),
        OK,
        2,
    ),
    ("no batch of a producer", NEXT, on("b", follows()), VACUOUS, 0),
]


def add_sequence_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let a producer send several batches at once, some of which arrive out of sequence; mostly
    they are retried until they are in sequence.
    """
    history.emit("client", NAMED)
    history.emit("client", PLAIN)
    producer_epoch, sequence = 0, random.choice((0, LAST_SEQUENCE - 2))
    for _ in range(random.randrange(1, 6)):
        following = (sequence + 1) % (LAST_SEQUENCE + 1)
        for _ in range(random.choice((0, 1, 2, 7)) if slip() else random.randrange(2)):
            history.emit(random.choice(("b", "c")), early(following, producer_epoch))
        history.emit("b", taken(sequence, producer_epoch))
        if slip():
            history.emit("b", random.choice((follows(), CUT, FORGOTTEN)))
        if slip():
            history.emit("b", early(following, producer_epoch))
        if slip():
            history.emit("client", random.choice((GIVEN_UP, IN_TRANSACTION, PLAIN)))
        if slip() or slip():
            producer_epoch, sequence = producer_epoch + 1, 0
        else:
            sequence = following
