"""Figures of docs/claims.json that are determined by a seed are measured again: a different figure
fails, and names the command to run.

Figures of tests are compared in the tests themselves (the fixture `figures`); here are scenarios
and benches.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.claims.checks import CHECKS, CLAIMS, INTEROP, TEST
from tools.claims.record import Measured, drift, read_record, unfounded
from tools.claims.recording import Recorder
from tools.claims.rows import ROWS

RECORD = read_record()


def drift_of(name: str) -> list[str]:
    """Run it, and return a line for each figure that differs."""
    rows = [row.id for row in ROWS if name in row.checks]
    found, stored = CHECKS[name].measure(), RECORD["checks"][name]["figures"]
    return [*drift(name, found, stored, rows), *unfounded(name, found, stored, rows)]


def named(command: str) -> list[str]:
    """Measurements that a command repeats."""
    return [name for name, measurement in CHECKS.items() if measurement.again == command]


@pytest.mark.parametrize("name", named(TEST))
def test_seeded_figures_are_unchanged(name: str) -> None:
    assert not (lines := drift_of(name)), "\n".join(lines)


@pytest.mark.interop
@pytest.mark.parametrize("name", named(INTEROP))
def test_figures_of_longer_seeded_runs_are_unchanged(name: str) -> None:
    assert not (lines := drift_of(name)), "\n".join(lines)


def test_drift_names_the_figure_and_the_command_to_run() -> None:
    (line,) = drift(
        "kraftsim scenario x",
        {"refused": 116, "stays": True},
        {"refused": 73, "stays": True},
        ["730-08"],
    )
    assert (
        "refused is 116, docs/claims.json says 73" in line
        and 'make claims ARGS="--only 730-08"' in line
    )


def test_a_figure_without_a_measurement_is_reported() -> None:
    assert not unfounded("a", ["refused"], {"refused": 1}, [])
    (line,) = unfounded("a", ["refused"], {"refused": 1, "typed": 2}, ["730-08"])
    assert "nothing measures typed" in line and "730-08" in line


FAKE = """
import pytest
@pytest.fixture(params=["first", "second"])
def case(request):
    return request.param

def test_one(case, figures):
    figures(**{f"of_{case}": len(case)})
"""


@pytest.mark.parametrize(
    ("stored", "asked", "lines"),
    [
        ({"of_first": 5, "of_second": 6}, [], 0),
        ({"of_first": 5, "of_second": 6, "typed": 3}, [], 1),
        ({"of_first": 5, "of_second": 6, "typed": 3}, ["-k", "second"], 0),
    ],
)
def test_a_full_run_fails_for_a_figure_that_no_case_recorded(
    stored: dict[str, object], asked: list[str], lines: int, tmp_path: Path
) -> None:
    """In a separate pytest run; a run of some cases cannot detect it."""
    file = tmp_path / f"test_{tmp_path.name}.py"
    check = f"{file.name}::test_one"
    seen = []

    class Plugin(Recorder):
        """A recorder with another record."""

        def __init__(self) -> None:
            super().__init__(None)
            measured: Measured = {
                "passed": True,
                "figures": stored,
                "again": TEST,
                "date": "",
                "commit": "",
            }
            self._stored = {"checks": {check: measured}, "rows": []}

        @pytest.fixture
        def figures(self, request: pytest.FixtureRequest) -> Callable[..., None]:
            return lambda **found: self.record(request.node.nodeid, **found)

        def pytest_addoption(self, parser: pytest.Parser) -> None:
            parser.addoption("--more-seeds", type=int, default=0)

        def pytest_unconfigure(self) -> None:
            seen.extend(self.lines)

    file.write_text(FAKE)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "--rootdir", str(tmp_path)]
    code = pytest.main([*options, str(file), *asked], plugins=[Plugin()])
    assert (len(seen), code) == (lines, 1 if lines else 0)


def test_everything_determined_by_a_seed_is_measured_again() -> None:
    """The exceptions are times, and bytes that depend on the Python version."""
    assert named(CLAIMS) == [
        'make bench ARGS="id_variants --seconds 20" # the controller\'s rule, CPU time',
        "make bench ARGS=variants # memory",
        "kraftsim compare # memory",
        'make bench ARGS="tiering --mebibytes 256"',
    ]
