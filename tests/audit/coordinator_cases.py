"""What the rules about coordinators must find: each case is sound disks with one change."""

from collections.abc import Callable
from typing import NamedTuple

from kraftsim.audit.checks.committed_offsets import (
    GROUPS_IN_THEIR_PARTITION,
    OFFSET_EPOCHS_KNOWN,
    OFFSETS_DECIDED,
    OFFSETS_EXIST,
    OFFSETS_RETAINED,
)
from kraftsim.audit.checks.coordinator_decisions import DECISIONS_MARKED, MARKERS_DECIDED
from kraftsim.audit.checks.coordinator_states import (
    IDS_IN_THEIR_PARTITION,
    ONE_ID_EACH,
    PRODUCERS_ADVANCE,
    STATES_VALID,
    TRANSACTIONS_END,
)
from kraftsim.audit.checks.producer_id_blocks import BLOCKS_DISJOINT, IDS_ALLOCATED
from kraftsim.audit.checks.share_states import (
    BATCHES_INSIDE,
    DELIVERIES_KEPT,
    KEYS_IN_THEIR_PARTITION,
    STATES_ADVANCE,
)
from kraftsim.audit.rule import AuditRule
from tests.audit.coordinated_disks import STATE_TOPIC, CoordinatedDisks
from tests.audit.tables_of import START_MS, Row

MINUTE_MS = 60_000


class Case(NamedTuple):
    """Disks of a cluster, and what one rule says of them: nothing (None), or words of the only
    message, of a defect or of something undecided.
    """

    name: str
    rule: AuditRule
    disks: CoordinatedDisks
    message: str | None
    is_defect: bool = True


Build = Callable[[CoordinatedDisks], None]
CASES: list[tuple[str, AuditRule, Build, str | None, bool, dict[str, int | bool]]] = []


def case(
    rule: AuditRule,
    message: str | None = None,
    *,
    is_defect: bool = True,
    **of_disks: int | bool,
) -> Callable[[Build], Build]:
    """Declare a case; the function changes the disks, its name is the case's."""

    def declare(build: Build) -> Build:
        CASES.append((build.__name__, rule, build, message, is_defect, of_disks))
        return build

    return declare


def built(number: int) -> Case:
    """Return a case with its disks."""
    name, rule, build, message, is_defect, of_disks = CASES[number]
    disks = CoordinatedDisks(**of_disks)  # type: ignore[arg-type]  # values of several types
    build(disks)
    return Case(name, rule, disks, message, is_defect)


def drop(disks: CoordinatedDisks, row: Row) -> None:
    """Drop a record of a transactional id."""
    disks.rows["transaction_states"].remove(row)
    partitions = disks.rows["transaction_partitions"]
    place = (row["directory"], row["record_offset"])
    partitions[:] = [
        each for each in partitions if (each["directory"], each["record_offset"]) != place
    ]


# --------------------------------------------------------------------------------------------------
# Transactional ids


@case(STATES_VALID)
@case(PRODUCERS_ADVANCE)
@case(ONE_ID_EACH)
@case(IDS_IN_THEIR_PARTITION)
@case(MARKERS_DECIDED)
@case(DECISIONS_MARKED)
def sound_transactions(disks: CoordinatedDisks) -> None:
    """Three transactions of two ids, one aborted, one fenced and aborted."""
    disks.state("Empty", 7, 0)
    disks.transaction(7, 0)
    disks.transaction(7, 1, "ABORT")
    disks.state("Empty", 7, 3)
    disks.transaction(7, 3)
    disks.state("Empty", 8, 0, transactional_id="über")
    disks.state("Ongoing", 8, 0, transactional_id="über")
    disks.orders.transact(8, 0, 0)
    disks.state("PrepareAbort", 8, 1, transactional_id="über")
    disks.orders.marker("ABORT", 8, 1)
    disks.state("CompleteAbort", 8, 1, transactional_id="über")
    disks.state(None, 8, 1, transactional_id="über")


