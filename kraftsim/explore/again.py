"""Plays a replay file, and says whether it came out as it did the first time."""

from pathlib import Path

import msgspec

from kraftsim.cluster.directories import RunDirectory
from kraftsim.explore.divergence import RunDifference, compare
from kraftsim.explore.replay import Environment, Replay, environment
from kraftsim.explore.result import RunResult
from kraftsim.explore.run import play_request


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a replay that was to be the same. `difference` is known where the first run's event logs stand beside the file."""

    events_sha256: str | None
    recorded_sha256: str | None
    outcome: str
    recorded_outcome: str
    difference: RunDifference | None
    recorded_environment: Environment
    environment: Environment

    @property
    def is_same(self) -> bool:
        """Tell whether every byte of the event logs is the same."""
        return self.events_sha256 is not None and self.events_sha256 == self.recorded_sha256

    def lines(self) -> list[str]:
        """Return it as text for people."""
        if self.is_same:
            return [f"the same, byte for byte: {self.outcome}, event log {self.events_sha256}"]
        text = [f"not the same: {self.outcome} (recorded: {self.recorded_outcome})"]
        if self.environment != self.recorded_environment:
            text.append(f"  recorded with {_told(self.recorded_environment)}; played with {_told(self.environment)}")
        if self.difference is None:
            return [*text, "  the first run's event logs are not beside the file, so nobody can say where the runs part"]
        return [*text, *(f"  {line}" for line in self.difference.lines())]


def play_again(replay: Replay, out: Path | None) -> RunResult:
    """Play the run of a replay file."""
    return play_request(replay.request(), out)


def check_again(replay: Replay, *, recorded: Path, out: Path) -> Checked:
    """Play the run of a replay file into a directory, and compare it with what was recorded."""
    result = play_again(replay, out)
    is_same = result.events_sha256 == replay.events_sha256
    can_compare = not is_same and RunDirectory(recorded).events.is_dir()
    return Checked(
        events_sha256=result.events_sha256,
        recorded_sha256=replay.events_sha256,
        outcome=result.outcome,
        recorded_outcome=replay.outcome,
        difference=compare(recorded, out) if can_compare else None,
        recorded_environment=replay.environment,
        environment=environment(),
    )


def _told(environment: Environment) -> str:
    return f"Python {environment.python} on {environment.platform}, hash seed {environment.hash_seed}"
