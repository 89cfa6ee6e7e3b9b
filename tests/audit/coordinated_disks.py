"""A cluster's disks in memory with the topics of its coordinators: transactional ids, groups, share
groups, tiers and a metadata log, sound until a test changes a row.
"""

import json
from contextlib import closing
from typing import Any

import duckdb

from kraftsim.audit.judging import JSON_AS_IN_SPARK, judge
from kraftsim.audit.rule import AuditRule, RuleResult
from kraftsim.groups.rules_timing import java_hash
from tests.audit.tables_of import START_MS, Disks, Log, Row

COORDINATOR_PARTITIONS = 3
STATE_TOPIC = "__transaction_state"
METADATA_FILE = "__cluster_metadata-0/00000000000000000000.log"
CONTROL = {"is_control": True, "is_transactional": True}
TIMEOUT_MS = 60_000


class CoordinatedDisks(Disks):
    """One combined node per id, with all partitions on the first `replicas` nodes.

    The metadata log, the same on every node, ends with a record long after all others: nothing in it
    is recent. `orders-0` is a topic of an application.
    """

    def __init__(self, nodes: int = 1, *, replicas: int = 1, is_clean: bool = True) -> None:
        super().__init__()
        self.homes = [self.broker(node, is_clean=is_clean) for node in range(1, nodes + 1)]
        self.assigned = list(range(1, replicas + 1))
        self.metadata: list[Log] = []
        for home in self.homes:
            home.row.update(has_metadata_log=True, directory_id=f"directory-{home.node_id}")
            self.metadata.append(home.log("__cluster_metadata", topic_id=None))
        self.coordinators: dict[tuple[str, int], Log] = {}
        for home in self.homes:
            self.say("REGISTER_CONTROLLER_RECORD", controllerId=home.node_id, incarnationId="one")
            self.say(
                "REGISTER_BROKER_RECORD",
                brokerId=home.node_id,
                brokerEpoch=home.node_id,
                logDirs=[f"directory-{home.node_id}"],
            )
        self.orders = self.create("orders")[0]

    # The metadata log
    # ----------------------------------------------------------------------------------------------

    def say(self, type_: str, *, at_ms: int = 0, **fields: Any) -> int:
        """Append a record to every copy of the metadata log; return its offset."""
        offset = self.metadata[0].end_offset
        for log in self.metadata:
            row = log.batch(max_ms=START_MS + at_ms)
            self.add(
                "metadata_records",
                **self.of_batch(row),
                timestamp_ms=START_MS + at_ms,
                type=type_,
                version=0,
                data=json.dumps(fields),
            )
        return offset

    def of_batch(self, row: Row) -> Row:
        """Return the columns that a record has of its batch."""
        names = ("log_dir", "node_id", "directory", "topic", "partition", "file", "position")
        return {
            **{name: row[name] for name in names},
            "record_offset": row["base_offset"],
            "leader_epoch": row["leader_epoch"],
        }

    def typed(self, table: str, offset: int, **columns: Any) -> None:
        """Add the row that a metadata record has in the table of its type, for every copy."""
        for log in self.metadata:
            row = next(each for each in log.batches if each["base_offset"] == offset)
            self.add(table, **self.of_batch(row), **columns)

    def create(self, topic: str, partitions: int = 1, *, logs: bool = True) -> list[Log]:
        """Create a topic; return its logs on the first node."""
        topic_id = f"id-of-{topic}"
        offset = self.say("TOPIC_RECORD", name=topic, topicId=topic_id)
        self.typed("metadata_topics", offset, topic_id=topic_id, topic_name=topic, is_removed=False)
        made = []
        for partition in range(partitions):
            self.partition(topic_id, partition)
            if logs:
                of_nodes = [home.log(topic, partition) for home in self.homes[: len(self.assigned)]]
                made.append(of_nodes[0])
        return made

    def partition(self, topic_id: str, partition: int, **columns: Any) -> int:
        """Append a PartitionRecord, or with `is_change` a change."""
        offset = self.say("PARTITION_RECORD", topicId=topic_id, partitionId=partition)
        nodes = json.dumps(self.assigned)
        row: Row = {
            "is_change": False,
            "leader": 1,
            "registered_leader_epoch": 0,
            "partition_epoch": 0,
            "replicas": nodes,
            "isr": nodes,
        }
        self.typed(
            "metadata_partitions",
            offset,
            topic_id=topic_id,
            partition_id=partition,
            **(columns if columns.get("is_change") else {**row, **columns}),
        )
        return offset

    def remove(self, topic: str) -> None:
        """Append a RemoveTopicRecord."""
        topic_id = f"id-of-{topic}"
        offset = self.say("REMOVE_TOPIC_RECORD", topicId=topic_id)
        self.typed("metadata_topics", offset, topic_id=topic_id, is_removed=True)

    def block(self, next_producer_id: int, **columns: Any) -> int:
        """Append a ProducerIdsRecord."""
        offset = self.say("PRODUCER_IDS_RECORD", nextProducerId=next_producer_id)
        self.typed(
            "producer_id_blocks",
            offset,
            broker_id=1,
            broker_epoch=1,
            next_producer_id=next_producer_id,
            **columns,
        )
        return offset

    def snapshot(self) -> int:
        """Write a snapshot of the metadata log on every node, a copy of all typed rows whose records
        are not superseded; return its end offset.
        """
        end = self.metadata[0].end_offset
        file = f"__cluster_metadata-0/{end:020d}-0000000000.checkpoint"
        of_snapshot: Row = {"file": file, "snapshot_end_offset": end, "leader_epoch": None}
        names = ("metadata_records", "metadata_topics", "metadata_partitions", "producer_id_blocks")
        for name in names:
            rows = [row for row in self.rows[name] if row.get("snapshot_end_offset") is None]
            if name == "producer_id_blocks":
                rows = rows[-len(self.metadata) :]
            for number, row in enumerate(rows):
                self.add(name, **{**row, **of_snapshot, "record_offset": number})
        return end

    # The coordinators' topics
    # ----------------------------------------------------------------------------------------------

    def coordinator(self, topic: str, key: str) -> Log:
        """Return the log that the hash of a key chooses, and create the topic."""
        if (topic, 0) not in self.coordinators:
            for number, log in enumerate(self.create(topic, COORDINATOR_PARTITIONS)):
                self.coordinators[topic, number] = log
        return self.coordinators[topic, abs(java_hash(key)) % COORDINATOR_PARTITIONS]

    def state(
        self,
        status: str | None,
        producer: int,
        epoch: int,
        *,
        transactional_id: str = "shop",
        partitions: tuple[tuple[str, int], ...] = (("orders", 0),),
        log: Log | None = None,
        after_ms: int = 0,
        **columns: Any,
    ) -> Row:
        """Append a record of a transactional id; None is a tombstone."""
        log = log or self.coordinator(STATE_TOPIC, transactional_id)
        log.now_ms += after_ms
        batch = log.batch()
        row: Row = {
            **self.of_batch(batch),
            "timestamp_ms": batch["max_ms"],
            "transactional_id": transactional_id,
            "is_tombstone": status is None,
        }
        if status is not None:
            row.update(
                producer_id=producer,
                previous_producer_id=-1,
                next_producer_id=-1,
                producer_epoch=epoch,
                timeout_ms=TIMEOUT_MS,
                status=status,
                last_update_ms=batch["max_ms"],
                start_ms=batch["max_ms"],
                client_transaction_version=2,
            )
        row.update(columns)
        self.add("transaction_states", **row)
        if status in ("Ongoing", "PrepareCommit", "PrepareAbort"):
            for in_topic, in_partition in partitions:
                self.add(
                    "transaction_partitions",
                    **self.of_batch(batch),
                    transactional_id=transactional_id,
                    producer_id=producer,
                    producer_epoch=epoch,
                    status=status,
                    in_topic=in_topic,
                    in_partition=in_partition,
                )
        return row

    def transaction(
        self, producer: int = 7, epoch: int = 0, result: str = "COMMIT", **of: Any
    ) -> Row:
        """Append a whole transaction of transaction.version 2, its batch and its marker; return the
        marker.
        """
        prepared = "PrepareCommit" if result == "COMMIT" else "PrepareAbort"
        self.state("Ongoing", producer, epoch, **of)
        self.orders.transact(producer, epoch, 0)
        self.state(prepared, producer, epoch + 1, **of)
        marker = self.orders.marker(result, producer, epoch + 1)
        self.state(prepared.replace("Prepare", "Complete"), producer, epoch + 1, **of)
        return marker

    def offset(self, committed: int | None, group: str = "billing", **columns: Any) -> Row:
        """Append an offset commit of a group for orders-0; None is a tombstone."""
        log = self.coordinator("__consumer_offsets", group)
        batch = log.batch(
            is_transactional=columns.get("is_transactional", False),
            producer_id=columns.get("producer_id", -1),
            producer_epoch=columns.get("producer_epoch", -1),
        )
        return self.add(
            "group_offsets",
            **{
                **self.of_batch(batch),
                "timestamp_ms": batch["max_ms"],
                "group_id": group,
                "of_topic": "orders",
                "of_partition": 0,
                "is_tombstone": committed is None,
                "committed_offset": committed,
                "committed_leader_epoch": -1,
                "commit_ms": batch["max_ms"],
                "is_transactional": False,
                "producer_id": -1,
                "producer_epoch": -1,
                **columns,
            },
        )

    def share(self, start: int, *batches: tuple[int, int, int, int], **columns: Any) -> Row:
        """Append a record of share group `workers` for orders-0, a snapshot unless columns say
        more.
        """
        log = self.coordinator("__share_group_state", "workers:id-of-orders:0")
        batch = log.batch()
        return self.add(
            "share_states",
            **{
                **self.of_batch(batch),
                "timestamp_ms": batch["max_ms"],
                "type": "ShareSnapshot",
                "group_id": "workers",
                "topic_id": "id-of-orders",
                "of_partition": 0,
                "is_tombstone": False,
                "snapshot_epoch": 1,
                "state_epoch": 0 if columns.get("type") != "ShareUpdate" else None,
                "share_leader_epoch": 0,
                "start_offset": start,
                "batches": json.dumps([list(each) for each in batches]),
                **columns,
            },
        )

    def remote(self, segment: str, state: str, start: int, end: int, **columns: Any) -> Row:
        """Append an event of a remote segment of orders-0."""
        log = self.coordinator("__remote_log_metadata", "orders")
        batch = log.batch()
        is_begun = state == "COPY_SEGMENT_STARTED"
        return self.add(
            "remote_segments",
            **{
                **self.of_batch(batch),
                "timestamp_ms": batch["max_ms"],
                "type": "RemoteLogSegmentMetadata"
                if is_begun
                else "RemoteLogSegmentMetadataUpdate",
                "topic_id": "id-of-orders",
                "of_topic": "orders",
                "of_partition": 0,
                "segment_id": segment,
                "start_offset": start if is_begun else None,
                "end_offset": end if is_begun else None,
                "broker_id": 1,
                "event_ms": batch["max_ms"],
                "segment_size": 1000 if is_begun else None,
                "state": state,
                **columns,
            },
        )

    def tiered(self, segment: str, start: int, end: int) -> Row:
        """Append the events of a complete copy, and its file; return the row of the file."""
        self.remote(segment, "COPY_SEGMENT_STARTED", start, end)
        self.remote(segment, "COPY_SEGMENT_FINISHED", start, end)
        return self.add(
            "remote_files",
            remote_dir="/remote",
            file=f"orders-0-id-of-orders/{start:020d}-{segment}.log",
            topic="orders",
            partition=0,
            topic_id="id-of-orders",
            segment_id=segment,
            base_offset=start,
            kind="log",
            size=1000,
        )

    # Asking
    # ----------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """End the metadata log, long after all of its records."""
        self.say("NO_OP_RECORD", at_ms=10_000_000)

    def results(self, *rules: AuditRule) -> list[RuleResult]:
        """Return what rules find, by DuckDB."""
        self.finish()
        with closing(duckdb.connect()) as connection:
            connection.execute(JSON_AS_IN_SPARK)
            for name, table in self.tables().items():
                connection.register(name, table)
            return judge(lambda query: connection.execute(query).fetchall(), rules)
