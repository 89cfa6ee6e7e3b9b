"""The page about producers per task and per thread, from docs/producer-per-task.json, the results
of `make bench ARGS="tasks --keep"`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

FILE = Path(__file__).parents[2] / "docs" / "producer-per-task.json"
PICTURE = FILE.with_suffix(".svg")
Cell = int | float | str


class Found(TypedDict):
    """The stored results: a row for each variant and number of input partitions, and the bytes of
    one producer in each place.
    """

    rows: Sequence[Mapping[str, Cell]]
    bytes: Mapping[str, int]


INTRODUCTION = f"""# A producer per task, or per thread

An application of three threads copies a topic exactly once: it consumes, produces, and commits both
in one transaction. Before KIP-447 it was fenced by its transactional id only, so each input
partition had its own id and producer (Kafka Streams' `exactly_once`). Since KIP-447 the group
coordinator fences members that lost a partition, and a thread needs one producer for all its
partitions (`exactly_once_v2`). Both variants run in one run of `producer_per_task_vs_per_thread`,
on three brokers, each partition of the topics on one of them; both outputs are checked, and are
correct. One command measures and plots:

```text
make bench ARGS="tasks --keep" && make docs
```

![opened connections, and costs](../{PICTURE.name})
"""
MEANING = """\
*Records each*: records per transaction. *Markers*: transaction markers, one per partition of a
transaction. *States*: entries in the producer state of all partition leaders, including
`__consumer_offsets`; followers have the same. *Ids*: transactional ids at coordinators. Times are
virtual, of the simulated network and disks (0.1 to 1 ms a message), including the rebalance of the
group."""
WEIGHTS = """\
The memory of one producer. The first rows are the allocations of the interpreter, the last ones the
growth of a broker process for each of 2,000 producers with one transaction of one record, and for
each of 500 connections:
"""
READING = """## Results

- **Producers and connections grow with the partitions, as the proposal claims** (rows 447-03 and
  447-05 of the [claims](claims.md)): a producer per task opens about three connections, to
  coordinators and to the leader it writes to, so 1,000 partitions need 3,007 connections, at 4,760
  bytes each 14 MB. With a producer per thread it is 18, for any number of partitions.
- **Batching is lost** (447-04): each task has its own transaction, however few records it has to
  copy. At 1,000 partitions that is ten times as many transactions, and less than a quarter of the
  records per second.
- **About half of the markers are saved, and no more.** Each output partition of a transaction needs
  one in both variants; the savings are those in the partition of the offsets, one per transaction.
- **The producer state of leaders is halved for the same reason, the state of coordinators becomes
  negligible**: 3 ids instead of 1,000, at 596 bytes each.
"""


def tables(found: Found) -> list[str]:
    """Return both tables in Markdown."""
    columns = (
        *(
            "input partitions",
            "variant",
            "producers",
            "connections",
            "transactions",
            "records each",
            "markers",
        ),
        *("states", "ids", "transactions/s", "records/s", "s"),
    )
    lines = [
        f"| {' | '.join(columns)} |",
        "|---|---" + "|---:" * (len(columns) - 2) + "|",
        *(_row(row) for row in found["rows"]),
    ]
    lines += [
        "",
        "| where | bytes of one producer |",
        "|---|---:|",
        *(f"| {place} | {weight:,} |" for place, weight in found["bytes"].items()),
    ]
    return lines


def tasks_page() -> str:
    """Return the page."""
    found: Found = json.loads(FILE.read_text())
    lines = tables(found)
    cut = lines.index("")
    return "\n".join(
        [INTRODUCTION, *lines[:cut], "", MEANING, "", WEIGHTS, *lines[cut + 1 :], "", READING]
    )


def _row(row: Mapping[str, Cell]) -> str:
    transactions, records, virtual_ms = (
        int(row[name]) for name in ("transactions", "records", "virtual_ms")
    )
    counts = " | ".join(
        f"{int(row[name]):,}" for name in ("producers", "connections", "transactions")
    )
    left = " | ".join(f"{int(row[name]):,}" for name in ("markers", "states", "ids"))
    rates = (
        f"{transactions * 1000 / virtual_ms:.1f} | {records * 1000 / virtual_ms:,.0f} | "
        f"{virtual_ms / 1000:.1f}"
    )
    return (
        f"| {int(row['input_partitions']):,} | {row['variant']} | {counts} | "
        f"{records / transactions:.1f} | {left} | {rates} |"
    )
