"""Writes the event logs of a finished run again, in pieces: a run that is watched while it is
written.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pyarrow as pa

from kraftsim.analysis.live.live_run import LiveRun
from kraftsim.analysis.live.source import ROWS, extents, next_positions, rows_of

NS = 1_000_000_000


def contents_of(run: Path) -> dict[str, bytes]:
    """Return the content of each event log by its path below the run."""
    return {
        path.relative_to(run).as_posix(): path.read_bytes()
        for path in sorted((run / "events").rglob("*.jsonl"))
    }


def pieces(
    contents: Mapping[str, bytes], random: Random, count: int
) -> Iterator[tuple[str, bytes]]:
    """Yield the contents of the files in about `count` pieces, cut at any byte, in a random
    order of files.
    """
    cuts = {
        file: sorted(random.randrange(len(content) + 1) for _ in range(count // len(contents) + 1))
        for file, content in contents.items()
    }
    left = {file: [0, *cuts[file], len(content)] for file, content in contents.items()}
    while left:
        file = random.choice(sorted(left))
        start = left[file].pop(0)
        if left[file]:
            yield file, contents[file][start : left[file][0]]
        else:
            del left[file]


def pieces_in_time(
    contents: Mapping[str, bytes], random: Random, count: int
) -> Iterator[tuple[str, bytes]]:
    """Yield the contents as real nodes write them: whatever is written is written up to about the
    same moment everywhere, except for a torn line.
    """
    lines = sorted(
        (_t_ns(line), place, file, line)
        for file, content in contents.items()
        for place, line in enumerate(content.splitlines(keepends=True))
    )
    places = sorted(random.randrange(len(lines) + 1) for _ in range(count))
    torn: dict[str, bytes] = {}
    for first, end in zip([0, *places], [*places, len(lines)], strict=True):
        written: dict[str, bytes] = {file: tail for file, tail in torn.items() if tail}
        torn = {}
        for _, _, file, line in lines[first:end]:
            written[file] = written.get(file, b"") + line
        for file, content in sorted(written.items()):
            cut = (
                random.randrange(1, 20) if content.endswith(b"\n") and random.random() < 0.3 else 0
            )
            is_last = end == len(lines)
            if cut and not is_last and len(content) > cut:
                torn[file] = content[-cut:]
                content = content[:-cut]
            yield file, content
    for file, tail in sorted(torn.items()):
        yield file, tail


def _t_ns(line: bytes) -> int:
    return int(line.split(b'"t_ns":')[1].split(b",")[0])


def append(run: Path, file: str, content: bytes) -> None:
    """Append to an event log."""
    path = run / file
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as log:
        log.write(content)


def read_batch(live: LiveRun, now_ns: int, batch_bytes: int) -> None:
    """Read a batch as the streaming query does."""
    before = live.positions
    ends = next_positions(live.run, before, batch_bytes)
    rows = [
        row for extent in extents(before, ends) for row in rows_of(live.run, extent, live.kinds)
    ]
    if rows:
        columns = zip(*rows, strict=True)
        live.add(
            pa.table(
                [pa.array(column, field.type) for column, field in zip(columns, ROWS, strict=True)],
                schema=ROWS,
            ),
            now_ns,
        )


def write_in_real_time(run: Path, contents: Mapping[str, bytes], random: Random) -> Iterator[int]:
    """Write the files as real nodes do, each at most a tenth of a second behind, and yield the
    `t_ns` of the present between two writes.
    """
    left = {
        file: [(_t_ns(line), line) for line in reversed(content.splitlines(keepends=True))]
        for file, content in contents.items()
    }
    now_ns = 0
    while any(left.values()):
        now_ns += random.randrange(10_000_000, 400_000_000)
        for file, lines in sorted(left.items()):
            until_ns = now_ns - random.randrange(100_000_000)
            written = []
            while lines and lines[-1][0] <= until_ns:
                written.append(lines.pop()[1])
            append(run, file, b"".join(written))
        yield now_ns
