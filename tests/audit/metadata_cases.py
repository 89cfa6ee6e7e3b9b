"""What the rules about the metadata log, partition directories and tiers must find: cases as in
`coordinator_cases`. `CASES` are all of both files.
"""

from kraftsim.audit.checks.assigned_replicas import NO_STRAYS, REPLICAS_PRESENT
from kraftsim.audit.checks.metadata_logs import (
    ELECTIONS,
    LOG_CONTIGUOUS,
    LOGS_EQUAL,
    SNAPSHOTS_EQUAL_LOG,
)
from kraftsim.audit.checks.tiers import FILES_KNOWN, LOG_COVERED, SEGMENTS_STORED, STATES_VALID
from tests.audit.coordinated_disks import CoordinatedDisks
from tests.audit.coordinator_cases import CASES, built, case
from tests.audit.tables_of import Row

__all__ = ("CASES", "built")


# --------------------------------------------------------------------------------------------------
# The metadata log


@case(LOGS_EQUAL, nodes=3)
@case(LOG_CONTIGUOUS, nodes=3)
@case(SNAPSHOTS_EQUAL_LOG, nodes=3)
@case(ELECTIONS, nodes=3)
@case(NO_STRAYS, nodes=3)
@case(REPLICAS_PRESENT, nodes=3)
def sound_metadata(disks: CoordinatedDisks) -> None:
    """Three controllers, a snapshot, a topic that was removed, a rest of a deposed leader."""
    disks.block(1000)
    for home in disks.homes:
        disks.add(
            "quorum_states",
            log_dir=home.path,
            node_id=home.node_id,
            file="__cluster_metadata-0/quorum-state",
            leader_id=1,
            leader_epoch=0,
        )
    disks.snapshot()
    disks.partition("id-of-orders", 0, is_change=True, leader=1)
    disks.create("gone", logs=False)
    disks.remove("gone")
    uncommitted = disks.metadata[2].batches[-1]
    for log in disks.metadata:
        log.batches[-1]["leader_epoch"] = log.leader_epoch = 2
    uncommitted.update(leader_epoch=1, crc=1)
    for row in disks.rows["quorum_states"]:
        row["leader_epoch"] = 2


def last_common(disks: CoordinatedDisks, node: int) -> Row:
    """Return a batch of the copy of one node."""
    return disks.metadata[node - 1].batches[2]


@case(LOGS_EQUAL, "another one of epoch 0", nodes=2)
def metadata_of_one_controller_differs(disks: CoordinatedDisks) -> None:
    """The same epoch, another content."""
    last_common(disks, 2)["crc"] = 1


@case(LOGS_EQUAL, "and the older one was committed", nodes=3)
def committed_metadata_replaced(disks: CoordinatedDisks) -> None:
    """A majority has the older batch."""
    for batch in disks.metadata[2].batches[2:]:
        batch["leader_epoch"] = 4


@case(LOG_CONTIGUOUS, "offset 1 is followed by 3")
def metadata_with_a_hole(disks: CoordinatedDisks) -> None:
    """A batch is missing."""
    disks.metadata[0].batches.remove(last_common(disks, 1))


@case(LOG_CONTIGUOUS, "the log begins at offset 2, and no snapshot reaches up to it")
def metadata_without_its_snapshot(disks: CoordinatedDisks) -> None:
    """The beginning is gone."""
    del disks.metadata[0].batches[:2]


@case(LOG_CONTIGUOUS, "is of epoch 0 and the one before it of 3")
def metadata_epoch_goes_back(disks: CoordinatedDisks) -> None:
    """Epochs decrease."""
    last_common(disks, 1)["leader_epoch"] = 3


def snapshotted(disks: CoordinatedDisks, table: str) -> Row:
    """Make a snapshot and return the last row that a table has of it."""
    disks.say(
        "CONFIG_RECORD", resourceType=2, resourceName="orders", name="retention.ms", value="1"
    )
    disks.say("FEATURE_LEVEL_RECORD", name="metadata.version", featureLevel=20)
    disks.block(1000)
    disks.snapshot()
    return disks.rows[table][-1]


