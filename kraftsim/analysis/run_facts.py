"""Reads `run.json`: the scenario of a run, its mode and seed, and what its analysis must exercise.

Every field has a default, because a run directory without it (a cluster of `up`) can be analysed,
too.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

RUN_FILE = "run.json"


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a run. `command` is the line that replays it."""

    run: str = ""
    scenario: str = ""
    mode: str = ""
    seed: int | None = None
    releases: Mapping[str, str] = {}
    faults: tuple[str, ...] = ()
    bugs: tuple[str, ...] = ()
    must_exercise: tuple[str, ...] = ()
    versions: Mapping[str, str] = {}
    outcome: str = ""
    started: str = ""
    command: str = ""

    @property
    def title(self) -> str:
        """Return a short title of the run."""
        name = self.scenario or self.run or "a run"
        details = [self.mode, "" if self.seed is None else f"seed {self.seed}", *self.bugs]
        return (
            f"{name} ({', '.join(detail for detail in details if detail)})"
            if any(details)
            else name
        )


def read_run_facts(run: Path) -> RunFacts:
    """Return the facts of RUN/run.json, or none if there is no such file.

    Raises ValueError with the file name if it is malformed.
    """
    path = run / RUN_FILE
    if not path.exists():
        return RunFacts()
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunFacts)
    except msgspec.DecodeError as trouble:
        raise ValueError(f"{path} is no description of a run: {trouble}") from trouble