@case(PRODUCERS_ADVANCE)
@case(MARKERS_DECIDED)
def used_up_epochs(disks: CoordinatedDisks) -> None:
    """The last epoch of a producer id, and the next id."""
    disks.state("Empty", 7, 32766)
    disks.state("Ongoing", 7, 32766)
    disks.orders.transact(7, 32766, 0)
    disks.state("PrepareCommit", 7, 32767, next_producer_id=9)
    disks.orders.marker("COMMIT", 7, 32767)
    disks.state("CompleteCommit", 9, 0, previous_producer_id=7)
    disks.transaction(9, 0)


@case(STATES_VALID, "CompleteCommit at offset 3 follows Ongoing")
def decision_dropped(disks: CoordinatedDisks) -> None:
    """The coordinator's decision is gone."""
    disks.state("Empty", 7, 0)
    disks.transaction(7, 0)
    drop(disks, disks.rows["transaction_states"][2])


@case(STATES_VALID, "Ongoing at offset 3 follows PrepareCommit")
def completion_dropped(disks: CoordinatedDisks) -> None:
    """With one replica no record can be given up."""
    disks.state("Empty", 7, 0)
    disks.transaction(7, 0)
    drop(disks, disks.rows["transaction_states"][-1])
    disks.coordinator(STATE_TOPIC, "shop").end_offset -= 1
    disks.state("Ongoing", 7, 1)


@case(
    STATES_VALID,
    "may not have been replicated in time",
    is_defect=False,
    nodes=2,
    replicas=2,
)
def decision_given_up(disks: CoordinatedDisks) -> None:
    """A commit that was not replicated before the timeout, and an abort later."""
    disks.state("Empty", 7, 0)
    disks.state("Ongoing", 7, 0)
    disks.state("PrepareCommit", 7, 1)
    disks.state("PrepareAbort", 7, 1, after_ms=10 * MINUTE_MS)


@case(STATES_VALID, nodes=2, replicas=2)
def decision_written_twice(disks: CoordinatedDisks) -> None:
    """A record whose first append was not answered."""
    disks.state("Ongoing", 7, 0)
    disks.state("PrepareCommit", 7, 1)
    disks.state("PrepareCommit", 7, 1, after_ms=10 * MINUTE_MS)
    disks.state("CompleteCommit", 7, 1)


@case(PRODUCERS_ADVANCE, "the epoch of producer id 7 goes back from 5 to 3")
def epoch_goes_back(disks: CoordinatedDisks) -> None:
    """A state of before."""
    disks.state("Empty", 7, 3)
    disks.state("Empty", 7, 4)
    disks.state("Empty", 7, 5)
    disks.state("Empty", 7, 3)


@case(PRODUCERS_ADVANCE, "from 3 to 9 in one step")
def epoch_jumps(disks: CoordinatedDisks) -> None:
    """Records between are missing."""
    disks.state("Empty", 7, 3)
    disks.state("Empty", 7, 9)


@case(PRODUCERS_ADVANCE, "its producer id changes from 7 to 8")
def producer_id_changes(disks: CoordinatedDisks) -> None:
    """The epochs of the id are not used up."""
    disks.state("Empty", 7, 3)
    disks.state("Empty", 8, 0)


@case(PRODUCERS_ADVANCE)
def producer_id_after_a_tombstone(disks: CoordinatedDisks) -> None:
    """An expired id gets another producer id."""
    disks.state("Empty", 7, 3)
    disks.state(None, 7, 3)
    disks.state("Empty", 8, 0)
    disks.state("Empty", 8, 1)


@case(ONE_ID_EACH, "producer id 7 belongs to transactional id")
def shared_producer_id(disks: CoordinatedDisks) -> None:
    """Two transactional ids have one producer id."""
    disks.state("Empty", 7, 0)
    disks.state("Empty", 7, 0, transactional_id="other")


@case(IDS_IN_THEIR_PARTITION, "transactional id shop is in partition")
def id_in_another_partition(disks: CoordinatedDisks) -> None:
    """The hash chooses another partition."""
    right = disks.coordinator(STATE_TOPIC, "shop")
    wrong = next(log for log in disks.coordinators.values() if log is not right)
    disks.state("Empty", 7, 0, log=wrong)


@case(IDS_IN_THEIR_PARTITION, "if the topic has no more partitions", is_defect=False)
def id_in_another_partition_without_metadata(disks: CoordinatedDisks) -> None:
    """The number of partitions is unknown."""
    id_in_another_partition(disks)
    for table in ("metadata_topics", "metadata_partitions"):
        disks.rows[table].clear()


