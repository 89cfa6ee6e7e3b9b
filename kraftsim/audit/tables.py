"""The tables that an audit reads from log directories: names, columns, types and units.

One row of a table comes from one place on one disk, which `log_dir` and `file` (and `position`, in
bytes) name. Offsets are inclusive unless a name says `end` or `next`; times are milliseconds since
1970 in UTC; a null means that the file does not say. No column is called `offset`: it is a word of
SQL.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import pyarrow as pa

_TYPES: Final = {
    "int": pa.int32(),
    "long": pa.int64(),
    "text": pa.string(),
    "bool": pa.bool_(),
    "bytes": pa.binary(),
}


class TableColumn(NamedTuple):
    """One column; `type` is int (32 bits), long (64 bits), text, bool or bytes."""

    name: str
    type: str
    meaning: str


class DiskTable(NamedTuple):
    """One table, with the meaning of its rows."""

    name: str
    meaning: str
    columns: tuple[TableColumn, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns as an Arrow schema; all may be null."""
        return pa.schema([pa.field(each.name, _TYPES[each.type]) for each in self.columns])


def _columns(text: str) -> tuple[TableColumn, ...]:
    """Return the columns of lines `name type meaning`."""
    rows = (line.split(None, 2) for line in text.splitlines() if line)
    return tuple(TableColumn(name, kind, meaning) for name, kind, meaning in rows)


_LOG_DIR = """
log_dir text the directory as it was named on the command line, without a slash at its end
node_id int node.id (broker.id) of its meta.properties; null without one
"""
_PARTITION = (
    _LOG_DIR
    + """
directory text the partition's directory in log_dir, for example orders-0
topic text the topic, from the directory's name
partition int the partition, from the directory's name
"""
)
_FILE = _PARTITION + "file text the file, relative to log_dir\n"
_RECORD = (
    _FILE
    + """
position long where the record's batch begins in the file, in bytes
record_offset long the record's offset
leader_epoch int partition leader epoch of its batch
"""
)

_CLIENT = """
source text the file that a client recorded, or the capture
line long the line of the file, or the number of the frame in the capture, from 1
client text its address in a capture, or a name that it gave; null without one
time_ms long when the response arrived, or as the client recorded it; null if unknown
"""

