"""`replay.json`: all inputs of a run, as data, and its result: the file repeats the run even if
later versions draw other schedules.

A seed replays a run only until the drawing of schedules changes; the file contains the schedule
itself, also a reduced one after shrinking.
"""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from kraftsim import former_names
from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.extensions import ExtensionError, extensions, is_path, load
from kraftsim.former_names import present_name
from kraftsim.lab.explore.record import REPLAY_FILE, RunResult
from kraftsim.lab.explore.request import RunEnvironment, RunRequest
from kraftsim.lab.faults.fault import Fault
from kraftsim.version import __version__
from kraftsim.world.simulated.launcher import pinning

FORMAT: Final = 1


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The environment of a run. kraftsim's nodes give the same bytes with the same Python version;
    third-party clients need all of it.
    """

    python: str
    platform: str
    hash_seed: str
    has_fixed_addresses: bool


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    `faults` are the whole schedule, `settings` those of all nodes, `workload` every parameter; the
    result follows. `extensions` are those that the process of the run had, with the digests of
    their files: paths, relative to the current directory where possible, and names of modules.
    """

    format: int
    kraftsim: str
    scenario: str
    mode: str
    seed: int
    release: str
    bugs: tuple[str, ...]
    settings: Mapping[str, str]
    controllers: int
    brokers: int
    workload: Mapping[str, int]
    faults: tuple[Fault, ...]
    surroundings: RunEnvironment
    environment: Environment
    outcome: str
    invariants_violated: tuple[str, ...]
    trouble: str | None
    event_count: int
    events_sha256: str | None
    extensions: Mapping[str, str] = {}
    on: str = ""
    """The release of Apache Kafka whose nodes ran, as --on names it."""

    def request(self) -> RunRequest:
        """Return the request that repeats the run, and load its extensions.

        Raises KeyError for a scenario that no longer exists, ExtensionError for an extension that
        cannot be loaded.
        """
        for extension in self.extensions:
            _load(extension)
        return RunRequest(
            scenario=scenario(self.scenario),
            mode=Mode(self.mode),
            seed=self.seed,
            release=self.release,
            bugs=self.bugs,
            settings=self.settings,
            faults=self.faults,
            workload=self.workload,
            controllers=self.controllers,
            brokers=self.brokers,
            surroundings=self.surroundings,
        )

    def changed_extensions(self) -> tuple[str, ...]:
        """Return which of its extensions, all loaded, are other files than in the run."""
        present = {each.place: each.sha256 for each in extensions()}
        return tuple(
            name for name, digest in self.extensions.items() if present.get(name, digest) != digest
        )

    def write(self, root: Path) -> None:
        """Write the file into a run's directory."""
        (root / REPLAY_FILE).write_bytes(
            msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"
        )


def _load(extension: str) -> None:
    """Load an extension that a run had. Raises ExtensionError."""
    if is_path(extension) and not Path(extension).is_file():
        raise ExtensionError(
            f"the run needs the extension {extension}, which does not exist here: repeat it in the "
            "directory that it was run in"
        )
    try:
        load(extension)
    except ExtensionError as trouble:
        raise ExtensionError(f"the run needs an extension: {trouble}") from trouble


def replay_of(request: RunRequest, spec: ClusterSpec, result: RunResult) -> Replay:
    """Return the replay of a finished run."""
    return Replay(
        format=FORMAT,
        kraftsim=__version__,
        scenario=request.scenario.identifier,
        mode=request.mode.value,
        seed=request.seed,
        release=spec.release,
        bugs=request.bugs,
        settings=dict(sorted(spec.settings.items())),
        controllers=spec.controllers,
        brokers=spec.brokers,
        workload=request.work(),
        faults=request.schedule(),
        surroundings=request.around(),
        environment=environment(),
        outcome=result.outcome,
        invariants_violated=result.invariants_violated,
        trouble=result.trouble,
        event_count=result.event_count,
        events_sha256=result.events_sha256,
        extensions={each.place: each.sha256 for each in extensions()},
        on="" if request.on is None else str(request.on),
    )


def environment() -> Environment:
    """Return the environment of this process."""
    return Environment(
        python=platform.python_version(),
        platform=platform.platform(terse=True),
        hash_seed=os.environ.get("PYTHONHASHSEED", "random"),
        has_fixed_addresses=pinning().addresses,
    )


def replay_file(path: Path) -> Path:
    """Return the file for a path: itself, or the one in a run's directory."""
    return path / REPLAY_FILE if path.is_dir() else path


def _with_present_names(replay: object) -> object:
    """Replace what a replay file calls by a name of an earlier release.

    What has another shape is left to the decoder to refuse.
    """
    match replay:
        case {
            "scenario": str(scenario),
            "invariants_violated": [*violated],
            "faults": [*faults],
            **rest,
        }:
            return {
                **rest,
                "scenario": present_name(former_names.SCENARIOS, scenario, "scenario"),
                "invariants_violated": [
                    present_name(former_names.INVARIANTS, str(name), "invariant")
                    for name in violated
                ],
                "faults": [_present_fault(fault) for fault in faults],
            }
    return replay


def _present_fault(fault: object) -> object:
    match fault:
        case {"kind": str(kind), "trigger": {"on": "event", "kind": str(event), **others}, **rest}:
            trigger = {
                "on": "event",
                "kind": present_name(former_names.EVENTS, event, "event"),
                **others,
            }
            return {
                "kind": present_name(former_names.FAULTS, kind, "fault"),
                "trigger": trigger,
                **rest,
            }
        case {"kind": str(kind), **rest}:
            return {"kind": present_name(former_names.FAULTS, kind, "fault"), **rest}
    return fault


def read_replay(path: Path) -> Replay:
    """Read a replay file, or the one in a run's directory.

    Raises ValueError for any other file, OSError if it does not exist.
    """
    file = replay_file(path)
    data = file.read_bytes()
    try:
        found = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        number = msgspec.json.decode(found.get("format", msgspec.Raw(b"0")), type=int)
        if number != FORMAT:
            raise ValueError(f"{file} is of format {number}; this version reads format {FORMAT}")
        return msgspec.convert(_with_present_names(msgspec.json.decode(data)), type=Replay)
    except msgspec.DecodeError as error:
        raise ValueError(f"{file} is not a replay file: {error}") from error
