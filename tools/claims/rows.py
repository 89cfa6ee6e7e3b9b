"""All rows in the order of the documents, and the registry of checks."""

import tomllib
from pathlib import Path
from typing import Final

from tools.claims import checks_of_ids, checks_of_state, checks_of_transactions
from tools.claims.row import Row

DOCUMENTS: Final = {
    "730": "KIP-730: producer id blocks from the controller",
    "TS": "Empty producer snapshots for tiered storage",
    "758": "KIP-758: the latest batch only",
    "LP": "lease_pid: the idempotent producer that was drawn before Kafka's own",
    "447": "KIP-447: exactly once by the generation of a consumer group",
    "939": "KIP-939: participation in a two-phase commit",
}
COUNTS: Final = {"730": 34, "TS": 32, "758": 31, "LP": 32, "447": 40, "939": 14}
"""The number of claims of each document."""
FILES: Final = ("kip_730", "empty_snapshots", "kip_758", "lease_pid", "kip_447", "kip_939")
PLAYERS: Final = (checks_of_ids, checks_of_state, checks_of_transactions)
"""Modules that register checks when they are imported."""


def _row(fields: dict[str, object]) -> Row:
    checks = fields.pop("checks")
    assert isinstance(checks, list), "a row names its checks"
    # arg-type: keyword arguments of several types
    return Row(checks=tuple(checks), **fields)  # type: ignore[arg-type]


def _rows(file: Path) -> tuple[Row, ...]:
    return tuple(map(_row, tomllib.loads(file.read_text())["row"]))


ROWS: Final[tuple[Row, ...]] = tuple(
    row for name in FILES for row in _rows(Path(__file__).with_name(f"{name}.toml"))
)
