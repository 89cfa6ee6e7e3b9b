"""The page of claims, from docs/claims.json: what five design documents say, what plays it, and what came of it.

The rows are facts in our own words, one for each thing that a document states, counts, rejects or leaves open. A row says what plays it in the words
of `PLAYS`; tests/house/test_claims.py holds that all of that exists and that no row is missing.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Final, TypedDict

DOCS = Path(__file__).parent
FILE = DOCS / "claims.json"
DOCUMENTS: Final = {
    "730": "KIP-730: producer id blocks from the controller",
    "TS": "Empty producer snapshots for tiered storage",
    "758": "KIP-758: the latest batch only",
    "LP": "lease_pid: the idempotent producer that was drawn before Kafka's own",
    "447": "KIP-447: exactly once by the generation of a consumer group",
}
COUNTS: Final = {"730": 34, "TS": 32, "758": 31, "LP": 32, "447": 40}
"""How many claims each document makes."""
VERDICTS: Final = ("holds", "holds with limits", "does not hold", "differs from what shipped")
PLAYS: Final = ("scenario", "bug", "invariant", "bench", "requirement", "kraftsim")
"""How what plays a claim begins, if it is not the name of a test, or of a file of tests."""
INTRODUCTION = """# Claims

What five design documents claim, each thing by itself and in our own words, and what came of it when it was played: {rows} rows. A star: it exists as
a part that can be swapped in, not only as a measurement. A verdict is about the document: *holds*; *holds with limits*, which the figure names; *does
not hold*; *differs from what shipped*: Apache Kafka does otherwise, and both can be played. What plays a row is a story (`kraftsim scenario NAME`), a
bench (`make bench ARGS=NAME`), a verb, a chapter of requirements, an invariant, a bug that is put back (`--bug`), or a test; figures come from these.
[Comparing producers](comparing-producers.md) has the designs side by side.

| document | {verdicts} |
|---|{dashes}
{counts}
"""


class Claim(TypedDict):
    """One row. `played_by` names scenarios, bugs, invariants, benches, chapters of requirements, verbs and tests."""

    id: str
    starred: bool
    kind: str
    claim: str
    shipped: str
    verdict: str
    played_by: list[str]
    measured: str


def claims() -> list[Claim]:
    """Return every row, in the order of the documents."""
    found: list[Claim] = json.loads(FILE.read_text())
    return found


def claims_page() -> str:
    """Return the page."""
    rows = claims()
    counted = {name: Counter(row["verdict"] for row in rows if document_of(row) == name) for name in DOCUMENTS}
    table = [f"| {title} | {' | '.join(str(counted[name][verdict]) for verdict in VERDICTS)} |" for name, title in DOCUMENTS.items()]
    lines = [INTRODUCTION.format(rows=len(rows), verdicts=" | ".join(VERDICTS), dashes="---|" * len(VERDICTS), counts="\n".join(table))]
    for name, title in DOCUMENTS.items():
        lines += [f"## {title}\n", "| id | it says | shipped Kafka differs? | verdict | measured | played by |", "|---|---|---|---|---|---|"]
        lines += [_line(row) for row in rows if document_of(row) == name]
        lines.append("")
    return "\n".join(lines)


def document_of(row: Claim) -> str:
    """Return which document a row is of."""
    return row["id"].partition("-")[0]


def _line(row: Claim) -> str:
    star = "*" if row["starred"] else ""
    cells = (row["id"] + star, row["claim"], row["shipped"], row["verdict"], row["measured"], ", ".join(map(_shown, row["played_by"])))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|').replace('*', chr(92) + '*').replace('<', '&lt;') for cell in cells)} |"


def _shown(player: str) -> str:
    """Return a name as it is shown: of a test the sentence."""
    file, _, test = player.partition("::")
    return f"`{player}`" if not test else f"`{test}` ({file.rpartition('/')[2]})"