@case(SNAPSHOTS_EQUAL_LOG, "has topic id-of-orders: nothing")
def snapshot_without_a_topic(disks: CoordinatedDisks) -> None:
    """A topic is missing; its partition is not a second finding."""
    disks.rows["metadata_topics"].remove(snapshotted(disks, "metadata_topics"))


@case(SNAPSHOTS_EQUAL_LOG, "has partition id-of-orders 0: leader 9")
def snapshot_with_another_leader(disks: CoordinatedDisks) -> None:
    """A partition differs."""
    snapshotted(disks, "metadata_partitions")["leader"] = 9


@case(SNAPSHOTS_EQUAL_LOG, "has next producer id : 500, and")
def snapshot_with_an_older_block(disks: CoordinatedDisks) -> None:
    """Producer ids go back."""
    snapshotted(disks, "producer_id_blocks")["next_producer_id"] = 500


@case(SNAPSHOTS_EQUAL_LOG, "has configuration 2 orders retention.ms: 2, and")
def snapshot_with_another_configuration(disks: CoordinatedDisks) -> None:
    """A value differs."""
    snapshotted(disks, "metadata_records")
    for row in disks.rows["metadata_records"]:
        if row["type"] == "CONFIG_RECORD" and row.get("snapshot_end_offset"):
            row["data"] = row["data"].replace('"value": "1"', '"value": "2"')


@case(ELECTIONS, "epoch 0 has leader 1 in /copies/broker-1 and leader 2", nodes=2)
def two_leaders_of_an_epoch(disks: CoordinatedDisks) -> None:
    """Two quorum-state files disagree."""
    for home in disks.homes:
        disks.add(
            "quorum_states",
            log_dir=home.path,
            file="__cluster_metadata-0/quorum-state",
            leader_id=home.node_id,
            leader_epoch=0,
        )


def old_quorum_state(disks: CoordinatedDisks, lasted_ms: int) -> None:
    """A quorum-state that is older than the log beside it."""
    disks.add(
        "quorum_states",
        log_dir=disks.homes[0].path,
        file="__cluster_metadata-0/quorum-state",
        leader_id=-1,
        leader_epoch=1,
    )
    for at_ms in (0, lasted_ms):
        disks.say("NO_OP_RECORD", at_ms=at_ms)
    for batch in disks.metadata[0].batches[-2:]:
        batch["leader_epoch"] = 2


@case(ELECTIONS, "the node can vote a second time")
def vote_forgotten(disks: CoordinatedDisks) -> None:
    """The newer epoch lasted for a minute."""
    old_quorum_state(disks, 60_000)


@case(ELECTIONS, "or the copy was taken during an election", is_defect=False)
def copied_in_an_election(disks: CoordinatedDisks) -> None:
    """The newer epoch has just begun."""
    old_quorum_state(disks, 100)


# --------------------------------------------------------------------------------------------------
# Partition directories


@case(NO_STRAYS, "the metadata log does not assign the partition to it")
def stray_directory(disks: CoordinatedDisks) -> None:
    """A directory of no topic."""
    disks.homes[0].log("ghost")


@case(NO_STRAYS, "the topic of that name has the id id-of-orders")
def directory_of_a_former_topic(disks: CoordinatedDisks) -> None:
    """partition.metadata has another id."""
    disks.orders.replica["topic_id"] = "former"


@case(NO_STRAYS, "was not stopped cleanly", is_defect=False, is_clean=False)
def stray_directory_of_a_killed_broker(disks: CoordinatedDisks) -> None:
    """It may not have been deleted yet."""
    stray_directory(disks)


@case(REPLICAS_PRESENT, "assigns absent-0 to broker 1, and no directory of the broker has it")
def missing_directory(disks: CoordinatedDisks) -> None:
    """A replica without its directory."""
    disks.create("absent", logs=False)


