"""`run.json`: the description of a run, so that its directory alone is enough to identify and
repeat it.
"""

import platform
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from kraftsim import __version__
from kraftsim.cluster.directories import RunDirectory
from kraftsim.lab.explore.request import RunRequest
from kraftsim.world.interface import Clock

RUN_FILE = "run.json"
REPLAY_FILE = "replay.json"


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The description of one run.

    `faults` are the whole schedule, `command` is the command line that replays the run.
    """

    run: str
    scenario: str
    mode: str
    seed: int
    releases: Mapping[str, str]
    faults: tuple[str, ...]
    faults_left_out: tuple[str, ...]
    bugs: tuple[str, ...]
    settings: Mapping[str, str]
    must_exercise: tuple[str, ...]
    versions: Mapping[str, str]
    outcome: str
    started: str
    command: str

    def write(self, root: Path) -> None:
        """Write the record into the run's directory."""
        (root / RUN_FILE).write_bytes(
            msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"
        )


def versions() -> dict[str, str]:
    """Return the versions that a run depends on."""
    return {
        "kraftsim": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
    }


def replay_command(request: RunRequest, directory: RunDirectory | None = None) -> str:
    """Return the command line that replays the run: by its seed, or from its file if the seed alone
    does not determine it.
    """
    if not request.is_as_drawn:
        return shlex.join(
            [
                "kraftsim",
                "replay",
                str(REPLAY_FILE if directory is None else directory.root / REPLAY_FILE),
            ]
        )
    words = [
        "kraftsim",
        "scenario",
        request.scenario.name,
        "--mode",
        request.mode.value,
        "--seed",
        str(request.seed),
    ]
    for bug in request.bugs:
        words += ["--bug", bug]
    if request.release:
        words += ["--release", request.release]
    for option, count in (("--controllers", request.controllers), ("--brokers", request.brokers)):
        words += [] if count is None else [option, str(count)]
    for key, value in sorted(request.settings.items()):
        words += ["--set", f"{key}={value}"]
    for parameter, count in sorted(request.workload.items()):
        words += ["--work", f"{parameter}={count}"]
    return shlex.join([*words, "--out", f"runs/{request.scenario.name}-{request.seed}"])


def wall_text(clock: Clock) -> str:
    """Return a clock's date and time in UTC, for people."""
    return datetime.fromtimestamp(clock.wall_ms() / 1000, UTC).isoformat(timespec="seconds")
