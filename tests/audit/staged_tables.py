"""Tables of an audit as a test writes them: rows with the columns that matter, the others null."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kraftsim.audit.tables import TABLES

Cell = str | int | bool | bytes | None
Row = Mapping[str, Cell]
NEWEST_MS = 1_795_000_000_000
"""When the directories were last written."""


def write_table(root: Path, name: str, rows: Sequence[Row]) -> None:
    """Write the rows of one table; a name that is no column of it is a mistake of the test."""
    columns = {column.name for column in TABLES[name].columns}
    for row in rows:
        assert set(row) <= columns, f"{name} has no {sorted(set(row) - columns)}"
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    written = pa.Table.from_pylist([dict(row) for row in rows], schema=TABLES[name].schema)
    pq.write_table(written, folder / f"part-{len(list(folder.iterdir()))}.parquet")


def batch(
    base_offset: int,
    records: int = 1,
    *,
    log_dir: str = "broker-1",
    topic: str = "orders",
    producer_id: int = -1,
    sequence: int = -1,
    control: str | None = None,
    transactional: bool = False,
) -> dict[str, Cell]:
    """Return a row of `batches` for partition 0; a marker has its type in `control`."""
    return {
        "log_dir": log_dir,
        "node_id": int(log_dir.rpartition("-")[2]),
        "directory": f"{topic}-0",
        "topic": topic,
        "partition": 0,
        "file": f"{topic}-0/00000000000000000000.log",
        "position": base_offset * 100,
        "size": 100,
        "base_offset": base_offset,
        "last_offset": base_offset + records - 1,
        "leader_epoch": 0,
        "magic": 2,
        "is_transactional": transactional or control is not None,
        "is_control": control is not None,
        "max_ms": NEWEST_MS - 1_000_000 + base_offset * 1000,
        "producer_id": producer_id,
        "producer_epoch": 0 if producer_id >= 0 else -1,
        "base_sequence": sequence,
        "last_sequence": sequence + records - 1 if sequence >= 0 else -1,
        "records": records,
        "control_type": control,
        "coordinator_epoch": 0 if control else None,
        "segment_offset": 0,
    }


def log_dir(node: int, *, is_clean: bool = True, metadata: bool = False) -> dict[str, Cell]:
    """Return a row of `log_dirs`."""
    return {
        "log_dir": f"broker-{node}",
        "node_id": node,
        "cluster_id": "a-cluster",
        "version": 1,
        "is_clean": is_clean,
        "has_metadata_log": metadata,
        "newest_ms": NEWEST_MS,
    }


def replica(node: int, end_offset: int, *, topic: str = "orders", **more: Cell) -> dict[str, Cell]:
    """Return a row of `replicas` for partition 0."""
    return {
        "log_dir": f"broker-{node}",
        "node_id": node,
        "directory": f"{topic}-0",
        "topic": topic,
        "partition": 0,
        "first_offset": 0,
        "end_offset": end_offset,
        "segments": 1,
        "first_segment_offset": 0,
        "is_future": False,
        **more,
    }


def registered(topic: str, replicas: Sequence[int]) -> tuple[dict[str, Cell], dict[str, Cell]]:
    """Return a row of `metadata_topics` and one of `metadata_partitions` for partition 0."""
    named = {"log_dir": "broker-1", "topic_id": f"id-of-{topic}"}
    return (
        {**named, "topic_name": topic, "is_removed": False},
        {
            **named,
            "partition_id": 0,
            "is_change": False,
            "replicas": str(list(replicas)),
            "isr": str(list(replicas)),
        },
    )
