"""`kraftsim scenario --from --to` and `--path`: the releases that an upgrade goes through."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kraftsim.cli.failure import Failure
from kraftsim.cli.scenario import scenario


def releases_of(run: Path, node: str) -> list[str]:
    """The releases that a node had, in order."""
    logs = sorted(
        (run / "events").glob(f"{node}.*.jsonl"), key=lambda log: int(log.name.split(".")[-2])
    )
    started = [json.loads(log.read_bytes().partition(b"\n")[0]) for log in logs]
    return [line["release"] for line in started if line["kind"] == "NodeStarted"]


def play(out: Path, *words: str) -> int:
    """Run the command, and return its exit code."""
    found = CliRunner().invoke(
        scenario, [*words, "--seed", "3", "--out", str(out)], standalone_mode=False
    )
    if found.exception is not None:
        raise found.exception
    return int(found.return_value)


def test_an_upgrade_goes_through_the_releases_of_its_path(tmp_path: Path) -> None:
    assert play(tmp_path / "run", "rolling_upgrade", "--path", "3.6,4.1") == 0
    for node in ("broker-1", "controller-102"):
        assert releases_of(tmp_path / "run", node) == ["3.6", "4.1"]
    replay = json.loads((tmp_path / "run" / "replay.json").read_bytes())
    assert replay["settings"]["kraftsim.upgrade.path"] == "4.1"


def test_a_path_may_end_with_what_is_not_released(tmp_path: Path) -> None:
    words = ("--path", "4.3,4.4,trunk", "--work", "copiers=1", "--work", "writers=1")
    assert play(tmp_path / "run", "rolling_upgrade", *words) == 0
    assert releases_of(tmp_path / "run", "broker-1") == ["4.3", "4.4", "trunk"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rolling_upgrade", "--from", "3.6"), "give --from and --to"),
        (("rolling_upgrade", "--to", "4.1"), "give --from and --to"),
        (("rolling_upgrade", "--path", "3.6"), "two releases or more"),
        (("rolling_upgrade", "--path", "4.1,3.6"), "3.6 is not later than 4.1"),
        (("rolling_upgrade", "--path", "3.6,trunk,4.1"), "4.1 is not later than trunk"),
        (("rolling_upgrade", "--path", "3.6,9.9"), "no release is called 9.9"),
        (("rolling_upgrade", "--path", "3.6,4.1", "--to", "4.1"), "give --path, or"),
        (("quorum_under_faults", "--path", "3.6,4.1"), "does not upgrade through a path"),
        (("no_such_upgrade", "--path", "3.6,4.1"), "no scenario is called no_such_upgrade"),
    ],
)
def test_paths_that_cannot_be_played_are_refused(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(Failure, match=message):
        play(tmp_path / "run", *words)