@case(TRANSACTIONS_END)
def open_transaction_in_time(disks: CoordinatedDisks) -> None:
    """A transaction that is younger than its timeout."""
    disks.homes[0].row["newest_ms"] = START_MS + 30_000
    disks.state("Ongoing", 7, 0)


@case(TRANSACTIONS_END, "is Ongoing for")
def open_transaction_overdue(disks: CoordinatedDisks) -> None:
    """The coordinator wrote other records ten minutes later."""
    disks.state("Ongoing", 7, 0)
    log = disks.coordinator(STATE_TOPIC, "shop")
    disks.state("Empty", 8, 0, transactional_id="pohs", log=log)
    disks.state("Empty", 8, 1, transactional_id="pohs", log=log, after_ms=10 * MINUTE_MS)


@case(TRANSACTIONS_END, "is PrepareCommit for")
def decision_without_completion(disks: CoordinatedDisks) -> None:
    """Markers are not written for ten minutes."""
    disks.state("PrepareCommit", 7, 1)
    log = disks.coordinator(STATE_TOPIC, "shop")
    disks.state("Empty", 8, 0, transactional_id="pohs", log=log)
    disks.state("Empty", 8, 1, transactional_id="pohs", log=log, after_ms=10 * MINUTE_MS)


@case(TRANSACTIONS_END, "nothing shows that its coordinator was running", is_defect=False)
def open_transaction_of_a_stopped_coordinator(disks: CoordinatedDisks) -> None:
    """Only the time of the files says that it is old."""
    disks.state("Ongoing", 7, 0)


# --------------------------------------------------------------------------------------------------
# Markers


@case(MARKERS_DECIDED, "no decision of a coordinator is for it")
def commit_without_decision(disks: CoordinatedDisks) -> None:
    """A COMMIT between two decisions that are there."""
    disks.state("Empty", 7, 0)
    disks.transaction(7, 0)
    disks.transaction(7, 1)
    for row in disks.rows["transaction_states"]:
        if row["producer_epoch"] == 1:
            row["producer_epoch"] = 2
    disks.state("Ongoing", 7, 2)


@case(MARKERS_DECIDED, "and the coordinator decided to commit")
def commit_turned_into_abort(disks: CoordinatedDisks) -> None:
    """The marker says the opposite."""
    disks.state("Empty", 7, 0)
    disks.transaction(7, 0)["control_type"] = "ABORT"


@case(MARKERS_DECIDED, "and the coordinator decided to abort")
def abort_turned_into_commit(disks: CoordinatedDisks) -> None:
    """The marker says the opposite."""
    disks.state("Empty", 7, 0)
    disks.transaction(7, 0, "ABORT")["control_type"] = "COMMIT"


@case(MARKERS_DECIDED, "kafka-transactions.sh abort may have written it", is_defect=False)
def abort_by_an_operator(disks: CoordinatedDisks) -> None:
    """An ABORT that no coordinator decided."""
    disks.state("Empty", 7, 0)
    disks.transaction(7, 0)
    disks.orders.marker("ABORT", 7, 0)


@case(MARKERS_DECIDED, "no decision of a coordinator is for it")
def last_decision_dropped(disks: CoordinatedDisks) -> None:
    """All disks are here, of a broker that was stopped cleanly."""
    disks.state("Empty", 7, 0)
    disks.transaction(7, 0)
    for row in disks.rows["transaction_states"][-2:]:
        drop(disks, row)


@case(MARKERS_DECIDED, "it may be in a replica", is_defect=False, is_clean=False)
def decision_after_the_copy(disks: CoordinatedDisks) -> None:
    """The coordinator's log was copied before."""
    last_decision_dropped(disks)


@case(MARKERS_DECIDED)
def decision_compacted(disks: CoordinatedDisks) -> None:
    """Of epochs before the first that the log still has; the last one is examined."""
    disks.state("Empty", 7, 0)
    disks.transaction(7, 0)
    disks.transaction(7, 1)
    disks.transaction(7, 2)
    for row in disks.rows["transaction_states"][:5]:
        drop(disks, row)


