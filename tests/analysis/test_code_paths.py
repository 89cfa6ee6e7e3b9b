"""What a campaign records of the code of the rules."""

from pathlib import Path

from kraftsim.core.timeline import Journal
from kraftsim.lab.campaign.code_paths import (
    PACKAGE,
    RunOfCode,
    code_rows,
    functions_of,
    jumps_in,
    recorded,
    rule_files,
)
from kraftsim.producer_ids.rules_allocation import ProducerIdControl

SOURCE = '''
class Outer:
    """A class."""

    def method(self) -> int:
        """A method."""

        def inner() -> int:
            return 1

        return inner()


def function() -> None:
    pass
'''


def test_a_line_belongs_to_the_innermost_function(tmp_path: Path) -> None:
    """Methods have the name of their class."""
    file = tmp_path / "rules.py"
    file.write_text(SOURCE)
    found = {each.name: each for each in functions_of(file)}
    assert list(found) == ["Outer.method", "Outer.method.inner", "function"]
    assert found["Outer.method"].line == 5
    assert 9 in found["Outer.method.inner"].lines and 9 not in found["Outer.method"].lines
    assert 11 in found["Outer.method"].lines


def test_what_runs_is_executed_and_the_rest_is_not(tmp_path: Path) -> None:
    """One function runs: no line of it is missing, and all lines of the others are."""
    file = "kraftsim/producer_ids/rules_allocation.py"
    written = tmp_path / "run.json"
    with recorded(written):
        ProducerIdControl(Journal(), lambda broker_id, broker_epoch: True)
    jumps = jumps_in(written)
    assert file in jumps
    rows, unexecuted = code_rows([RunOfCode("one", "a_scenario", jumps)], "commit")
    assert [(row.function, row.executed == row.statements) for row in rows if row.file == file] == [
        ("ProducerIdControl.__init__", True)
    ]
    missing = {(row.function, row.kind) for row in unexecuted if row.file == file}
    assert ("ProducerIdControl.decide_allocate", "line") in missing
    assert not any(function == "ProducerIdControl.__init__" for function, _ in missing)
    assert any(row.file == "kraftsim/lease_pid/rules_broker.py" for row in unexecuted), (
        "a file of which nothing runs has rows, too"
    )
    lines = (PACKAGE.parent / file).read_text().splitlines()
    assert all(lines[row.line - 1].strip() == row.text for row in unexecuted if row.file == file)


def test_a_run_that_did_not_end_has_no_jumps(tmp_path: Path) -> None:
    """Its file is not there."""
    assert jumps_in(tmp_path / "missing.json") == {}
    assert rule_files() and all("lab" not in path.parts for path in rule_files())
