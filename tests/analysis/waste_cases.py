"""Histories of leader epochs, coordinator loads, elections and snapshots, with and without need:
rows for the table in `cases.py`.
"""

from collections.abc import Callable
from random import Random

from kraftsim.events.event import Event
from kraftsim.groups.events import GroupsLoaded
from kraftsim.metadata.events import PartitionChanged, PartitionCreated
from kraftsim.partitions.events import LeaderElected
from kraftsim.raft.events import ElectionOpened, QuorumStateStored, SnapshotWritten
from kraftsim.transactions.events import TransactionsLoaded
from kraftsim.zookeeper.events import ZookeeperControllerElected
from tests.analysis.history import History, Row
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, on

CAUSE = "leader-epoch-changes-have-cause"
LOADS = "coordinator-loads-follow-elections"
EPOCHS = "quorum-epochs-step-by-one"
SNAPSHOTS = "snapshots-have-new-records"
ZOOKEEPER = ZookeeperControllerElected(controller_epoch=1)
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


def created(leader: int = 1, isr: str = "1,2,3") -> Event:
    """A partition is created."""
    return PartitionCreated(
        topic="waste", topic_id="w", partition=0, leader=leader, isr=isr, replicas="1,2,3"
    )


def changed(
    leader_epoch: int,
    partition_epoch: int,
    *,
    leader: int = 1,
    isr: str = "1,2,3",
    replicas: str = "1,2,3",
) -> Event:
    """It has changed."""
    return PartitionChanged(
        topic="waste",
        topic_id="w",
        partition=0,
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        leader_recovery_state=0,
        isr=isr,
        replicas=replicas,
        adding_replicas="",
        removing_replicas="",
    )


def elected(topic: str = OFFSETS, leader_epoch: int = 1, partition: int = 0) -> Event:
    """A broker leads a partition."""
    return LeaderElected(topic=topic, partition=partition, leader_epoch=leader_epoch, next_offset=0)


def groups(partition: int = 0) -> Event:
    """It has loaded the groups of a partition."""
    return GroupsLoaded(partition=partition, group_count=0, next_offset=0)


def transactional_ids(partition: int = 0) -> Event:
    """It has loaded the transactional ids of a partition."""
    return TransactionsLoaded(
        partition=partition, coordinator_epoch=1, transaction_count=0, next_offset=0
    )


def stands(leader_epoch: int) -> Event:
    """A candidate starts an election."""
    return ElectionOpened(leader_epoch=leader_epoch, timeout_ms=1000)


def knows(leader_epoch: int) -> Event:
    """A replica of the metadata log has stored an epoch."""
    return QuorumStateStored(leader_epoch=leader_epoch, leader_id=-1, voted_id=-1)


def snapshot(end_offset: int) -> Event:
    """A replica writes a snapshot."""
    return SnapshotWritten(end_offset=end_offset, epoch=1, size_bytes=1)