TABLES: Final[Mapping[str, DiskTable]] = {
    table.name: table
    for table in (
        DiskTable(
            "log_dirs",
            "One row per log directory.",
            _columns(
                _LOG_DIR
                + """
cluster_id text cluster.id of its meta.properties
directory_id text directory.id of its meta.properties
version int version of its meta.properties: 0 of ZooKeeper mode, 1 of KRaft
is_clean bool whether .kafka_cleanshutdown is there: the broker was stopped cleanly
has_metadata_log bool whether __cluster_metadata-0 is in it
newest_ms long the latest time at which a file in it was changed
"""
            ),
        ),
        DiskTable(
            "files",
            "One row per file, known or not.",
            _columns(
                _FILE
                + """
topic_id text topic id of the partition.metadata beside it, as Kafka prints it
kind text log, index, timeindex, txnindex, snapshot, checkpoint, or the name of a single file
base_offset long the offset in the file's name
size long in bytes
modified_ms long when the file was last changed
state text live, or why it is out of the log: deleted, cleaned, swap, future, delete, stray
"""
            ),
        ),
        DiskTable(
            "problems",
            "One row per place that cannot be read, or contradicts its own file or segment.",
            _columns(
                _FILE
                + """
position long where, in bytes
size long the number of bytes concerned; null where that is unknown
problem text torn, crc, malformed, unreadable, unsupported, index, name
reason text in words
is_tail bool whether nothing readable follows it in the newest segment of the partition
"""
            ),
        ),
        DiskTable(
            "replicas",
            "One row per partition directory that is live: what its files say about the whole log.",
            _columns(
                _PARTITION
                + """
topic_id text of partition.metadata
first_offset long base offset of the first batch; null if the log is empty
end_offset long one past the last readable batch; if there is none, base offset of the last segment
segments int the number of segments
first_segment_offset long base offset in the name of the first segment
log_start_offset long from log-start-offset-checkpoint; null if it is not there
recovery_point long from recovery-point-offset-checkpoint
high_watermark long from replication-offset-checkpoint: at least this much was committed
cleaned_until long from cleaner-offset-checkpoint: below it compaction may have removed records
is_future bool whether it is the future replica of a move between log directories
"""
            ),
        ),
        DiskTable(
            "batches",
            "One row per record batch (or message, in the formats before 2), headers only.",
            _columns(
                _FILE
                + """
position long where it begins, in bytes
size long in bytes, its length field included
base_offset long of the first record
last_offset long of the last record
leader_epoch int partition leader epoch; null before format 2
magic int message format: 0, 1 or 2
crc long as stored
crc_valid bool whether the checksum fits; null where it was not computed
compression text none, gzip, snappy, lz4 or zstd
timestamp_type text CreateTime or LogAppendTime
is_transactional bool by the attributes
is_control bool by the attributes
first_ms long base timestamp; null if the batch has a delete horizon
max_ms long largest timestamp
delete_horizon_ms long of a batch that compaction keeps for its producer state only
producer_id long -1 without one
producer_epoch int -1 without one
base_sequence int -1 without one
last_sequence int -1 without one
records int the number of records in its header
control_type text of a control batch: ABORT, COMMIT, LEADER_CHANGE, SNAPSHOT_HEADER, ...
coordinator_epoch int of a transaction marker
segment_offset long base offset in the segment's name
"""
            ),
        ),
        DiskTable(
            "records",
            "One row per record; read on demand, it decompresses every batch.",
            _columns(
                _RECORD
                + """
timestamp_ms long its own, or that of the append
key bytes null without one
value bytes null in a tombstone
headers text JSON list of [key, value in hex or null]
producer_id long of its batch
producer_epoch int of its batch
sequence int its own; -1 without one
is_transactional bool of its batch
is_control bool of its batch
"""
            ),
        ),
        DiskTable(
            "offset_index",
            "One row per entry of an offset index.",
            _columns(
                _FILE
                + """
base_offset long in the file's name
entry int its place in the file, from 0
indexed_offset long the offset
indexed_position long the byte in the segment
"""
            ),
        ),
        DiskTable(
            "time_index",
            "One row per entry of a time index.",
            _columns(
                _FILE
                + """
base_offset long in the file's name
entry int its place in the file, from 0
indexed_ms long the timestamp
indexed_offset long the offset
"""
            ),
        ),
        DiskTable(
            "aborted_transactions",
            "One row per entry of a transaction index.",
            _columns(
                _FILE
                + """
base_offset long in the file's name
producer_id long that aborted
first_offset long of the transaction in this partition
last_offset long the offset of its ABORT marker
last_stable_offset long when the marker was written
"""
            ),
        ),
        DiskTable(
            "producer_snapshots",
            "One row per producer in a producer snapshot; a row of nulls for an empty snapshot.",
            _columns(
                _FILE
                + """
snapshot_offset long in the file's name: the state before this offset
producer_id long null in the only row of an empty snapshot
producer_epoch int its latest
last_sequence int
last_offset long
offset_delta int last minus base offset of its last batch
timestamp_ms long of its last batch
coordinator_epoch int of its last marker, -1 without one
transaction_first_offset long of its open transaction, -1 without one
""".replace(
                    "last_sequence int\n",
                    "last_sequence int of its last batch, -1 after a marker only\n",
                ).replace("last_offset long\n", "last_offset long of its last batch\n")
            ),
        ),
        DiskTable(
            "leader_epochs",
            "One row per entry of a leader-epoch-checkpoint.",
            _columns(
                _FILE
                + """
leader_epoch int the epoch
start_offset long the first offset of that epoch
"""
            ),
        ),
        DiskTable(
            "offset_checkpoints",
            "One row per entry of a checkpoint of a log directory.",
            _columns(
                _LOG_DIR
                + """
file text the checkpoint: replication-offset-checkpoint, recovery-point-offset-checkpoint, ...
topic text of the entry
partition int of the entry
checkpointed_offset long the entry
"""
            ),
        ),
        DiskTable(
            "quorum_states",
            "One row per quorum-state file.",
            _columns(
                _FILE
                + """
leader_id int -1 without one
leader_epoch int the epoch
voted_id int -1 without one
voted_directory_id text of the candidate; null before version 1
data_version int of the file
"""
            ),
        ),
        DiskTable(
            "metadata_records",
            "One row per record of __cluster_metadata, in the log and in snapshots.",
            _columns(
                _RECORD
                + """
timestamp_ms long of the append
snapshot_end_offset long of the snapshot that it is in; null in the log
snapshot_epoch int of the snapshot that it is in; null in the log
type text name of the record's type: PARTITION_RECORD, PRODUCER_IDS_RECORD, ...; null if unknown
version int of the record
data text the fields as JSON, as kafka-dump-log prints them
"""
            ),
        ),
        DiskTable(
            "metadata_topics",
            "One row per TopicRecord and RemoveTopicRecord of the metadata log and its snapshots.",
            _columns(
                _RECORD
                + """
snapshot_end_offset long of the snapshot that it is in; null in the log
topic_id text as Kafka prints it
topic_name text null for a RemoveTopicRecord
is_removed bool whether it is a RemoveTopicRecord
"""
            ),
        ),
        DiskTable(
            "metadata_partitions",
            "One row per PartitionRecord and PartitionChangeRecord; null: the change keeps it.",
            _columns(
                _RECORD
                + """
snapshot_end_offset long of the snapshot that it is in; null in the log
topic_id text as Kafka prints it
partition_id int the partition that the record is about
is_change bool whether it is a PartitionChangeRecord
leader int -1 without one; null where a change keeps it
registered_leader_epoch int of a PartitionRecord; a change raises it by one if it names a leader
partition_epoch int of a PartitionRecord; a change raises it by one
replicas text JSON list of node ids; null where a change keeps them
isr text JSON list of node ids; null where a change keeps them
"""
            ),
        ),
        DiskTable(
            "producer_id_blocks",
            "One row per ProducerIdsRecord of the metadata log and its snapshots.",
            _columns(
                _RECORD
                + """
snapshot_end_offset long of the snapshot that it is in; null in the log
broker_id int whose block was allocated
broker_epoch long of the broker
next_producer_id long the first id after the block
"""
            ),
        ),
        DiskTable(
            "transaction_states",
            "One row per record of __transaction_state.",
            _columns(
                _RECORD
                + """
timestamp_ms long of the record
transactional_id text of the key
is_tombstone bool whether the id was removed; the next columns are null then
producer_id long current
previous_producer_id long -1 without one (KIP-890)
next_producer_id long -1 without one (KIP-890)
producer_epoch int current
next_producer_epoch int -1 without one (KIP-939)
timeout_ms int transaction timeout
status text name of the TransactionState: Empty, Ongoing, PrepareCommit, ...
partitions text JSON list of [topic, partition] in the transaction; null in the record is null here
last_update_ms long of the state
start_ms long of the transaction, -1 without one
client_transaction_version int of the client (KIP-890)
"""
            ),
        ),
        DiskTable(
            "transaction_partitions",
            "One row per partition in a record of __transaction_state.",
            _columns(
                _RECORD
                + """
transactional_id text of the key
producer_id long current
producer_epoch int current
status text of the record
in_topic text topic in the transaction
in_partition int partition in the transaction
"""
            ),
        ),
        DiskTable(
            "group_offsets",
            "One row per offset commit in __consumer_offsets.",
            _columns(
                _RECORD
                + """
timestamp_ms long of the record
group_id text of the key
of_topic text of the key
of_partition int of the key
is_tombstone bool whether the offset was removed
committed_offset long null for a tombstone
committed_leader_epoch int -1 without one
metadata text that the client added
commit_ms long when it was committed
expire_ms long -1 without its own expiry
is_transactional bool whether it is part of a transaction: it counts after the COMMIT marker
producer_id long of its batch
producer_epoch int of its batch
"""
            ),
        ),
        DiskTable(
            "group_records",
            "One row per other record of __consumer_offsets.",
            _columns(
                _RECORD
                + """
timestamp_ms long of the record
type text GroupMetadata, ConsumerGroupMetadata, ...; null if unknown
group_id text of the key
key_json text the key as JSON
value_json text the value as JSON; null for a tombstone
"""
            ),
        ),
        DiskTable(
            "share_states",
            "One row per record of __share_group_state.",
            _columns(
                _RECORD
                + """
timestamp_ms long of the record
type text ShareSnapshot or ShareUpdate
group_id text of the key
topic_id text of the key
of_partition int of the key
is_tombstone bool whether the value is null
snapshot_epoch int counts the snapshots
state_epoch int of a snapshot
share_leader_epoch int leader epoch in the value
start_offset long of the share partition; -1 in an update means unchanged
batches text JSON list of [first offset, last offset, delivery state, delivery count]
"""
            ),
        ),
        DiskTable(
            "remote_segments",
            "One row per record of __remote_log_metadata.",
            _columns(
                _RECORD
                + """
timestamp_ms long of the record
type text RemoteLogSegmentMetadata, ...Update, RemotePartitionDeleteMetadata
topic_id text of the partition
of_topic text of the partition
of_partition int of the partition
segment_id text of the remote segment; null for a partition
start_offset long first offset; null in an update
end_offset long last offset; null in an update
broker_id int that wrote it
max_ms long largest timestamp in the segment
event_ms long of the record's event
segment_size int in bytes
state text COPY_SEGMENT_STARTED, COPY_SEGMENT_FINISHED, DELETE_SEGMENT_STARTED, ...
leader_epochs text JSON list of [epoch, start offset]
"""
            ),
        ),
        DiskTable(
            "remote_files",
            "One row per file in a directory of remote storage (--remote-storage).",
            _columns(
                """
remote_dir text the directory as it was named
file text relative to it
topic text from the path
partition int from the path
topic_id text from the path
segment_id text from the name
base_offset long from the name; null where it has none
kind text log, index, timeindex, txnindex, snapshot, leader-epochs
size long in bytes
"""
            ),
        ),
        DiskTable(
            "client_acknowledged",
            "One row per record (or batch, in a capture) that a broker acknowledged.",
            _columns(
                _CLIENT
                + """
topic text that was written to
partition int that was written to
acknowledged_offset long of the first record
records int the number of records, with consecutive offsets
acks int of the request: -1 all in-sync replicas, 1 the leader; null if unknown
producer_id long -1 or null without one
producer_epoch int of the producer
sequence int of the first record; -1 or null without one
transactional_id text of the transaction; null without one
outcome text committed or aborted as the client was notified; null: no transaction, or no end seen
sender text a name for a series of records that are sent in order; null without one
number long rises in the series of that sender within a partition; null without one
key_md5 text MD5 of the key as hexadecimal digits in lower case; null if unknown
value_md5 text MD5 of the value, likewise
is_unique bool whether the application sends this value only once
"""
            ),
        ),
        DiskTable(
            "client_transactions",
            "One row per end of a transaction that a coordinator acknowledged to a client.",
            _columns(
                _CLIENT
                + """
transactional_id text of the transaction
producer_id long -1 or null if unknown
producer_epoch int of the producer
outcome text committed or aborted
records long the number of records that were acknowledged in it
"""
            ),
        ),
        DiskTable(
            "client_reads",
            "One row per record, or per run of records in a capture, that a consumer received.",
            _columns(
                _CLIENT
                + """
group_id text of the consumer; null if unknown
topic text that was read
partition int that was read
read_offset long of the first record
records int the number of records, with consecutive offsets
isolation text read_committed or read_uncommitted
producer_id long of the batch; null if unknown
producer_epoch int of the batch
sequence int of the first record; null if unknown
value_md5 text MD5 of the value as hexadecimal digits in lower case; null if unknown
"""
            ),
        ),
        DiskTable(
            "client_commits",
            "One row per group offset whose commit was acknowledged to a client.",
            _columns(
                _CLIENT
                + """
group_id text of the group
group_hash long absolute String.hashCode of the group, which chooses its partition
topic text of the offset
partition int of the offset
committed_offset long the offset
transactional_id text of the transaction that it is part of; null without one
outcome text committed or aborted, of that transaction; null if no end was seen
"""
            ),
        ),
    )
}