@case(REPLICAS_PRESENT, "or not all its disks are here", is_defect=False)
def directory_on_another_disk(disks: CoordinatedDisks) -> None:
    """The broker registered two log directories."""
    missing_directory(disks)
    for row in disks.rows["metadata_records"]:
        row["data"] = row["data"].replace('["directory-1"]', '["directory-1", "directory-1b"]')


# --------------------------------------------------------------------------------------------------
# Tiers


def tiered_log(disks: CoordinatedDisks) -> Row:
    """Two remote segments, and the local log after them; return the last file."""
    disks.tiered("a", 0, 9)
    file = disks.tiered("b", 10, 19)
    disks.orders.roll(20)
    disks.orders.segments = disks.orders.segments[-1:]
    disks.orders.batch(5)
    disks.orders.replica["log_start_offset"] = 0
    return file


@case(STATES_VALID)
@case(SEGMENTS_STORED)
@case(FILES_KNOWN)
@case(LOG_COVERED)
def sound_tiers(disks: CoordinatedDisks) -> None:
    """A segment that was deleted, and one that is being copied, too."""
    tiered_log(disks)
    for state in ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED"):
        disks.remote("c", state, 0, 5)
    disks.remote("c", "DELETE_SEGMENT_STARTED", 0, 5)
    disks.remote("c", "DELETE_SEGMENT_FINISHED", 0, 5)
    disks.remote("d", "COPY_SEGMENT_STARTED", 20, 22)


@case(STATES_VALID, "is in state COPY_SEGMENT_FINISHED after DELETE_SEGMENT_FINISHED")
def remote_segment_back(disks: CoordinatedDisks) -> None:
    """A deleted segment is finished again."""
    for state in ("COPY_SEGMENT_STARTED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED"):
        disks.remote("c", state, 0, 5)
    disks.remote("c", "COPY_SEGMENT_FINISHED", 0, 5)


@case(STATES_VALID, "is in state COPY_SEGMENT_FINISHED after nothing")
def remote_segment_not_announced(disks: CoordinatedDisks) -> None:
    """The first event is missing."""
    disks.remote("c", "COPY_SEGMENT_FINISHED", 0, 5)


@case(SEGMENTS_STORED, "has no log file in remote storage")
def remote_file_missing(disks: CoordinatedDisks) -> None:
    """The object is gone."""
    disks.rows["remote_files"].remove(tiered_log(disks))


@case(SEGMENTS_STORED, "has 1000 bytes, and the file in remote storage 900")
def remote_file_shorter(disks: CoordinatedDisks) -> None:
    """The object is cut."""
    tiered_log(disks)["size"] = 900


@case(SEGMENTS_STORED, "was not stopped cleanly", is_defect=False, is_clean=False)
def remote_file_deleted_after_the_copy(disks: CoordinatedDisks) -> None:
    """The deletion may not be in the copy of its metadata."""
    remote_file_missing(disks)


@case(FILES_KNOWN, "belongs to no segment in __remote_log_metadata")
def remote_file_unknown(disks: CoordinatedDisks) -> None:
    """No event names the segment."""
    tiered_log(disks)["segment_id"] = "z"


@case(LOG_COVERED, "offsets 10 to 19 of orders-0 are in no complete remote segment")
def local_log_deleted_too_early(disks: CoordinatedDisks) -> None:
    """The second copy was never finished."""
    tiered_log(disks)
    rows = disks.rows["remote_segments"]
    rows.remove(rows[-1])


@case(LOG_COVERED, "offsets 0 to 9 of orders-0 are in no complete remote segment")
def remote_gap_before_a_segment(disks: CoordinatedDisks) -> None:
    """Between two segments, below the local log."""
    disks.tiered("0", -5, -1)
    tiered_log(disks)
    disks.rows["remote_segments"][2]["state"] = "DELETE_SEGMENT_FINISHED"
    disks.rows["remote_segments"][3]["state"] = "DELETE_SEGMENT_FINISHED"


@case(LOG_COVERED, "was not stopped cleanly", is_defect=False, is_clean=False)
def local_log_start_unknown(disks: CoordinatedDisks) -> None:
    """A checkpoint of a killed broker may be old."""
    local_log_deleted_too_early(disks)
