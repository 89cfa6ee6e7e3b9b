"""The page of clients, from docs/client-matrix.json: what each release of a client did on each release of a broker, ours and Apache Kafka's."""

import json
from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).parent / "client-matrix.json"
OURS, THEIRS = "kraftsim", "Apache Kafka"
WORKS, NOT_THERE = "works", "-"
LIBRARIES = ("java", "librdkafka", "kafka-python", "aiokafka")
Cells = dict[str, dict[str, dict[str, str]]]
"""Client -> broker -> work -> outcome."""
INTRODUCTION = """# Clients

Clients of Apache Kafka of many releases, from PyPI and Maven, each put to the same works on kraftsim as every release line below and on Apache Kafka
itself. `make clients` asks again and writes this page; `ARGS='--lines 4.4 --clients "java 2.0.1"'` asks a part. An interop test asks some of it.

| work | what is done |
|---|---|
{works}

What a client says of its work is not believed: the newest librdkafka reads what is there afterwards.

**all** means all five works, or all those that the library has: {lacking}.
What is not named works. A word in brackets is the error with which a work ended. Where a cell has two rows, the first is kraftsim's and the second
Apache Kafka's; where it has one, both did the same.
"""
WORDS = {
    "idempotent": "30 records by an idempotent producer, each is there once",
    "transactions": "three transactions, of which the second is aborted",
    "read committed": "a reader of committed data reads what two committed transactions and an aborted one left",
    "group": "a member of a group reads and commits offsets; the next member has nothing left",
    "copy": "records and the group's offsets go into a transaction; the first attempt is aborted",
}
NOTES = """
## What is refused, and why

- **Java since 2.5 on brokers before 2.5** names the member when it sends offsets to a transaction (KIP-447), which those brokers do not know:
  UnsupportedVersionException. Up to 3.9 an application can name its group only, and gets on with them; since 4.0 it cannot.
- **librdkafka before 1.9 on brokers since 4.0** (KIP-896) goes on writing, and reads nothing: it never learns the offset to begin at.
- **Java 1.1 and 2.0 on brokers since 4.0** do all works, though KIP-896 promises it for clients since 2.1 only.
- **librdkafka while a broker in ZooKeeper mode comes up** may fail a record with _UNKNOWN_TOPIC: for a moment such a broker, ours as Apache Kafka
  3.9.1, says that there are no brokers and no such topic. An application tries it again.

## How they are brought

- **java** is kafka-clients of Maven. One program is compiled against 2.0.1 and runs on the jars of each release, which are pinned by their hash.
- **librdkafka** is the shared library inside the wheel of confluent-kafka, called by ctypes: so releases run here whose wheels are for older Pythons.
  Before 1.2 it has no isolation levels, before 1.4 no transactions.
- **kafka-python** has idempotence and transactions from 2.1 on. **aiokafka** 0.7 and before have no wheel for Python 3.11 and would
  have to be compiled, so they are left out.
- What was brought lies in `build/clients` and is not fetched again. The pins are in `tests/clients/versions`.
"""


def kept() -> Cells:
    """Return what was found so far."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def keep(cells: Cells) -> None:
    """Keep what was found: one line for each client and broker."""
    parts = []
    for client, brokers in sorted(cells.items(), key=lambda item: _place_of_client(item[0])):
        rows = ",\n".join(f"  {json.dumps(broker)}: {json.dumps(outcomes)}" for broker, outcomes in sorted(brokers.items(), key=_place))
        parts.append(f" {json.dumps(client)}: {{\n{rows}\n }}")
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def line_of(broker: str) -> str:
    """Return the release line of a broker: kraftsim 3.9 and Apache Kafka 3.9.1 are both of 3.9."""
    return ".".join(broker.rpartition(" ")[2].split(".")[:2])


def clients_page() -> str:
    """Return the page."""
    cells = kept()
    brokers = sorted({broker for row in cells.values() for broker in row}, key=lambda broker: _place((broker, {})))
    lines = list(dict.fromkeys(line_of(broker) for broker in brokers))
    beside = {line_of(broker): broker for broker in brokers if broker.startswith(THEIRS)}
    works = "\n".join(f"| {name} | {words} |" for name, words in WORDS.items())
    text = [INTRODUCTION.format(works=works, lacking=_lacking(cells))]
    heads = [f"{line}, beside {beside[line].removeprefix(THEIRS + ' ')}" if line in beside else line for line in lines]
    text += [f"| client | {' | '.join(heads)} |", "|---" * (len(lines) + 1) + "|"]
    for client, row in cells.items():
        text.append(f"| {client} | {' | '.join(_cell(row, line, beside.get(line)) for line in lines)} |")
    return "\n".join(text) + "\n" + NOTES


def _place(item: tuple[str, object]) -> tuple[list[int], str]:
    return [int(part) for part in line_of(item[0]).split(".")], item[0]


def _place_of_client(name: str) -> tuple[int, list[int]]:
    library, _, version = name.partition(" ")
    return LIBRARIES.index(library), [int(part) for part in version.split(".")] if version[0].isdigit() else [999]


def _cell(row: Mapping[str, Mapping[str, str]], line: str, beside: str | None) -> str:
    ours = _said(row.get(f"{OURS} {line}"))
    theirs = _said(row.get(beside)) if beside is not None else ours
    return ours if ours == theirs else f"{ours}<br>{theirs}"


def _said(outcomes: Mapping[str, str] | None) -> str:
    if outcomes is None:
        return "not asked"
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
