"""Runs every client on every broker, ours and Apache Kafka's, and writes the outcomes: `make
clients`.

`python -m tests.clients.versions.matrix --lines 3.9 4.4 --clients "java 2.0.1" --only ours` runs a
part again; other outcomes are kept.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.apache_kafka.class_path import Missing
from tests.clients.versions.brokers import APACHE, LINES, ours, theirs
from tests.clients.versions.catalogue import CLIENTS, Client
from tests.clients.versions.program import Program
from tests.clients.versions.tasks import (
    LIST,
    NOT_THERE,
    TASKS,
    Found,
    Task,
    create_topics,
    prepare,
    run_task,
    unique_word,
)
from tools.docs.clients_page import Cells, keep, kept

PATIENCE_MS = 10_000
MORE_PATIENCE_MS = 40_000
AT_ONCE = 3
"""Clients run concurrently, because they mostly wait."""
OURS, THEIRS = "kraftsim", "Apache Kafka"


def run_all(client: Client, bootstrap: str, expected: Found) -> Found:
    """Run all tasks with one client, and return the outcome of each. Raises Missing.

    A failed task is run once more with a longer timeout, unless the failure was expected: the
    machine may be busy.
    """
    word = unique_word(client)
    found = _run_tasks(client, bootstrap, word, LIST, PATIENCE_MS)
    odd = [
        work for work in LIST if found[work.name] not in (TASKS, NOT_THERE, expected.get(work.name))
    ]
    if odd:
        again = f"{word}-again"
        create_topics(bootstrap, [f"{again}-{work.output}" for work in odd if work.output])
        found |= _run_tasks(client, bootstrap, again, odd, MORE_PATIENCE_MS)
    return found


def _run_tasks(
    client: Client, bootstrap: str, word: str, works: Sequence[Task], patience_ms: int
) -> dict[str, str]:
    with tempfile.TemporaryDirectory(prefix="clients-") as directory:
        log = Path(directory) / "errors"
        with Program(client, bootstrap, word, patience_ms=patience_ms, log=log) as program:
            return {
                work.name: run_task(program, work, bootstrap, word, seconds=4 * patience_ms / 1000)
                for work in works
            }


def ask(
    bootstrap: str, clients: Sequence[Client], expected: Mapping[str, Found] | None = None
) -> dict[str, Found]:
    """Run clients on a broker, a few at a time; `expected` are outcomes by client name."""
    prepare(bootstrap, [unique_word(client) for client in clients])
    known = expected or {}
    with ThreadPoolExecutor(AT_ONCE) as several:
        found = several.map(
            lambda client: run_all(client, bootstrap, known.get(client.name, {})), clients
        )
        return dict(zip((client.name for client in clients), found, strict=True))


def installed(clients: Sequence[Client]) -> list[Client]:
    """Install all clients, and return those that could be installed."""
    found = []
    for client in clients:
        try:
            client.bring()
        except Missing as lack:
            print(f"left out: {client.name}: {lack}", file=sys.stderr)
        else:
            found.append(client)
    return found


def main() -> None:
    """Run the selected part, and store the outcomes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", nargs="*", default=LINES, choices=LINES)
    parser.add_argument(
        "--clients",
        nargs="*",
        default=[client.name for client in CLIENTS],
        choices=[client.name for client in CLIENTS],
    )
    parser.add_argument("--only", choices=["ours", "theirs"])
    words = parser.parse_args()
    clients = installed([client for client in CLIENTS if client.name in words.clients])
    sides = [("theirs", THEIRS, theirs), ("ours", OURS, ours)]
    for line in words.lines:
        for side, whose, running in sides:
            if words.only in (None, side) and (side == "ours" or line in APACHE):
                release = APACHE[line] if side == "theirs" else line
                print(f"{whose} {release}", flush=True)
                with running(line) as bootstrap:
                    found = ask(bootstrap, clients)
                _keep(f"{whose} {release}", found)


def _keep(broker: str, found: dict[str, Found]) -> None:
    cells: Cells = kept()
    for client, outcomes in found.items():
        print(
            f"  {client}: {', '.join(f'{work} {outcome}' for work, outcome in outcomes.items())}",
            flush=True,
        )
        cells.setdefault(client, {})[broker] = dict(outcomes)
    keep(cells)


if __name__ == "__main__":
    main()
