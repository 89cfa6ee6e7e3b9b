"""`kraftsim.run_scenario`: one run of a scenario from Python, and its result as an object with
tables.

    run = kraftsim.run_scenario("producer_ids_survive_failover", seed=7)
    run.require_ok()
    run.events.pandas("SELECT node, count(*) FROM events GROUP BY node")
"""

import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kraftsim.lab.explore.record import RunResult
from kraftsim.lab.explore.run import run_scenario as run_once
from kraftsim.releases.release import Release

if TYPE_CHECKING:  # needs the extra `analysis`
    from kraftsim.analysis.access import OpenedRun


class RunFailed(AssertionError):
    """A run violated invariants, or ended early; the message says which, and how to repeat it."""


class ScenarioRun:
    """The result of one run. Without a directory of its own its files are deleted with it."""

    def __init__(self, result: RunResult, directory: Path, *, is_temporary: bool) -> None:
        self.result = result
        """Everything as it is in the JSON of `kraftsim scenario --json`."""
        self.directory = directory
        """Event logs (`events`), disks (`data`), `run.json`, and what the report adds."""
        self._events: OpenedRun | None = None
        if is_temporary:
            weakref.finalize(self, shutil.rmtree, str(directory), ignore_errors=True)

    def __repr__(self) -> str:
        result = self.result
        return f"<{result.scenario}, seed {result.seed}: {result.outcome}>"

    @property
    def is_ok(self) -> bool:
        """Whether nothing was violated and the run came to its end."""
        return not self.result.violations and self.result.trouble is None

    @property
    def outcome(self) -> str:
        """The worst outcome of an invariant: "ok", "vacuous", "unknown" or "violated"."""
        return self.result.outcome

    @property
    def verdicts(self) -> Mapping[str, str]:
        """The outcome of each invariant that applies, by name."""
        return self.result.verdicts

    @property
    def violations(self) -> tuple[str, ...]:
        """What was violated, a line each."""
        return self.result.violations

    @property
    def trouble(self) -> str | None:
        """What ended the run early: lost liveness, or an error of a node; None for a whole run."""
        return self.result.trouble

    @property
    def events_sha256(self) -> str | None:
        """The digest of all events: equal for equal runs in virtual time, None in other modes."""
        return self.result.events_sha256

    @property
    def replay_line(self) -> str:
        """The command that repeats the run."""
        return self.result.replay_line

    @property
    def events(self) -> "OpenedRun":
        """The events as tables: `kraftsim.open_run` of its directory. Needs the extra
        `analysis`.
        """
        if self._events is None:
            from kraftsim.analysis.access import open_run

            self._events = open_run(self.directory)
        return self._events

    def report(self, to: Path | str | None = None) -> Path:
        """Write the HTML report, by default to report.html in its directory; return its path. Needs
        the extra `analysis`.
        """
        return self.events.report(to)

    def require_ok(self) -> None:
        """Raise RunFailed unless the run is ok."""
        if not self.is_ok:
            raise RunFailed("\n".join(self.result.lines()))


def run_scenario(
    name: str,
    *,
    seed: int = 0,
    mode: str = "sim",
    directory: Path | str | None = None,
    release: str | Release = "",
    bugs: tuple[str, ...] = (),
    settings: Mapping[str, str] | None = None,
    work: Mapping[str, int] | None = None,
    controllers: int | None = None,
    brokers: int | None = None,
) -> ScenarioRun:
    """Run a scenario (`kraftsim list scenarios`) once, and return the result.

    `mode` is "sim" (virtual time, repeatable by its seed), "processes" or "embedded". `settings`
    are Kafka's properties of all nodes, `work` the scenario's parameters (`kraftsim scenario NAME
    --help`); a missing release and missing numbers of nodes are those of the scenario. `directory`
    gets the files of the run.

    Raises KeyError for an unknown scenario, release or bug, ValueError for a release that the
    scenario does not support, and FileExistsError if the directory has a run already.
    """
    is_temporary = directory is None
    place = Path(tempfile.mkdtemp(prefix="kraftsim-")) if directory is None else Path(directory)
    try:
        result = run_once(
            name,
            mode=mode,
            seed=seed,
            out=place,
            release=release.name if isinstance(release, Release) else release,
            bugs=bugs,
            settings=settings,
            work=work,
            controllers=controllers,
            brokers=brokers,
        )
    except BaseException:
        if is_temporary:
            shutil.rmtree(place, ignore_errors=True)
        raise
    return ScenarioRun(result, place, is_temporary=is_temporary)
