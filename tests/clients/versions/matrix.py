"""Puts every client to every broker, ours and Apache Kafka's beside it, and writes down what came of it: `make clients`.

`python -m tests.clients.versions.matrix --lines 3.9 4.4 --clients "java 2.0.1" --only ours` asks a part anew; what was found before stays.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from docs.clients_page import Cells, keep, kept
from tests.apache_kafka.class_path import Missing
from tests.clients.versions.brokers import APACHE, LINES, ours, theirs
from tests.clients.versions.catalogue import CLIENTS, Client
from tests.clients.versions.program import Program
from tests.clients.versions.works import LIST, Found, prepare, put_to, word_of

PATIENCE_MS = 10_000
ANSWER_SECONDS = 60.0
AT_ONCE = 3
"""Clients mostly wait."""
OURS, THEIRS = "kraftsim", "Apache Kafka"


def put_to_all(client: Client, bootstrap: str) -> Found:
    """Put one client to all works, and return what came of each. Raises Missing."""
    with tempfile.TemporaryDirectory(prefix="clients-") as directory:
        log = Path(directory) / "errors"
        with Program(client, bootstrap, word_of(client), patience_ms=PATIENCE_MS, log=log) as program:
            return {work.name: put_to(program, work, bootstrap, seconds=ANSWER_SECONDS) for work in LIST}


def ask(bootstrap: str, clients: Sequence[Client]) -> dict[str, Found]:
    """Put clients to a broker, a few at a time."""
    prepare(bootstrap, clients)
    with ThreadPoolExecutor(AT_ONCE) as several:
        return dict(zip((client.name for client in clients), several.map(lambda client: put_to_all(client, bootstrap), clients), strict=True))


def brought(clients: Sequence[Client]) -> list[Client]:
    """Bring all clients, and return those that could be brought."""
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
    """Ask what was asked for, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", nargs="*", default=LINES, choices=LINES)
    parser.add_argument("--clients", nargs="*", default=[client.name for client in CLIENTS], choices=[client.name for client in CLIENTS])
    parser.add_argument("--only", choices=["ours", "theirs"])
    words = parser.parse_args()
    clients = brought([client for client in CLIENTS if client.name in words.clients])
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
        print(f"  {client}: {', '.join(f'{work} {outcome}' for work, outcome in outcomes.items())}", flush=True)
        cells.setdefault(client, {})[broker] = dict(outcomes)
    keep(cells)


if __name__ == "__main__":
    main()