@case(MARKERS_DECIDED, "no decision of a coordinator is for it")
def marker_of_no_transactional_id(disks: CoordinatedDisks) -> None:
    """The whole log of every coordinator is here, and none knows the producer."""
    disks.state("Empty", 7, 0)
    disks.orders.marker("COMMIT", 99, 0)


@case(DECISIONS_MARKED, "has 0 of 1 COMMIT markers of producer id 7, epoch 1")
def marker_cut_out(disks: CoordinatedDisks) -> None:
    """The coordinator wrote it before it completed the transaction."""
    disks.state("Empty", 7, 0)
    disks.orders.batches.remove(disks.transaction(7, 0))
    disks.transaction(7, 1)


@case(DECISIONS_MARKED, "not all its replicas are here", is_defect=False, is_clean=False)
def marker_after_the_copy(disks: CoordinatedDisks) -> None:
    """The partition may have been copied before its coordinator's log."""
    disks.state("Empty", 7, 0)
    disks.orders.batches.remove(disks.transaction(7, 0))


@case(DECISIONS_MARKED, "has 1 of 2 COMMIT markers of producer id 7, epoch 0")
def marker_of_an_epoch_with_several(disks: CoordinatedDisks) -> None:
    """Before transaction.version 2 many transactions share an epoch."""
    disks.state("Empty", 7, 0)
    for _ in range(2):
        for status in ("Ongoing", "PrepareCommit", "CompleteCommit"):
            disks.state(status, 7, 0, client_transaction_version=0)
        disks.orders.transact(7, 0, 0)
    disks.orders.marker("COMMIT", 7, 0)


@case(DECISIONS_MARKED)
def markers_compacted(disks: CoordinatedDisks) -> None:
    """Compaction removes markers; the one of a topic that is not compacted is examined."""
    marker_cut_out(disks)
    disks.orders.replica["cleaned_until"] = 2
    disks.orders = disks.create("plain")[0]
    disks.transaction(7, 2, partitions=(("plain", 0),))


@case(DECISIONS_MARKED, "partition __consumer_offsets-1 has 0 of 1 COMMIT markers")
def marker_of_offsets_turned(disks: CoordinatedDisks) -> None:
    """Nothing was compacted there."""
    log = disks.coordinator("__consumer_offsets", "billing")
    offsets = ((str(log.place["topic"]), int(str(log.place["partition"]))),)
    disks.state("Empty", 7, 0)
    disks.state("Ongoing", 7, 0, partitions=offsets)
    disks.offset(3, is_transactional=True, producer_id=7, producer_epoch=0)
    disks.state("PrepareCommit", 7, 1, partitions=offsets)
    log.marker("ABORT", 7, 1)
    disks.state("CompleteCommit", 7, 1)


@case(MARKERS_DECIDED, "and the partition was in no such transaction")
def marker_in_a_foreign_partition(disks: CoordinatedDisks) -> None:
    """The transaction was about another partition."""
    disks.state("Empty", 7, 0)
    disks.transaction(7, 0)
    disks.create("foreign")[0].marker("COMMIT", 7, 1)


# --------------------------------------------------------------------------------------------------
# Producer ids


@case(BLOCKS_DISJOINT)
@case(IDS_ALLOCATED)
def sound_blocks(disks: CoordinatedDisks) -> None:
    """Ids of blocks, and one of before a migration."""
    disks.block(5000)
    disks.block(6000)
    disks.orders.produce(17, 0, 0)
    disks.orders.produce(5999, 0, 0)
    disks.snapshot()


@case(BLOCKS_DISJOINT, "was allocated to broker 1 after the one that ends before 6000")
def block_twice(disks: CoordinatedDisks) -> None:
    """The next block is not after the one before."""
    disks.block(6000)
    disks.block(6000)


@case(BLOCKS_DISJOINT, "has 500 ids")
def blocks_overlap(disks: CoordinatedDisks) -> None:
    """A broker takes 1000 ids."""
    disks.block(5000)
    disks.block(6000)
    disks.block(6500)


@case(BLOCKS_DISJOINT, "has 500 ids", is_defect=False)
def blocks_of_another_size(disks: CoordinatedDisks) -> None:
    """Controllers of kraftsim may be configured so."""
    disks.block(6000)
    disks.block(6500)
    disks.block(7000)


