"""Compares what kafka-dump-log and DuckDB count in the same segments."""

import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kraftsim.audit.judging import duckdb_tables
from kraftsim.audit.scan import stage
from tests.apache_kafka.harness import run_tool
from tools.audit_corpus.situations import Situation, Stopped, segments

FILES_PER_START: Final = 60
"""A command line has room for so many names."""
_FILE: Final = re.compile(r"Dumping (?:file )?(\S+)")
_BATCH: Final = re.compile(r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+)")


class Counts(NamedTuple):
    """Of one segment: batches, and records in their headers."""

    batches: int
    records: int


def by_dump_log(files: Sequence[Path], release: str) -> dict[str, Counts]:
    """Return what Kafka's DumpLogSegments counts, by file."""
    batches: Counter[str] = Counter()
    records: Counter[str] = Counter()
    for first in range(0, len(files), FILES_PER_START):
        chosen = files[first : first + FILES_PER_START]
        text = run_tool(release, "dump-log", "--files", ",".join(map(str, chosen)))
        file = ""
        for line in text.splitlines():
            if named := _FILE.match(line):
                file = named[1]
            elif found := _BATCH.match(line):
                batches[file] += 1
                records[file] += int(found[3])
    return {str(file): Counts(batches[str(file)], records[str(file)]) for file in files}


def by_duckdb(place: Path, situation: Situation) -> dict[str, Counts]:
    """Return what the staged table `batches` has, by file."""
    with tempfile.TemporaryDirectory(prefix="kraftsim-counts-") as root:
        stage([place / each for each in situation.log_dirs], Path(root), workers=1)
        with duckdb_tables(Path(root)) as connection:
            rows = connection.execute(
                "SELECT log_dir, file, count(*), sum(records) FROM batches GROUP BY log_dir, file"
            ).fetchall()
    return {f"{log_dir}/{file}": Counts(count, int(total)) for log_dir, file, count, total in rows}


def compare(
    chosen: Sequence[tuple[Path, Situation]], every: int, release: str
) -> tuple[int, Counts, list[str]]:
    """Compare each n-th segment of some situations; return the number of segments, the sum of what
    both counted, and the differences.

    Left out are copies that were taken while a broker ran or after a power cut: kafka-dump-log ends
    at their torn segments.
    """
    ours: dict[str, Counts] = {}
    files: list[Path] = []
    for place, situation in chosen:
        if situation.stopped not in (Stopped.POWER_CUT, Stopped.RUNNING, Stopped.MIXED):
            files += [file for file in segments(place) if "/remote/" not in str(file)][::every]
            ours |= by_duckdb(place, situation)
    theirs = by_dump_log(files, release)
    found = [
        f"{name}: kafka-dump-log {counts}, DuckDB {ours.get(name)}"
        for name, counts in theirs.items()
        if ours.get(name, Counts(0, 0)) != counts
    ]
    total = Counts(
        sum(each.batches for each in theirs.values()), sum(each.records for each in theirs.values())
    )
    return len(files), total, found
