"""The page of claims is complete, names only existing checks, and has no manually typed result or
figure.
"""

import re
from pathlib import Path

import pytest

from tools.claims.checks import AGAIN, CHECKS
from tools.claims.record import Measured, read_record
from tools.claims.row import FAILED, HOLDS, REFUTED, VERDICTS, Row
from tools.claims.row_result import row_result
from tools.claims.rows import COUNTS, ROWS

PROJECT_ROOT = Path(__file__).parents[2]
RECORD = read_record()
NAMES = (
    r"`[^`]*`",
    r"\{[^}]*\}",
    r"\b[0-4]\.\d+(\.\d+)?(-IV\d)?\b",  # releases, and seconds of a setting
    r"(KIP|KAFKA)-\d+",
    r"\b(730|TS|758|LP|447|939)-\d\d\b",
    r"2\^\d\d(-1)?",
)
"""Texts with digits that are not measured figures: code, figures in braces, releases, tickets,
rows, powers of two.
"""
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?<!,)")
TERMS = {
    "730-17": "3 100 10 1 10 100 1,000 100,000",
    "730-20": "20 24",
    "730-21": "64",
    "730-25": "99 1",
    "730-26": "1,000 5,000 90",
    "730-27": "20 20",
    "730-28": "3 0 1 2 3",
    "730-31": "100,000",
    "730-32": "0 1",
    "730-33": "20 100 4 50",
    "TS-14": "5 1",
    "TS-26": "1 1024",
    "TS-29": "2 3",
    "758-06": "99 100",
    "758-08": "20",
    "758-09": "99 100 10 11",
    "758-11": "0",
    "758-13": "32 1",
    "758-19": "20",
    "758-24": "1",
    "758-28": "2,000 99 1 10 100 0",
    "758-29": "0",
    "758-30": "0",
    "LP-04": "0 8",
    "LP-05": "5,000",
    "LP-07": "3 3 4 2 5",
    "LP-08": "0",
    "LP-09": "0",
    "LP-10": "1",
    "LP-15": "8",
    "LP-16": "1,000 5 5,000",
    "LP-17": "8",
    "LP-19": "105 101 103",
    "LP-21": "10 10,000",
    "LP-24": "10",
    "LP-27": "1,000",
    "447-15": "1 10 60",
    "447-16": "5 30 1 10 60",
    "447-26": "2 3",
    "447-28": "1 0 3",
    "939-11": "2",
}
"""The numbers in a sentence that are parameters of the run (brokers, duration, sizes) or of the
claim: none was measured.
"""


def exists(check: str) -> bool:
    """Whether the check of a claim exists."""
    if not check.startswith("tests/"):
        return check in CHECKS
    file, _, test = check.partition("::")
    place = PROJECT_ROOT / file
    return place.is_file() and (
        not test or re.search(rf"^(async )?def {test}\(", place.read_text(), flags=re.M) is not None
    )


def test_every_claim_of_every_document_has_a_row() -> None:
    expected = [
        f"{document}-{number:02}"
        for document, count in COUNTS.items()
        for number in range(1, count + 1)
    ]
    assert [row.id for row in ROWS] == expected and len(expected) == 183


@pytest.mark.parametrize("document", COUNTS)
def test_every_check_that_a_claim_names_exists(document: str) -> None:
    assert not [
        (row.id, check)
        for row in ROWS
        if row.document == document
        for check in row.checks
        if not exists(check)
    ]


def test_an_unknown_check_name_is_reported() -> None:
    assert not exists("tests/core/test_lease_pid.py::test_that_is_not_there") and not exists(
        "kraftsim scenario of_nobody"
    )


def test_every_claim_run_is_named_by_a_row_and_a_command() -> None:
    named = {check for row in ROWS for check in row.checks}
    assert not [name for name in CHECKS if name not in named]
    assert not [name for name, measurement in CHECKS.items() if measurement.again not in AGAIN]


def test_the_claims_record_follows_from_rows_and_figures() -> None:
    """After a manual change of docs/claims.json or of a row, the test fails with the command to
    run: `make claims`.
    """
    assert RECORD["rows"] == [row_result(row, RECORD["checks"]) for row in ROWS], (
        'run: make claims ARGS="--write-only"'
    )
    assert sorted(RECORD["checks"]) == sorted({check for row in ROWS for check in row.checks}), (
        'run: make claims ARGS="--missing"'
    )


def test_the_claims_record_names_the_command_that_measures_it() -> None:
    said = {name: each["again"] for name, each in RECORD["checks"].items() if name in CHECKS}
    assert said == {name: CHECKS[name].again for name in said}, 'run: make claims ARGS="--only ..."'


def test_every_claim_row_is_shown() -> None:
    assert not [
        (row["id"], row["measured"])
        for row in RECORD["rows"]
        if row["verdict"] not in VERDICTS or row["verdict"] == FAILED
    ]
    assert all(each["date"] and each["commit"] for each in RECORD["checks"].values())


def test_a_claim_result_follows_from_the_figures() -> None:
    row = Row(
        id="730-01",
        kind="rule",
        claim="",
        shipped="",
        checks=("a",),
        says="{twice} ids twice",
        holds="twice == 0",
    )
    assert [row.verdict({"twice": count}, passed=True) for count in (0, 1)] == [HOLDS, REFUTED]
    assert row.verdict({"twice": 0}, passed=False) == FAILED
    measured = Measured(passed=True, figures={"thrice": 0}, again=AGAIN[0], date="", commit="")
    assert row_result(row, {"a": measured})["verdict"] == FAILED, "a figure is missing"


def test_each_row_has_figures_and_a_condition_or_a_reason() -> None:
    assert not [row.id for row in ROWS if row.argued and (row.conditions or len(row.argued) < 20)]
    assert not [row.id for row in ROWS if not row.conditions and not row.argued], (
        "a result follows from figures"
    )
    assert not [row.id for row in ROWS if "{" not in row.says and not row.argued], (
        "a row shows its figures"
    )


def test_no_claim_sentence_has_a_literal_figure() -> None:
    """A number outside of braces is a name, or one of the parameters above: measured figures are in
    braces.
    """
    typed = {
        row.id: " ".join(NUMBER.findall(re.sub("|".join(NAMES), "", row.says))) for row in ROWS
    }
    assert {row_id: numbers for row_id, numbers in typed.items() if numbers} == TERMS