@case(BLOCKS_DISJOINT, "blocks below it are allocated again")
def block_lost_in_a_snapshot(disks: CoordinatedDisks) -> None:
    """The snapshot has an older block."""
    disks.block(6000)
    disks.block(7000)
    disks.snapshot()
    disks.rows["producer_id_blocks"][-1]["next_producer_id"] = 6000


@case(IDS_ALLOCATED, "the blocks that were allocated end before 6000")
def id_beyond_all_blocks(disks: CoordinatedDisks) -> None:
    """No block has the id."""
    disks.block(6000)
    disks.orders.produce(6000, 0, 0)


@case(IDS_ALLOCATED, "the copy of the metadata log may be older", is_defect=False, is_clean=False)
def id_after_the_copy(disks: CoordinatedDisks) -> None:
    """The batch is younger than the metadata log."""
    disks.block(6000)
    disks.orders.produce(6000, 0, 0, max_ms=START_MS + 20_000_000)


# --------------------------------------------------------------------------------------------------
# Group offsets


@case(GROUPS_IN_THEIR_PARTITION)
@case(OFFSETS_DECIDED)
@case(OFFSETS_EXIST)
@case(OFFSETS_RETAINED)
@case(OFFSET_EPOCHS_KNOWN)
def sound_offsets(disks: CoordinatedDisks) -> None:
    """Offsets with and without a transaction, one aborted, one open, one removed."""
    disks.homes[0].row["newest_ms"] = START_MS + 30_000
    disks.orders.batch(10)
    disks.offset(3, committed_leader_epoch=0)
    disks.offset(10, committed_leader_epoch=0)
    log = disks.coordinator("__consumer_offsets", "billing")
    disks.offset(99, is_transactional=True, producer_id=7, producer_epoch=0)
    log.marker("ABORT", 7, 1)
    last: Row = {"producer_id": 7, "producer_epoch": 1, "committed_leader_epoch": 0}
    disks.offset(9, is_transactional=True, **last)
    log.marker("COMMIT", 7, 2)
    disks.offset(99, is_transactional=True, producer_id=8, producer_epoch=0)
    disks.offset(98, group="former")
    disks.offset(None, group="former")


@case(GROUPS_IN_THEIR_PARTITION, "group billing is in partition")
def group_in_another_partition(disks: CoordinatedDisks) -> None:
    """The directory was renamed."""
    row = disks.offset(3)
    row["partition"] = (row["partition"] + 1) % 3


@case(OFFSETS_DECIDED, "and the coordinator had completed it")
def offset_without_marker(disks: CoordinatedDisks) -> None:
    """The transaction goes on with the next epoch."""
    disks.offset(3, is_transactional=True, producer_id=7, producer_epoch=0)
    disks.state("CompleteCommit", 7, 1)


@case(OFFSETS_DECIDED, "for longer than any transaction may be open")
def offset_pending_for_long(disks: CoordinatedDisks) -> None:
    """Other records came an hour later."""
    disks.offset(3, is_transactional=True, producer_id=7, producer_epoch=0)
    disks.coordinator("__consumer_offsets", "billing").now_ms += 60 * MINUTE_MS
    disks.offset(4)


@case(OFFSETS_DECIDED, "the marker came later", is_defect=False, is_clean=False)
def offset_marked_after_the_copy(disks: CoordinatedDisks) -> None:
    """The copy of the group's log may be older."""
    offset_without_marker(disks)


@case(OFFSETS_EXIST, "ends at 10")
def offset_beyond_the_end(disks: CoordinatedDisks) -> None:
    """All replicas are here."""
    disks.orders.batch(10)
    disks.offset(11)


@case(OFFSETS_EXIST, "not all its replicas are here", is_defect=False, nodes=2, replicas=2)
def offset_beyond_the_end_of_one_replica(disks: CoordinatedDisks) -> None:
    """The other replica may be longer."""
    disks.orders.batch(10)
    disks.offset(11)
    disks.logs = [
        log for log in disks.logs if (log.place["topic"], log.home.node_id) != ("orders", 2)
    ]


@case(OFFSETS_RETAINED, "begins at 5")
def offset_below_the_start(disks: CoordinatedDisks) -> None:
    """Retention deleted what the group had not consumed."""
    disks.orders.batch(10)
    disks.orders.replica["log_start_offset"] = 5
    disks.offset(4)


