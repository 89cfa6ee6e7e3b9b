"""Histories of the replicas of a partition, clean and violating, with the expected results: rows
for the table in `cases.py`.
"""

from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from kraftsim.events.event import Event
from kraftsim.invariants.verdict import Outcome
from kraftsim.metadata.events import PartitionChanged
from kraftsim.partitions.events import (
    BatchReplicated,
    FinalLog,
    IsrChanged,
    LeaderElected,
    LeaderFollowed,
    PartitionHighWatermarkMoved,
    PartitionTruncated,
    ProducerSnapshotTaken,
    ReplicaInSync,
)
from kraftsim.zookeeper.events import ZookeeperControllerElected
from tests.analysis.event_factories import (
    NO_PRODUCER,
    acknowledged,
    appended,
    final_batch,
    final_log,
    final_record,
)
from tests.analysis.history import History, LoggedEvent, Row

ONE_APPEND = "one-append-per-sequence"
MATCHING = "partition-log-matching"
ONE_LEADER = "one-partition-leader-per-epoch"
GROWS = "partition-high-watermark-monotonic"
UNCUT = "no-partition-truncation-below-high-watermark"
COMPLETE = "partition-leader-completeness"
REPLICATED = "partition-high-watermark-replicated"
EVERYWHERE = "acknowledged-records-on-replicas"
IN_FINAL_LOG = "acknowledged-records-in-final-log"
EQUAL = "replicas-equal"
APPENDED_ONLY = "producer-snapshot-below-its-offset"

OK, VIOLATED, UNKNOWN, VACUOUS = Outcome.OK, Outcome.VIOLATED, Outcome.UNKNOWN, Outcome.VACUOUS
A = (7, 0, 0)
ONE, TWO, THREE = "broker-1", "broker-2", "broker-3"


def on(node: str, *events: Event) -> list[LoggedEvent]:
    return [(node, event) for event in events]


