"""The page of claims leaves none out, and names nothing that is not there."""

import re
from pathlib import Path

import pytest

from bench.__main__ import BENCHES
from docs.claims_page import COUNTS, PLAYS, VERDICTS, claims, document_of
from kraftsim.bugs.bug import BUGS
from kraftsim.cli.main import VERBS
from kraftsim.cluster.scenario import SCENARIOS
from kraftsim.conformance.selection import sections

HOUSE = Path(__file__).parents[2]
CLAIMS = claims()
COMMANDS = re.compile(r"(kraftsim scenario |make bench ARGS=\"?|kraftsim )(?!scenario )([a-z_0-9]+)")
INVARIANTS = {file.stem for file in (HOUSE / "kraftsim" / "invariants").glob("*.py")}


def exists(player: str) -> bool:
    """Whether what plays a claim is there."""
    kind, _, name = player.partition(" ")
    if kind not in PLAYS:
        file, _, test = player.partition("::")
        place = HOUSE / file
        return place.is_file() and (not test or re.search(rf"^(async )?def {test}\(", place.read_text(), flags=re.M) is not None)
    known = {
        "scenario": lambda: name in SCENARIOS.files(),
        "bug": lambda: name in BUGS.names(),
        "invariant": lambda: name in INVARIANTS,
        "bench": lambda: name in BENCHES,
        "requirement": lambda: any(section.label == name for section in sections()),
        "kraftsim": lambda: name in VERBS,
    }
    return known[kind]()


def test_every_claim_of_every_document_has_a_row():
    expected = [f"{document}-{number:02}" for document, count in COUNTS.items() for number in range(1, count + 1)]
    assert [row["id"] for row in CLAIMS] == expected and len(expected) == 169


@pytest.mark.parametrize("document", COUNTS)
def test_everything_that_is_said_to_play_a_claim_is_there(document):
    missing = [(row["id"], player) for row in CLAIMS if document_of(row) == document for player in row["played_by"] if not exists(player)]
    assert not missing


def test_a_name_that_is_nobodys_is_noticed():
    assert not exists("tests/core/test_lease_pid.py::test_that_is_not_there") and not exists("scenario of_nobody") and not exists("bug KAFKA-1")


def test_every_claim_is_played_and_has_a_verdict_and_something_that_was_seen():
    assert not [row["id"] for row in CLAIMS if row["verdict"] not in VERDICTS]
    assert not [row["id"] for row in CLAIMS if not (row["played_by"] and row["measured"] and row["claim"] and row["shipped"])]
    assert not [row["id"] for row in CLAIMS if len(set(row["played_by"])) < len(row["played_by"])]


def test_every_command_that_a_figure_names_is_there():
    named = [(row["id"], kind, name) for row in CLAIMS for kind, name in COMMANDS.findall(row["measured"])]
    players = {"kraftsim scenario": "scenario", "make bench ARGS=": "bench", "kraftsim": "kraftsim"}
    assert len(named) > 10
    assert not [(row_id, name) for row_id, kind, name in named if not exists(f"{players[kind.strip().rstrip(chr(34))]} {name}")]
