"""The page of clients, from docs/client-matrix.json: the result of each client release with each
broker release, kraftsim and Apache Kafka.
"""

import json
from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).parents[2] / "docs" / "client-matrix.json"
OURS, THEIRS = "kraftsim", "Apache Kafka"
WORKS, NOT_THERE = "works", "-"
LIBRARIES = ("java", "librdkafka", "kafka-python", "aiokafka")
Cells = dict[str, dict[str, dict[str, str]]]
"""Client -> broker -> work -> outcome."""
INTRODUCTION = """# Clients

Kafka clients of many releases, from PyPI and Maven, each run with the same workloads on kraftsim as
every release line below and on Apache Kafka itself. `make clients` runs them again and writes this
page; `ARGS='--lines 4.4 --clients "java 2.0.1"'` runs a part. An interop test runs some.

| workload | description |
|---|---|
{works}

The results are verified independently of the client: the newest librdkafka reads the topics
afterwards.

**all** means that all five workloads pass, or all that the library supports: {lacking}. Workloads
that are not named pass. A word in brackets is the error of a workload. In a cell with two rows, the
first is kraftsim's and the second Apache Kafka's; with one row, both are the same.
"""
WORDS = {
    "idempotent": "30 records by an idempotent producer, each is in the log once",
    "transactions": "three transactions, of which the second is aborted",
    "read committed": (
        "a read_committed consumer reads the records of two committed transactions, and none of "
        "an aborted one"
    ),
    "group": "a member of a group reads and commits offsets; the next member has nothing left",
    "copy": "records and the group's offsets go into a transaction; the first attempt is aborted",
}
REMARKS = """
## Errors, and their reasons

- **Java since 2.5 on brokers before 2.5** sends group metadata with the offsets of a transaction
  (KIP-447), which those brokers do not support: UnsupportedVersionException. Up to 3.9 an
  application can send only the group id, which works with them; since 4.0 it cannot.
- **librdkafka before 1.9 on brokers since 4.0** (KIP-896) produces, but consumes nothing: it never
  gets a start offset.
- **Java 1.1 and 2.0 on brokers since 4.0** pass all workloads, though KIP-896 guarantees it for
  clients since 2.1 only.
- **librdkafka while a broker in ZooKeeper mode starts** may fail a record with _UNKNOWN_TOPIC: for
  a moment such a broker, kraftsim's as well as Apache Kafka 3.9.1's, returns metadata without
  brokers and topics. An application retries.

## Sources of the clients

- **java** is kafka-clients of Maven. One program is compiled against 2.0.1 and runs on the jars of
  each release, which are pinned by their hash.
- **librdkafka** is the shared library in the wheel of confluent-kafka, called by ctypes, so
  releases with wheels for older Python versions run, too. Before 1.2 it has no isolation levels,
  before 1.4 no transactions.
- **kafka-python** has idempotence and transactions from 2.1 on. **aiokafka** 0.7 and earlier have
  no wheel for Python 3.11 and would have to be compiled, so they are omitted.
- Downloads are cached in `build/clients`. The pins are in `tests/clients/versions`.
"""


def kept() -> Cells:
    """Return the stored results."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def keep(cells: Cells) -> None:
    """Store the results: one line for each client and broker."""
    parts = []
    for client, brokers in sorted(cells.items(), key=lambda item: _place_of_client(item[0])):
        rows = ",\n".join(
            f"  {json.dumps(broker)}: {json.dumps(outcomes)}"
            for broker, outcomes in sorted(brokers.items(), key=_place)
        )
        parts.append(f" {json.dumps(client)}: {{\n{rows}\n }}")
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def line_of(broker: str) -> str:
    """Return the release line of a broker: kraftsim 3.9 and Apache Kafka 3.9.1 are both of 3.9."""
    return ".".join(broker.rpartition(" ")[2].split(".")[:2])


def clients_page() -> str:
    """Return the page."""
    cells = kept()
    brokers = sorted(
        {broker for row in cells.values() for broker in row},
        key=lambda broker: _place((broker, {})),
    )
    lines = list(dict.fromkeys(line_of(broker) for broker in brokers))
    beside = {line_of(broker): broker for broker in brokers if broker.startswith(THEIRS)}
    works = "\n".join(f"| {name} | {words} |" for name, words in WORDS.items())
    text = [INTRODUCTION.format(works=works, lacking=_lacking(cells))]
    heads = [
        f"{line}, compared with {beside[line].removeprefix(THEIRS + ' ')}"
        if line in beside
        else line
        for line in lines
    ]
    text += [f"| client | {' | '.join(heads)} |", "|---" * (len(lines) + 1) + "|"]
    for client, row in cells.items():
        text.append(
            f"| {client} | {' | '.join(_cell(row, line, beside.get(line)) for line in lines)} |"
        )
    return "\n".join(text) + "\n" + REMARKS


def _place(item: tuple[str, object]) -> tuple[list[int], str]:
    return [int(part) for part in line_of(item[0]).split(".")], item[0]


def _place_of_client(name: str) -> tuple[int, list[int]]:
    library, _, version = name.partition(" ")
    return LIBRARIES.index(library), [int(part) for part in version.split(".")] if version[
        0
    ].isdigit() else [999]


def _cell(row: Mapping[str, Mapping[str, str]], line: str, beside: str | None) -> str:
    ours = _said(row.get(f"{OURS} {line}"))
    theirs = _said(row.get(beside)) if beside is not None else ours
    return ours if ours == theirs else f"{ours}<br>{theirs}"


def _said(outcomes: Mapping[str, str] | None) -> str:
    if outcomes is None:
        return "not run"
    asked = {work: outcome for work, outcome in outcomes.items() if outcome != NOT_THERE}
    wrong: dict[str, list[str]] = {}
    for work, outcome in asked.items():
        if outcome != WORKS:
            wrong.setdefault(outcome, []).append(work)
    if not wrong:
        return "all"
    return "; ".join(f"not {', '.join(works)} ({outcome})" for outcome, works in wrong.items())


def _lacking(cells: Cells) -> str:
    found: dict[str, list[str]] = {}
    for client, row in cells.items():
        lacks = [work for work, outcome in next(iter(row.values())).items() if outcome == NOT_THERE]
        if lacks:
            found.setdefault(", ".join(lacks), []).append(client)
    return "; ".join(f"{' and '.join(clients)} lack {works}" for works, clients in found.items())