@case(OFFSET_EPOCHS_KNOWN, "the newest epoch of the partition is at most 0")
def offset_of_an_unknown_epoch(disks: CoordinatedDisks) -> None:
    """No election gave that epoch."""
    disks.orders.batch(10)
    disks.offset(4, committed_leader_epoch=6)


# --------------------------------------------------------------------------------------------------
# Share groups


@case(STATES_ADVANCE)
@case(BATCHES_INSIDE)
@case(DELIVERIES_KEPT)
@case(KEYS_IN_THEIR_PARTITION)
def sound_share_group(disks: CoordinatedDisks) -> None:
    """Snapshots, updates, an offset that an operator set back, and a tombstone."""
    disks.orders.batch(30)
    disks.share(0)
    disks.share(-1, (0, 4, 2, 1), (5, 6, 0, 1), type="ShareUpdate")
    disks.share(5, (5, 6, 0, 2), (7, 9, 0, 1), snapshot_epoch=2)
    disks.share(7, (7, 9, 2, 1), type="ShareUpdate", snapshot_epoch=2)
    disks.share(2, snapshot_epoch=3, state_epoch=1)
    disks.share(0, is_tombstone=True, snapshot_epoch=None, batches=None, start_offset=None)
    disks.share(0, snapshot_epoch=0)


@case(STATES_ADVANCE, "the snapshot epoch is 1 after 2")
def share_snapshot_goes_back(disks: CoordinatedDisks) -> None:
    """An older snapshot came back."""
    disks.share(0, snapshot_epoch=2)
    disks.share(0, snapshot_epoch=1)


@case(STATES_ADVANCE, "the start offset is 3 after 5")
def share_start_goes_back(disks: CoordinatedDisks) -> None:
    """Acknowledged records would be delivered again."""
    disks.share(5)
    disks.share(-1, type="ShareUpdate")
    disks.share(3, snapshot_epoch=2)


@case(STATES_ADVANCE, "the leader epoch is 1 after 2")
def share_leader_goes_back(disks: CoordinatedDisks) -> None:
    """A fenced leader wrote."""
    disks.share(0, share_leader_epoch=2)
    disks.share(0, share_leader_epoch=1)


@case(BATCHES_INSIDE, "ends after the end of the partition, 10")
def share_batch_beyond_the_end(disks: CoordinatedDisks) -> None:
    """Records that are not there."""
    disks.orders.batch(10)
    disks.share(0, (8, 10, 2, 1))


@case(BATCHES_INSIDE, "overlaps with the batch before it")
def share_batches_overlap(disks: CoordinatedDisks) -> None:
    """Two states for one record."""
    disks.orders.batch(30)
    disks.share(0, (0, 4, 2, 1), (4, 5, 0, 1))


@case(BATCHES_INSIDE, "begins before the start offset 3")
def share_batch_before_the_start(disks: CoordinatedDisks) -> None:
    """A snapshot begins at its start offset."""
    disks.share(3, (2, 4, 2, 1))


@case(BATCHES_INSIDE, "ends before it begins")
def share_batch_reversed(disks: CoordinatedDisks) -> None:
    """No records."""
    disks.share(0, (5, 4, 2, 1))


@case(DELIVERIES_KEPT, "has state 0 and delivery count 1 after state 0 and count 2")
def share_delivery_forgotten(disks: CoordinatedDisks) -> None:
    """The count falls."""
    disks.share(0, (3, 4, 0, 2))
    disks.share(-1, (3, 3, 0, 1), type="ShareUpdate")


@case(DELIVERIES_KEPT, "after state 2 and count 1")
def share_acknowledgement_forgotten(disks: CoordinatedDisks) -> None:
    """What was acknowledged is available again."""
    disks.share(0, (3, 4, 2, 1))
    disks.share(-1, (3, 3, 0, 1), type="ShareUpdate")


@case(KEYS_IN_THEIR_PARTITION, "share-partition workers:id-of-orders:0 is in partition")
def share_state_in_another_partition(disks: CoordinatedDisks) -> None:
    """The hash chooses another partition."""
    row = disks.share(0)
    row["partition"] = (row["partition"] + 1) % 3