WASTE_ROWS: list[Row] = [
    ("another leader", CAUSE, on("c", created(), changed(1, 1, leader=2)), OK, 1),
    ("a replica leaves the ISR", CAUSE, on("c", created(), changed(1, 1, isr="1,2")), OK, 1),
    ("other replicas", CAUSE, on("c", created(), changed(1, 1, replicas="1,2")), OK, 1),
    ("a replica joins the ISR", CAUSE,
     on("c", created(isr="1"), changed(0, 1, isr="1,2"), changed(1, 2, isr="1,2,3")), VIOLATED, 2,
     ("waste/0/2",), (("c.1.1", "c.1.2"),)),
    ("nothing changes", CAUSE, on("c", created(), changed(1, 1)), VIOLATED, 1, ("waste/0/1",),
     (("c.1.0", "c.1.1"),)),
    ("a ZooKeeper controller finds the last in-sync replica offline", CAUSE,
     on("c", ZOOKEEPER, created(isr="1"), changed(1, 1, leader=-1, isr="1"),
        changed(2, 2, leader=-1, isr="1")), OK, 2),
    ("a quorum controller does", CAUSE,
     [("b", ZOOKEEPER), *on("c", created(isr="1"), changed(1, 1, leader=-1, isr="1"),
        changed(2, 2, leader=-1, isr="1"))], VIOLATED, 2, ("waste/0/2",), (("c.1.1", "c.1.2"),)),
    ("a ZooKeeper controller goes on after a quorum controller", CAUSE,
     [*on("c", created(), changed(1, 1, leader=2)), ("b", ZOOKEEPER), ("b", changed(3, 2))], OK, 1),
    ("a ZooKeeper controller, without a change, although there is a leader", CAUSE,
     on("c", ZOOKEEPER, created(isr="1"), changed(1, 1, isr="1")), VIOLATED, 1, ("waste/0/1",)),
    ("a ZooKeeper controller, without a change, although others are in sync", CAUSE,
     on("c", ZOOKEEPER, created(leader=-1, isr="1,2"), changed(1, 1, leader=-1, isr="1,2")),
     VIOLATED, 1, ("waste/0/1",)),
    ("two epochs at once", CAUSE, on("c", created(), changed(2, 1, leader=2)), VIOLATED, 1,
     ("waste/0/1",)),
    ("an earlier epoch", CAUSE, on("c", changed(4, 1), changed(3, 2, leader=2)), VIOLATED, 1,
     ("waste/0/2",)),
    ("another controller reports the change again", CAUSE,
     [*on("c", created(), changed(1, 1, leader=2)), *on("d", created(), changed(1, 1, leader=2))],
     OK, 1),
    ("a change in between is unknown", CAUSE, on("c", created(), changed(2, 2)), VACUOUS, 0),
    ("a partition of which the beginning is unknown", CAUSE, on("c", changed(7, 9)), VACUOUS, 0),
    ("a load for each election", LOADS,
     on("b", elected(), groups(), elected(leader_epoch=2), groups(), elected(TRANSACTIONS),
        transactional_ids()), OK, 3),
    ("a second load", LOADS, on("b", elected(), groups(), groups()), VIOLATED, 2, ("b.1.2",),
     (("b.1.2",),)),
    ("a second load of transactional ids", LOADS,
     on("b", elected(TRANSACTIONS), transactional_ids(), transactional_ids()), VIOLATED, 2,
     ("b.1.2",)),
    ("elected for another partition", LOADS, on("b", elected(partition=1), groups()), VIOLATED, 1,
     ("b.1.1",)),
    ("another broker was elected", LOADS, [*on("a", elected()), *on("b", groups())], VIOLATED, 1,
     ("b.1.0",)),
    ("elections one after another", EPOCHS,
     [*on("a", stands(1), stands(2)), *on("b", knows(5), stands(6))], OK, 2),
    ("two candidates in one epoch", EPOCHS, [*on("a", knows(1), stands(2)), *on("b", stands(2))],
     OK, 2),
    ("an epoch is left out", EPOCHS, on("a", knows(1), stands(3)), VIOLATED, 1, ("a.1.1",),
     (("a.1.1",),)),
    ("the first epoch of all", EPOCHS, on("a", stands(9)), VACUOUS, 0),
    ("later snapshots", SNAPSHOTS, on("a", snapshot(5), snapshot(9)), OK, 2),
    ("the same snapshot again", SNAPSHOTS, on("a", snapshot(5), snapshot(5)), VIOLATED, 2,
     ("a.1.1",), (("a.1.0", "a.1.1"),)),
    ("an earlier snapshot", SNAPSHOTS, on("a", snapshot(5), snapshot(4)), VIOLATED, 2,
     ("a.1.1",)),
    ("of another replica", SNAPSHOTS, [*on("a", snapshot(5)), *on("b", snapshot(5))], OK, 2),
]  # fmt: skip


BEYOND = 1000
"""An epoch above those of all other parts of a random history."""


def add_waste_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let a partition, a coordinator and a quorum change, mostly with need."""
    history.emit("c", created())
    leader_epoch, leader = 0, 1
    for partition_epoch in range(1, random.randrange(1, 8)):
        if random.random() < 0.5:
            leader_epoch, leader = leader_epoch + (2 if slip() else 1), leader % 3 + 1
        elif slip():
            leader_epoch += 1
        isr = random.choice(("1", "1,2", "1,2,3", "2,3")) if slip() else "1,2,3"
        again = 0 if slip() else 1
        for _ in range(2 if slip() else 1):
            history.emit(
                "c", changed(leader_epoch, partition_epoch + again, leader=leader, isr=isr)
            )
    for number in range(random.randrange(5)):
        broker = random.choice(("b1", "b2"))
        for topic, load in ((OFFSETS, groups), (TRANSACTIONS, transactional_ids)):
            if not slip():
                history.emit(broker, elected(topic, number))
            for _ in range(2 if slip() else 1):
                history.emit(broker, load())
    epoch, end_offset = BEYOND, 0
    for _ in range(random.randrange(5)):
        epoch += 2 if slip() else 1
        history.emit("c", knows(epoch))
        history.emit(random.choice(("c", "d")), stands(epoch + (2 if slip() else 1)))
        end_offset += 0 if slip() else 5
        history.emit("c", snapshot(end_offset))