def replicated(
    first_offset: int,
    last_offset: int,
    producer: tuple[int, int, int] = NO_PRODUCER,
    *,
    epoch: int = 0,
    crc: int | None = None,
) -> Event:
    producer_id, producer_epoch, base_sequence = producer
    return BatchReplicated(
        topic="t",
        partition=0,
        leader_epoch=epoch,
        first_offset=first_offset,
        last_offset=last_offset,
        crc=first_offset if crc is None else crc,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def leads(epoch: int, next_offset: int = 0, *, partition: int = 0) -> Event:
    return LeaderElected(
        topic="t", partition=partition, leader_epoch=epoch, next_offset=next_offset
    )


def follows(leader_id: int, epoch: int, end_offset: int = 0) -> Event:
    return LeaderFollowed(
        topic="t", partition=0, leader_id=leader_id, leader_epoch=epoch, log_end_offset=end_offset
    )


def moved(high_watermark: int, *, epoch: int = 0, is_leader: bool = True) -> Event:
    return PartitionHighWatermarkMoved(
        topic="t",
        partition=0,
        leader_epoch=epoch,
        high_watermark=high_watermark,
        is_leader=is_leader,
    )


def truncated(end_offset: int, high_watermark: int = 0, *, epoch: int = 0) -> Event:
    return PartitionTruncated(
        topic="t",
        partition=0,
        leader_epoch=epoch,
        former_end_offset=end_offset + 1,
        log_end_offset=end_offset,
        high_watermark=high_watermark,
    )


def uncleanly(epoch: int, *, state: int = 1, topic: str = "t") -> Event:
    """The metadata record an unclean leader election: the leader of an epoch may not have been in
    sync.
    """
    return PartitionChanged(
        topic=topic,
        topic_id="id",
        partition=0,
        leader=2,
        leader_epoch=epoch,
        partition_epoch=epoch,
        leader_recovery_state=state,
        isr="2",
        replicas="1,2,3",
        adding_replicas="",
        removing_replicas="",
    )


def snapshot(next_offset: int, last_offset: int) -> Event:
    return ProducerSnapshotTaken(
        topic="t", partition=0, next_offset=next_offset, last_offset=last_offset
    )


def agreed(isr: str, *, epoch: int = 0) -> Event:
    return IsrChanged(topic="t", partition=0, leader_epoch=epoch, partition_epoch=0, isr=isr)


def in_sync(*brokers: str) -> list[LoggedEvent]:
    return on(
        "harness", *(ReplicaInSync(topic="t", partition=0, broker=broker) for broker in brokers)
    )


def log_of(
    broker: str, next_offset: int, *, log_start_offset: int = 0, record_count: int = 9
) -> Event:
    return FinalLog(
        topic="t",
        partition=0,
        log_start_offset=log_start_offset,
        next_offset=next_offset,
        batch_count=1,
        broker=broker,
        record_count=record_count,
    )


REPLICA_ROWS: list[Row] = [
    # --- one append per sequence, in each replica's log
    (
        "replicated batches are not a second append",
        ONE_APPEND,
        [*on(ONE, appended(0, 4, A)), *on(TWO, replicated(0, 4, A))],
        OK,
        1,
    ),
    (
        "a deposed leader appends what its successor has",
        ONE_APPEND,
        [*on(ONE, appended(0, 4, A)), *on(TWO, appended(3, 7, A))],
        OK,
        2,
    ),
    (
        "appended by a leader that had replicated it",
        ONE_APPEND,
        [*on(ONE, appended(0, 4, A)), *on(TWO, replicated(0, 4, A), appended(5, 9, A))],
        VIOLATED,
        2,
        ("t/0/7/0/0",),
        (("broker-2.1.0", "broker-2.1.1"),),
    ),
    (
        "replicated twice, though no single leader appended it twice",
        ONE_APPEND,
        [
            *on(ONE, appended(0, 4, A)),
            *on(THREE, replicated(0, 4, A)),
            *on(TWO, appended(5, 9, A)),
            *on(THREE, replicated(5, 9, A)),
        ],
        VIOLATED,
        2,
        ("t/0/7/0/0",),
        (("broker-3.1.0", "broker-3.1.1"),),
    ),
    (
        "truncated and replicated again at another offset",
        ONE_APPEND,
        on(TWO, appended(5, 9, A), truncated(5), replicated(5, 5), replicated(6, 10, A)),
        OK,
        1,
    ),
    (
        "truncated after it",
        ONE_APPEND,
        on(TWO, appended(0, 4, A), truncated(5), appended(5, 9, A)),
        VIOLATED,
        2,
        ("t/0/7/0/0",),
        (("broker-2.1.0", "broker-2.1.2"),),
    ),
    # --- log matching
    (
        "replicated as appended",
        MATCHING,
        [*on(ONE, appended(0, 4)), *on(TWO, replicated(0, 4)), *on(THREE, replicated(0, 4))],
        OK,
        3,
    ),
    (
        "another epoch has another batch",
        MATCHING,
        [*on(ONE, appended(0, 4)), *on(TWO, replicated(0, 3, epoch=1, crc=9))],
        OK,
        2,
    ),
    (
        "replicated with other bytes",
        MATCHING,
        [
            *on(ONE, appended(0, 4)),
            *on(TWO, replicated(0, 4, crc=9)),
            *on(THREE, replicated(0, 4, crc=9)),
        ],
        VIOLATED,
        3,
        ("t/0/0/0",),
        (("broker-1.1.0", "broker-2.1.0"),),
    ),
    (
        "replicated shorter",
        MATCHING,
        [*on(ONE, appended(0, 4)), *on(TWO, replicated(0, 3))],
        VIOLATED,
        2,
        ("t/0/0/0",),
        (("broker-1.1.0", "broker-2.1.0"),),
    ),
    ("nothing written", MATCHING, on(ONE, leads(0)), VACUOUS, 0),
    # --- producer snapshots
    ("of batches in the log", APPENDED_ONLY, on(ONE, snapshot(5, 4), snapshot(9, -1)), OK, 2),
    (
        "of a batch that is not in the log yet",
        APPENDED_ONLY,
        on(ONE, snapshot(5, 5)),
        VIOLATED,
        1,
        ("broker-1.1.0",),
        (("broker-1.1.0",),),
    ),
    ("no snapshots", APPENDED_ONLY, on(ONE, appended(0, 4)), VACUOUS, 0),
    # --- one leader
    (
        "a leader in each epoch",
        ONE_LEADER,
        [*on(ONE, leads(0)), *on(TWO, leads(1)), *on(ONE, leads(2))],
        OK,
        3,
    ),
    (
        "other partitions have other leaders",
        ONE_LEADER,
        [*on(ONE, leads(0)), *on(TWO, leads(0, partition=1))],
        OK,
        2,
    ),
    (
        "two leaders in one epoch",
        ONE_LEADER,
        [*on(ONE, leads(0)), *on(TWO, leads(0)), *on(THREE, leads(0))],
        VIOLATED,
        3,
        ("t/0/0",),
        (("broker-1.1.0", "broker-2.1.0"),),
    ),
    (
        "an epoch goes on after a restart",
        ONE_LEADER,
        [*on(ONE, leads(0)), (ONE, 2, leads(0)), (ONE, 2, leads(1))],
        VIOLATED,
        3,
        ("t/0/0",),
        (("broker-1.1.0", "broker-1.2.0"),),
    ),
    (
        "an epoch goes on after a restart in ZooKeeper mode",
        ONE_LEADER,
        [
            *on(TWO, ZookeeperControllerElected(controller_epoch=1)),
            *on(ONE, leads(0)),
            (ONE, 2, leads(0)),
        ],
        OK,
        2,
    ),
    ("no leader", ONE_LEADER, on(ONE, follows(-1, 0)), VACUOUS, 0),
    # --- the high watermark grows
    ("it grows", GROWS, on(ONE, moved(3), moved(5), moved(4, epoch=1)), OK, 3),
    (
        "a follower's goes back",
        GROWS,
        on(ONE, moved(5, is_leader=False), moved(3, is_leader=False)),
        VACUOUS,
        0,
    ),
    ("a restart starts lower", GROWS, [*on(ONE, moved(5)), (ONE, 2, moved(3))], OK, 2),
    (
        "it falls",
        GROWS,
        on(ONE, moved(5), moved(3)),
        VIOLATED,
        2,
        ("broker-1.1.1",),
        (("broker-1.1.0", "broker-1.1.1"),),
    ),
    # --- replicated records are not truncated
    ("truncated above the high watermark", UNCUT, on(ONE, truncated(5, 5), truncated(9, 5)), OK, 2),
    (
        "truncated below the high watermark",
        UNCUT,
        on(ONE, truncated(4, 5)),
        VIOLATED,
        1,
        ("broker-1.1.0",),
        (("broker-1.1.0",),),
    ),
    (
        "truncated below it, for an unclean leader",
        UNCUT,
        [*on("c", uncleanly(2)), *on(ONE, truncated(4, 5, epoch=3))],
        OK,
        1,
    ),
    (
        "truncated below it before an unclean leader",
        UNCUT,
        [*on("c", uncleanly(2)), *on(ONE, truncated(4, 5, epoch=1))],
        VIOLATED,
        1,
        ("broker-1.1.0",),
        (("broker-1.1.0",),),
    ),
    (
        "truncated below it for a clean leader",
        UNCUT,
        [
            *on("c", uncleanly(1, state=0), uncleanly(1, topic="u")),
            *on(ONE, truncated(4, 5, epoch=1)),
        ],
        VIOLATED,
        1,
        ("broker-1.1.0",),
        (("broker-1.1.0",),),
    ),
    ("no truncation", UNCUT, on(ONE, moved(5)), VACUOUS, 0),
    # --- leaders have all records below a reported high watermark
    ("a new leader has it", COMPLETE, [*on(ONE, leads(0), moved(5)), *on(TWO, leads(1, 5))], OK, 1),
    (
        "a new leader has less",
        COMPLETE,
        [*on(ONE, moved(5)), *on(TWO, leads(1, 4))],
        VIOLATED,
        1,
        ("broker-2.1.0",),
        (("broker-2.1.0",),),
    ),
    (
        "an unclean leader has less",
        COMPLETE,
        [*on(ONE, moved(5)), *on("c", uncleanly(1)), *on(TWO, leads(1, 4))],
        VACUOUS,
        0,
    ),
    (
        "high watermarks after an unclean leader count",
        COMPLETE,
        [
            *on(ONE, moved(9)),
            *on("c", uncleanly(1)),
            *on(TWO, leads(1, 4), moved(5, epoch=1)),
            *on(THREE, leads(2, 4)),
        ],
        VIOLATED,
        1,
        ("broker-3.1.0",),
        (("broker-3.1.0",),),
    ),
    (
        "it is reported afterwards",
        COMPLETE,
        [*on(TWO, leads(1, 4)), *on(ONE, moved(5))],
        VIOLATED,
        1,
        ("broker-2.1.0",),
        (("broker-2.1.0",),),
    ),
    (
        "a later leader knows more",
        COMPLETE,
        [*on(TWO, leads(1, 4)), *on(ONE, moved(3)), *on(THREE, moved(9, epoch=1))],
        OK,
        1,
    ),
    (
        "only a follower knows",
        COMPLETE,
        [*on(ONE, moved(5, is_leader=False)), *on(TWO, leads(1, 4))],
        VACUOUS,
        0,
    ),
    # --- all replicas of the ISR have it
    (
        "all have it",
        REPLICATED,
        [
            *on(ONE, agreed("1,2"), appended(0, 4)),
            *on(TWO, replicated(0, 4)),
            *on(THREE, follows(1, 0)),
            *on(ONE, moved(5)),
        ],
        OK,
        1,
    ),
    (
        "one has not",
        REPLICATED,
        [
            *on(ONE, agreed("1,2,3"), appended(0, 4)),
            *on(TWO, replicated(0, 4)),
            *on(THREE, follows(1, 0)),
            *on(ONE, moved(5)),
        ],
        VIOLATED,
        1,
        ("broker-1.1.2/broker-3",),
        (("broker-1.1.2",),),
    ),
    (
        "one had it and truncated it",
        REPLICATED,
        [
            *on(ONE, agreed("2,1"), appended(0, 4)),
            *on(TWO, replicated(0, 4), truncated(3)),
            *on(ONE, moved(5)),
        ],
        VIOLATED,
        1,
        ("broker-1.1.2/broker-2",),
        (("broker-1.1.2",),),
    ),
    (
        "a replica that left the ISR does not count",
        REPLICATED,
        [
            *on(ONE, agreed("1,2"), appended(0, 4)),
            *on(TWO, follows(1, 0)),
            *on(ONE, agreed("1"), moved(5)),
        ],
        OK,
        1,
    ),
    (
        "written, and reported when it became leader again",
        REPLICATED,
        [
            *on(ONE, agreed("1"), appended(0, 0)),
            (ONE, 2, leads(2, 2)),
            (ONE, 2, agreed("1", epoch=2)),
            (ONE, 2, moved(2, epoch=2)),
        ],
        OK,
        1,
    ),
    (
        "reported, and truncated since",
        REPLICATED,
        [
            *on(TWO, follows(1, 0, 5), truncated(3), follows(1, 0, 2)),
            *on(ONE, agreed("2"), moved(5)),
        ],
        VIOLATED,
        1,
        ("broker-1.1.1/broker-2",),
        (("broker-1.1.1",),),
    ),
    (
        "truncated for an unclean leader that is unknown to an older one",
        REPLICATED,
        [
            *on(ONE, agreed("1,2"), appended(0, 4)),
            *on(TWO, replicated(0, 4)),
            *on("c", uncleanly(1)),
            *on(TWO, truncated(0, epoch=1)),
            *on(ONE, moved(5)),
        ],
        VACUOUS,
        0,
    ),
    (
        "an unclean election of the leader's own epoch, or of another topic",
        REPLICATED,
        [
            *on("c", uncleanly(1), uncleanly(2, topic="u"), uncleanly(2, state=0)),
            *on(TWO, follows(1, 1)),
            *on(ONE, agreed("1,2", epoch=1), moved(5, epoch=1)),
        ],
        VIOLATED,
        1,
        ("broker-1.1.1/broker-2",),
        (("broker-1.1.1",),),
    ),
    (
        "an unclean election that comes later",
        REPLICATED,
        [*on(TWO, follows(1, 0)), *on(ONE, agreed("1,2"), moved(5)), *on("c", uncleanly(1))],
        VIOLATED,
        1,
        ("broker-1.1.1/broker-2",),
        (("broker-1.1.1",),),
    ),
    (
        "in another epoch",
        REPLICATED,
        [*on(TWO, follows(1, 0)), *on(ONE, agreed("1,2"), moved(5, epoch=1))],
        VACUOUS,
        0,
    ),
    (
        "broker-11 is not broker-1",
        REPLICATED,
        [*on(ONE, follows(11, 0)), *on("broker-11", agreed("11"), appended(0, 4), moved(5))],
        OK,
        1,
    ),
    # --- acknowledged records on replicas
    (
        "on both",
        EVERYWHERE,
        [
            ("x", acknowledged(0, "k")),
            *in_sync("b", "c"),
            *on(
                "final",
                final_log(1, 1),
                log_of("c", 1),
                final_record(0, "k"),
                final_record(0, "k", broker="c"),
            ),
        ],
        OK,
        2,
    ),
    (
        "on one of two",
        EVERYWHERE,
        [
            ("x", acknowledged(0, "k")),
            *in_sync("b", "c"),
            *on("final", final_log(1, 1), log_of("c", 1), final_record(0, "k")),
        ],
        VIOLATED,
        2,
        ("c/t/0/k/0",),
        (("x.1.0",),),
    ),
    (
        "at another offset",
        EVERYWHERE,
        [
            ("x", acknowledged(1, "k")),
            ("x", acknowledged(-1, "k")),
            *in_sync("b"),
            *on("final", final_log(1, 1), final_record(0, "k")),
        ],
        VIOLATED,
        2,
        ("b/t/0/k/1",),
        (("x.1.0",),),
    ),
    (
        "a replica out of sync may lack it",
        EVERYWHERE,
        [
            ("x", acknowledged(0, "k")),
            *in_sync("b"),
            *on("final", final_log(1, 1), log_of("c", 0), final_record(0, "k")),
        ],
        OK,
        1,
    ),
    (
        "what an unclean leader did not have",
        EVERYWHERE,
        [
            *on("c", uncleanly(1)),
            *on(TWO, leads(1, 1), leads(2, 0)),
            *[("x", acknowledged(offset, f"k{offset}")) for offset in (0, 1, 2)],
            *in_sync("b"),
            *on("final", final_log(2, 1), final_record(1, "other")),
        ],
        VIOLATED,
        3,
        ("b/t/0/k0/0",),
        (("x.1.0",),),
    ),
    (
        "what an unclean leader did not have, anywhere",
        IN_FINAL_LOG,
        [
            *on("c", uncleanly(1)),
            *on(TWO, leads(1, 1)),
            *[("x", acknowledged(offset, f"k{offset}")) for offset in (-1, 0, 1, 2)],
            *on("final", final_log(2, 1), final_record(1, "other")),
        ],
        VIOLATED,
        4,
        ("t/0/k0/0",),
        (("x.1.1",),),
    ),
    (
        "a replica was not read",
        EVERYWHERE,
        [("x", acknowledged(0, "k")), *in_sync("b")],
        UNKNOWN,
        1,
    ),
    (
        "below the start of the log",
        EVERYWHERE,
        [("x", acknowledged(0, "k")), *in_sync("c"), ("final", log_of("c", 5, log_start_offset=3))],
        OK,
        1,
    ),
    (
        "acknowledged after a replica was last reported in sync",
        EVERYWHERE,
        [
            ("x", acknowledged(0, "k")),
            *in_sync("b", "c"),
            ("x", acknowledged(1, "l")),
            *in_sync("b"),
            *on(
                "final",
                final_log(2, 1),
                log_of("c", 1),
                final_record(0, "k"),
                final_record(1, "l"),
                final_record(0, "k", broker="c"),
            ),
        ],
        OK,
        3,
    ),
    (
        "lost, although it was acknowledged before the report",
        EVERYWHERE,
        [
            *in_sync("c"),
            ("x", acknowledged(0, "k")),
            *in_sync("c"),
            ("x", acknowledged(1, "l")),
            *on("final", final_log(2, 1), log_of("c", 0)),
        ],
        VIOLATED,
        1,
        ("c/t/0/k/0",),
        (("x.1.0",),),
    ),
    # --- replicas are equal
    (
        "equal",
        EQUAL,
        [
            *in_sync("b", "c"),
            *on(
                "final",
                log_of("b", 10),
                final_batch(0, 4),
                final_batch(5, 9),
                log_of("c", 10),
                final_batch(0, 4, broker="c"),
            ),
            ("final", final_batch(5, 9, broker="c")),
        ],
        OK,
        4,
    ),
    (
        "one starts later and one ends earlier",
        EQUAL,
        [
            *in_sync("b", "c"),
            *on(
                "final",
                log_of("b", 5),
                final_batch(0, 4),
                log_of("c", 9, log_start_offset=5),
                final_batch(5, 8, broker="c"),
            ),
        ],
        VACUOUS,
        0,
    ),
    (
        "with different batch boundaries",
        EQUAL,
        [
            *in_sync("b", "c"),
            *on(
                "final",
                log_of("b", 5),
                final_batch(0, 4),
                log_of("c", 5),
                final_batch(0, 3, broker="c"),
            ),
        ],
        VIOLATED,
        2,
        ("t/0/b/c/0", "t/0/c/b/0"),
        (("final.1.1",), ("final.1.3",)),
    ),
    (
        "a replica out of sync may differ",
        EQUAL,
        [
            *in_sync("b"),
            *on(
                "final",
                log_of("b", 5),
                final_batch(0, 4),
                log_of("c", 5),
                final_batch(0, 3, broker="c"),
            ),
        ],
        VACUOUS,
        0,
    ),
]


def add_replica_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let three brokers lead, append, replicate, change the ISR and truncate, mostly correctly, in
    their own topic.
    """

    def emit(node: str, event: Event) -> None:
        history.emit(node, replace(event, topic="r"))

    nodes = (ONE, TWO, THREE)
    end_offset = high_watermark = 0
    logs: dict[str, list[tuple[int, int]]] = {node: [] for node in nodes}
    for epoch in range(random.randrange(2, 5)):
        leader = random.choice(nodes)
        if slip():
            emit("controller-101", uncleanly(epoch))
        end_offset = max(0, end_offset - (3 if slip() else 0))
        emit(leader, leads(epoch, end_offset))
        if slip():
            emit(random.choice(nodes), leads(epoch, end_offset))
        emit(leader, agreed("1,2,3", epoch=epoch))
        for node in nodes:
            if node != leader:
                emit(node, follows(nodes.index(leader) + 1, epoch))
                emit(
                    node, truncated(end_offset, high_watermark + (9 if slip() else 0), epoch=epoch)
                )
        for _ in range(random.randrange(1, 5)):
            last_offset = end_offset + random.randrange(3)
            producer = (100, 0, random.randrange(end_offset + 1) if slip() else end_offset)
            for node in nodes:
                if not slip():
                    emit(
                        node,
                        replicated(
                            end_offset,
                            last_offset,
                            producer,
                            epoch=epoch,
                            crc=random.randrange(9) if slip() else end_offset,
                        ),
                    )
                    logs[node] = [
                        *(batch for batch in logs[node] if batch[1] < end_offset),
                        (end_offset, last_offset),
                    ]
            end_offset = last_offset + 1
            high_watermark = max(0, high_watermark - 2) if slip() else end_offset
            emit(leader, moved(high_watermark, epoch=epoch))
            emit(leader, snapshot(end_offset, end_offset - (0 if slip() else 1)))
            emit(random.choice(nodes), moved(high_watermark, epoch=epoch, is_leader=False))
    if logs[ONE]:
        emit("client", acknowledged(logs[ONE][0][0], f"r{logs[ONE][0][0]}"))
    for node in nodes:
        emit("harness", ReplicaInSync(topic="r", partition=0, broker=node))
    for node in nodes:
        emit("final", log_of(node, end_offset, record_count=len(logs[node])))
        for first_offset, last_offset in logs[node]:
            emit(
                "final", final_batch(first_offset, last_offset + (1 if slip() else 0), broker=node)
            )
            if not slip():
                emit("final", final_record(first_offset, f"r{first_offset}", broker=node))
