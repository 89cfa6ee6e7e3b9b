"""A producer per task beside a producer per thread (KIP-447), by how many input partitions there are: a table, and a plot.

python -m bench.bench_tasks [--partitions 10 100 1000] [--plot docs/tasks.svg]

Three threads copy a topic of three brokers exactly once in simulation, two records in each partition; times are virtual, of the simulated network
and disks. Prints the table in Markdown.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.events.transactional_clients import CopiesCounted
from kraftsim.explore.judge import read_events
from kraftsim.explore.request import RunRequest
from kraftsim.explore.run import play_request

SCENARIO = "producer_per_task_against_per_thread"
RECORDS_PER_PARTITION = 2
SERIES = (("producers", "#b3262e"), ("connections", "#1f5fa8"), ("transactions", "#6a7f10"))
WIDTH, HEIGHT, MARGIN = 640, 360, 60


def counted(partitions: int) -> list[CopiesCounted]:
    """Play once and return what was counted, for both variants."""
    request = RunRequest(
        scenario=scenario(SCENARIO),
        mode=Mode.SIM,
        seed=1,
        workload={"partitions": partitions, "records_per_writer": RECORDS_PER_PARTITION * partitions},
    )
    with tempfile.TemporaryDirectory() as directory:
        result = play_request(request, Path(directory) / "run")
        assert result.outcome == "ok", "\n".join(result.lines())
        return [event for _, event in read_events(Path(directory) / "run" / "events") if isinstance(event, CopiesCounted)]


def row(event: CopiesCounted, cpu_seconds: float) -> str:
    """Return a line of the table."""
    rate = event.transactions * 1000 / event.virtual_ms
    records = event.records * 1000 / event.virtual_ms
    return (
        f"| {event.input_partitions} | {event.variant} | {event.producers} | {event.connections} | {event.transactions} |"
        f" {event.records / event.transactions:.1f} | {rate:.1f} | {records:.0f} | {event.virtual_ms / 1000:.1f} | {cpu_seconds:.1f} |"
    )


def plot(events: list[CopiesCounted]) -> str:
    """Return an SVG: counts by input partitions, both axes logarithmic; full lines are producers per task, broken ones per thread."""
    from math import log10

    most = max(max(event.producers, event.connections, event.transactions) for event in events)
    last = max(event.input_partitions for event in events)
    first = min(event.input_partitions for event in events)

    def place(partitions: int, count: int) -> str:
        across = log10(partitions / first) / max(log10(last / first), 1e-9)
        up = log10(max(count, 1)) / log10(most)
        return f"{MARGIN + across * (WIDTH - 2 * MARGIN):.0f},{HEIGHT - MARGIN - up * (HEIGHT - 2 * MARGIN):.0f}"

    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">']
    lines.append(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>')
    for number, (name, colour) in enumerate(SERIES):
        for variant in dict.fromkeys(event.variant for event in events):
            chosen = [event for event in events if event.variant == variant]
            points = " ".join(place(event.input_partitions, msgspec.structs.asdict(event)[name]) for event in chosen)
            dash = ' stroke-dasharray="6 4"' if "thread" in variant else ""
            lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        lines.append(f'<text x="{MARGIN}" y="{20 + 15 * number}" fill="{colour}">{name} (full: per task, broken: per thread)</text>')
    for event in events:
        x, _ = place(event.input_partitions, 1).split(",")
        lines.append(f'<text x="{x}" y="{HEIGHT - MARGIN + 20}" text-anchor="middle">{event.input_partitions}</text>')
    lines.append(f'<text x="{WIDTH // 2}" y="{HEIGHT - 15}" text-anchor="middle">input partitions; up: 1 to {most}, logarithmic</text></svg>')
    return "\n".join(lines) + "\n"


def main() -> int:
    """Count for each number of partitions, print the table, and write the plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    columns = ("input partitions", "variant", "producers", "connections", "transactions", "records each", "transactions/s", "records/s", "s", "CPU s")
    print(f"| {' | '.join(columns)} |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    events: list[CopiesCounted] = []
    for partitions in options.partitions:
        began = time.process_time()
        found = counted(partitions)
        for event in found:
            print(row(event, time.process_time() - began), flush=True)
        events += found
    if options.plot is not None:
        options.plot.write_text(plot(events))
    return 0


if __name__ == "__main__":
    sys.exit(main())
