"""A broker compacts its logs in the background: the dirtiest first, up to the last stable offset,
and its followers do so independently.

Source: kafka.log.LogCleaner, KIP-354; settings as in the topic and broker configurations of Apache
Kafka.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraftsim.server.events import CleaningFailed, LogCleaned
from protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.records.batches import RecordBatch, build_batch, split_batches
from protocol.records.record import Record
from protocol.storage.text_files import parse_offset_checkpoint
from tests.core.batches import doctored
from tests.core.test_cleaning import numbered_at_will
from tests.node.brokers import NOW, Client, Cluster, running_cluster

FAST = {"log.cleaner.backoff.ms": "1000"}
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_bytes": "1000",
    "min_cleanable_dirty_ratio": "0.01",
}


def keyed(turn: int, *, value: bytes | None = b"v" * 40, keys: int = 3, **options: Any) -> bytes:
    return build_batch(
        [Record(timestamp=NOW + turn, key=b"key-%d" % (turn % keys), value=value)], **options
    )


def writing(topic: str, turns: range, **options: Any) -> Callable[[Client], Awaitable[int]]:
    async def write(client: Client) -> int:
        for turn in turns:
            answer = await client.produce(keyed(turn, **options), topic)
            assert answer.error_code == 0
        return 0

    return write


def left(
    cluster: Cluster, directory: str, broker: str = "broker-1"
) -> list[tuple[int, list[bytes | None]]]:
    """Return the batches of a log on disk: first offset and the keys of their records."""
    disk = cluster.simulation.world_of(broker).disk
    files = [name for name in disk.list(directory) if name.endswith(".log")]
    batches = [batch for name in files for batch in split_batches(disk.read(f"{directory}/{name}"))]
    return [(batch.base_offset, [record.key for record in batch.records()]) for batch in batches]


def test_compacted_topic_keeps_the_last_record_of_each_key() -> None:
    """Except in the active segment; the checkpoint names the first dirty offset, and a consumer
    reads the log across its gaps.
    """
    with running_cluster(settings=FAST) as cluster:

        async def create(client: Client) -> bytes:
            return await client.create_topic("t", configs=COMPACTED)

        cluster.run(create)
        cluster.run(writing("t", range(40)))
        cluster.simulation.run_for(5)
        cleaned = cluster.emitted(LogCleaned)
        assert (
            cleaned
            and cleaned[-1].topic == "t"
            and cleaned[-1].kept_records < cleaned[-1].read_records
        )
        batches = left(cluster, "t-0")
        clean_until = cleaned[-1].next_dirty_offset
        kept = [keys[0] for offset, keys in batches if offset < clean_until and keys]
        assert len(kept) == len(set(kept)) == 3
        disk = cluster.simulation.world_of("broker-1").disk
        assert (
            parse_offset_checkpoint(
                disk.read("cleaner-offset-checkpoint"), "cleaner-offset-checkpoint"
            )[("t", 0)]
            == clean_until
        )

        async def read(client: Client) -> list[RecordBatch]:
            found: list[RecordBatch] = []
            offset = 0
            while offset < 40:
                got = list(split_batches((await client.fetch(offset)).records or b""))
                found += got
                offset = got[-1].next_offset
            return found

        assert [batch.base_offset for batch in cluster.run(read)] == [
            offset for offset, _ in batches
        ]


@pytest.mark.parametrize(
    ("settings", "configs"),
    [
        ({"log.cleaner.enable": "false"}, {}),
        ({}, {"min_cleanable_dirty_ratio": "1"}),
        ({}, {"min_compaction_lag_ms": str(10**15)}),
        ({}, {"cleanup_policy": "delete"}),
        ({}, {"segment_bytes": "1000000"}),
    ],
)
def test_ineligible_log_is_not_cleaned(settings: dict[str, str], configs: dict[str, str]) -> None:
    """No cleaner, not dirty enough, too young, not compacted, or only the active segment."""
    with running_cluster(settings={**FAST, **settings}) as cluster:

        async def create(client: Client) -> bytes:
            return await client.create_topic("t", configs={**COMPACTED, **configs})

        cluster.run(create)
        cluster.run(writing("t", range(40)))
        cluster.simulation.run_for(10)
        assert not cluster.emitted(LogCleaned) and len(left(cluster, "t-0")) == 40


def test_tombstones_expire_and_old_segments_are_deleted_by_retention() -> None:
    """compact,delete: compacted segments are also deleted once older than retention.ms; the log
    start offset advances.
    """
    with running_cluster(settings=FAST) as cluster:

        async def create(client: Client) -> bytes:
            await client.create_topic("t", configs=COMPACTED, delete_retention_ms="3000")
            return await client.create_topic(
                "d", configs={**COMPACTED, "cleanup_policy": "compact,delete"}, retention_ms="1000"
            )

        cluster.run(create)
        cluster.run(writing("t", range(3), value=None))
        cluster.run(writing("t", range(3, 40), keys=50))
        cluster.run(writing("d", range(40)))
        cluster.simulation.run_for(3)
        assert [keys for _, keys in left(cluster, "t-0")[:3]] == [
            [b"key-0"],
            [b"key-1"],
            [b"key-2"],
        ], "tombstones are still there"
        cluster.simulation.run_for(6)
        cluster.run(writing("t", range(40, 80), keys=90))
        cluster.simulation.run_for(6)
        assert not {b"key-0", b"key-1", b"key-2"} & {
            key for _, keys in left(cluster, "t-0") for key in keys
        }
        deleted = cluster.brokers["broker-1"].partitions.find("d", 0)
        assert (
            deleted is not None and deleted.log.log_start_offset == deleted.log.log_end_offset == 40
        )


def test_overdue_log_is_cleaned_at_any_dirty_ratio() -> None:
    """max.compaction.lag.ms rolls the active segment and cleans it, whatever
    min.cleanable.dirty.ratio is (KIP-354).
    """
    with running_cluster(settings=FAST) as cluster:

        async def create(client: Client) -> bytes:
            return await client.create_topic(
                "t",
                cleanup_policy="compact",
                min_cleanable_dirty_ratio="1",
                max_compaction_lag_ms="5000",
            )

        cluster.run(create)
        cluster.run(writing("t", range(10)))
        cluster.simulation.run_for(3)
        assert not cluster.emitted(LogCleaned)
        cluster.run(writing("t", range(6000, 6001)))
        cluster.simulation.run_for(3)
        assert (
            cluster.emitted(LogCleaned)
            and len([keys for offset, keys in left(cluster, "t-0") if offset < 10 and keys]) == 3
        )


def test_topic_can_be_made_compacted_and_roll_earlier_while_written() -> None:
    """cleanup.policy, segment.bytes and min.cleanable.dirty.ratio take effect immediately."""
    with running_cluster(settings=FAST) as cluster:
        cluster.run(lambda client: client.create_topic("t"))
        cluster.run(writing("t", range(20)))
        cluster.simulation.run_for(3)
        assert not cluster.emitted(LogCleaned)

        async def alter(client: Client) -> int:
            configs = [
                AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
                for name, value in COMPACTED.items()
            ]
            answer = await client.ask(
                IncrementalAlterConfigsRequest(
                    resources=[
                        AlterConfigsResource(resource_type=2, resource_name="t", configs=configs)
                    ]
                )
            )
            return int(answer.responses[0].error_code)

        assert cluster.run(alter) == 0
        cluster.run(writing("t", range(20, 40)))
        cluster.simulation.run_for(3)
        assert (
            cluster.emitted(LogCleaned)
            and len([keys for offset, keys in left(cluster, "t-0") if offset < 20 and keys]) <= 3
        )


@pytest.mark.parametrize("what", ["backwards", "twice", "beyond"])
def test_inconsistent_record_offsets_stop_the_cleaner_and_nothing_else(what: str) -> None:
    """Leaders do not validate offsets inside of batches, nor do those of Apache Kafka: its cleaner
    skips such a partition, too.
    """
    with running_cluster(settings=FAST) as cluster:
        cluster.run(lambda client: client.create_topic("t", configs=COMPACTED))

        async def write(client: Client) -> int:
            bad = numbered_at_will()[what]
            data = doctored(bad, base_offset=0, base_sequence=0)
            return (await client.produce(bytes(data.view()))).error_code

        assert cluster.run(write) == 0
        cluster.run(writing("t", range(40), keys=2))
        cluster.simulation.run_for(5)
        cluster.run(writing("t", range(40, 60), keys=2))
        (failed, *_) = cluster.emitted(CleaningFailed)
        assert (failed.topic, failed.partition) == ("t", 0) and "offset" in failed.reason
        assert cluster.is_running("broker-1") and not cluster.brokers["broker-1"].shell.is_dead


def test_throttled_cleaner_does_not_delay_a_shutdown() -> None:
    """With log.cleaner.io.max.bytes.per.second at 1 it would take days; the broker stops within
    seconds, and the log is valid.
    """
    with running_cluster(settings=FAST, log_cleaner_io_max_bytes_per_second="1") as cluster:
        cluster.run(
            lambda client: client.create_topic(
                "t", configs={**COMPACTED, "segment_bytes": "100000", "max_message_bytes": "100000"}
            )
        )
        cluster.run(writing("t", range(8), value=b"v" * 50_000, keys=2))
        cluster.simulation.run_for(5)
        assert not cluster.emitted(LogCleaned)
        before = cluster.simulation.now_ns
        cluster.stop("broker-1")
        assert cluster.simulation.now_ns - before < 5e9
        assert not [
            name
            for name in cluster.simulation.world_of("broker-1").disk.list("t-0")
            if name.endswith((".cleaned", ".swap"))
        ]
        assert len(left(cluster, "t-0")) == 8
