"""Writes what clients recorded into the tables client_acknowledged, client_transactions,
client_reads and client_commits.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from kraftsim.analysis.ingest import Report, no_report
from kraftsim.audit.tables import TABLES

ROWS_AT_ONCE: Final = 50_000
SMALLEST_INT: Final = -(1 << 31)
COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
Cell = str | int | bool | None
Row = dict[str, Cell]


class ClientTables:
    """Collects rows and writes them in parts; rows of a transaction wait for its end, which gives
    them their outcome.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._rows: dict[str, list[Row]] = {}
        self._parts: dict[str, int] = {}
        self._waiting: dict[str, list[tuple[str, Row]]] = {}

    def add(self, table: str, row: Row) -> None:
        """Add a row. One with a transactional id and no outcome waits for `end`."""
        transactional_id = row.get("transactional_id")
        if isinstance(transactional_id, str) and row.get("outcome") is None:
            self._waiting.setdefault(transactional_id, []).append((table, row))
            return
        self._put(table, row)

    def end(self, row: Row) -> None:
        """Add the end of a transaction, a row of client_transactions: what waits for it gets its
        outcome.
        """
        waiting = self._waiting.pop(str(row["transactional_id"]), [])
        records = 0
        for table, each in waiting:
            if table == "client_acknowledged":
                records += int(each["records"] or 0)
            self._put(table, {**each, "outcome": row["outcome"]})
        self._put("client_transactions", {**row, "records": records})

    def end_source(self) -> None:
        """Keep what still waits with an unknown outcome: the file ends before the transaction."""
        for waiting in self._waiting.values():
            for table, row in waiting:
                self._put(table, row)
        self._waiting.clear()

    def close(self) -> None:
        """Write what is left."""
        for table in list(self._rows):
            self._write(table)

    def _put(self, table: str, row: Row) -> None:
        rows = self._rows.setdefault(table, [])
        rows.append(row)
        if len(rows) >= ROWS_AT_ONCE:
            self._write(table)

    def _write(self, table: str) -> None:
        rows = self._rows.pop(table)
        part = self._parts.get(table, 0)
        self._parts[table] = part + 1
        folder = self._root / table
        folder.mkdir(parents=True, exist_ok=True)
        written = pa.Table.from_pylist(rows, schema=TABLES[table].schema)
        pq.write_table(written, folder / f"clients-{part}.parquet")


def stage_clients(
    root: Path, recorded: Iterable[Path], captures: Iterable[Path], report: Report = no_report
) -> None:
    """Stage the files of clients beside the tables of the disks.

    Raises ValueError that names file and line (or packet) for what is malformed, and OSError.
    """
    from kraftsim.audit.clients.captured import read_capture
    from kraftsim.audit.clients.recorded import read_recorded

    tables = ClientTables(root)
    topics = _topic_names(root)
    files, of_network = list(recorded), list(captures)
    total = sum(file.stat().st_size for file in (*files, *of_network))
    done = 0

    def advance(read_bytes: int) -> None:
        nonlocal done
        done += read_bytes
        report("clients", min(done, total), total)

    for file in files:
        read_recorded(file, tables, advance)
        tables.end_source()
    for file in of_network:
        read_capture(file, tables, topics, advance)
        tables.end_source()
    tables.close()


def _topic_names(root: Path) -> Mapping[str, str]:
    """Return the names of topic ids that the disks have."""
    found: dict[str, str] = {}
    for file in sorted((root / "replicas").glob("*.parquet")):
        rows = pq.read_table(file, columns=["topic_id", "topic"]).to_pylist()
        found.update((row["topic_id"], row["topic"]) for row in rows if row["topic_id"])
    return found


def group_hash(group_id: str) -> int:
    """Return what Kafka takes modulo the number of partitions of __consumer_offsets: the absolute
    value of String.hashCode, and 0 for the smallest. Source: GroupCoordinator.partitionFor,
    Utils.abs.
    """
    units = group_id.encode("utf-16-be", "surrogatepass")
    value = 0
    for place in range(0, len(units), 2):
        value = (value * 31 + int.from_bytes(units[place : place + 2], "big")) & 0xFFFFFFFF
    signed = value - (value >> 31 << 32)
    return 0 if signed == SMALLEST_INT else abs(signed)
