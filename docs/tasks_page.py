"""The page about producers per task and per thread, from docs/producer-per-task.json: what `make bench ARGS="tasks --keep"` counted and weighed."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

FILE = Path(__file__).parent / "producer-per-task.json"
PICTURE = FILE.with_suffix(".svg")
Cell = int | float | str


class Found(TypedDict):
    """What the bench keeps: a row for each variant and number of input partitions, and bytes of one producer by where."""

    rows: Sequence[Mapping[str, Cell]]
    bytes: Mapping[str, int]


INTRODUCTION = f"""# A producer for each task, or one for each thread

An application of three threads copies a topic exactly once: it consumes, produces, and commits both in one transaction. Before KIP-447 nobody but
the transactional id fenced it, so each input partition had an id and a producer of its own (Kafka Streams' `exactly_once`). Since KIP-447 the
group fences whoever lost a partition, and a thread needs one producer for all it was given (`exactly_once_v2`). Both are played in one run of
`producer_per_task_against_per_thread`, on three brokers, each partition of the topics on one of them; each copy is judged, and is right. One
command counts, weighs, and draws:

```text
make bench ARGS="tasks --keep" && make docs
```

![what is opened, and what it costs](../{PICTURE.name})
"""
MEANING = """*Records each*: how many records a transaction has. *Markers*: partitions in which transactions had to be ended, a record in each.
*States*: producers that the leaders of all partitions remember together, those of `__consumer_offsets` among them; followers remember
the same. *Ids*: what coordinators remember. Times are virtual, of the simulated network and disks (0.1 to 1 ms a message), joining the group
included."""
WEIGHTS = """What one producer weighs. The first rows are what the interpreter allocates for what is kept, the last ones by how much the process of a
broker grew for each of 2,000 producers that made one transaction of one record, and for each of 500 connections:
"""
READING = """## What it says

- **Producers and connections grow with the partitions, as the proposal says** (rows 447-03 and 447-05 of the [claims](claims.md)): a producer for
  each task opens about three connections, to coordinators and to the leader it writes to, so that 1,000 partitions cost brokers 3,007 connections,
  at 4,760 bytes each 14 MB. With one for each thread it is 18, however many partitions there are.
- **Batching is lost** (447-04): a task has a transaction of its own, however little it has to copy. At 1,000 partitions that is ten times as many
  transactions, and less than a quarter of the records in a second.
- **Of markers about half are saved, and no more.** Each output partition that was written to needs one under either rule; what is spared are those
  in the partition of the offsets, one for each transaction.
- **What leaders remember is halved for the same reason, what coordinators remember is not worth mentioning any more**: 3 ids instead of 1,000, at
  596 bytes each.
"""


def tables(found: Found) -> list[str]:
    """Return both tables in Markdown."""
    columns = (
        *("input partitions", "variant", "producers", "connections", "transactions", "records each", "markers"),
        *("states", "ids", "transactions/s", "records/s", "s"),
    )
    lines = [f"| {' | '.join(columns)} |", "|---|---" + "|---:" * (len(columns) - 2) + "|", *(_row(row) for row in found["rows"])]
    lines += ["", "| where | bytes of one producer |", "|---|---:|", *(f"| {place} | {weight:,} |" for place, weight in found["bytes"].items())]
    return lines


def tasks_page() -> str:
    """Return the page."""
    found: Found = json.loads(FILE.read_text())
    lines = tables(found)
    cut = lines.index("")
    return "\n".join([INTRODUCTION, *lines[:cut], "", MEANING, "", WEIGHTS, *lines[cut + 1 :], "", READING])


def _row(row: Mapping[str, Cell]) -> str:
    transactions, records, virtual_ms = (int(row[name]) for name in ("transactions", "records", "virtual_ms"))
    counts = " | ".join(f"{int(row[name]):,}" for name in ("producers", "connections", "transactions"))
    left = " | ".join(f"{int(row[name]):,}" for name in ("markers", "states", "ids"))
    rates = f"{transactions * 1000 / virtual_ms:.1f} | {records * 1000 / virtual_ms:,.0f} | {virtual_ms / 1000:.1f}"
    return f"| {int(row['input_partitions']):,} | {row['variant']} | {counts} | {records / transactions:.1f} | {left} | {rates} |"
