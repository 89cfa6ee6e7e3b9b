"""Runs a scenario once, in any mode, and checks it; or a replay file, and reports whether the run
equals the recorded one.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kraftsim.cluster.apache_kafka.target import ApacheTarget, apache_target
from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.lab.explore import isolated
from kraftsim.lab.explore.divergence import RunDifference, compare
from kraftsim.lab.explore.record import RunResult
from kraftsim.lab.explore.replay import Environment, Replay, environment
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.faults.fault import Fault

if TYPE_CHECKING:
    from kraftsim.lab.explore.fork import Fork
    from kraftsim.world.simulated.world import Observer

# --------------------------------------------------------------------------------------------------
# Runs a scenario once, in any mode, and checks it


def run_scenario(
    name: str,
    *,
    mode: str = "sim",
    seed: int = 0,
    out: Path | None = None,
    release: str = "",
    bugs: tuple[str, ...] = (),
    settings: Mapping[str, str] | None = None,
    work: Mapping[str, int] | None = None,
    controllers: int | None = None,
    brokers: int | None = None,
    faults: Sequence[Fault] | None = None,
    injected: tuple[str, ...] = (),
    clients: tuple[str, ...] = (),
    restarts_clients: bool = False,
    on: ApacheTarget | None = None,
) -> RunResult:
    """Run a scenario, by its name or the path of the file that exports it, and return the result.

    With `out` the run's directory is kept there, as `kraftsim.cluster.directories` describes.

    `work` sets workload parameters; a missing `release` and missing numbers of nodes are those of
    the scenario. `faults` is the schedule; None: as the seed draws it. `injected` are
    faults of requests on top of it, each as a text (`kraftsim.lab.faults.request_fault_text`).

    `clients` are commands that run beside it, over sockets only (see client_programs.py);
    `restarts_clients` starts one that ended again. `on` is a release of Apache Kafka whose nodes
    run instead of kraftsim's, as processes.

    Raises KeyError for an unknown scenario, release or bug, ValueError for a release that the
    scenario does not support, fewer nodes than it needs or a file without a scenario, SpecError
    for an invalid cluster, FileExistsError if `out` contains a run already.
    """
    request = RunRequest(
        scenario=scenario(name),
        mode=Mode(mode),
        seed=seed,
        release=release,
        bugs=bugs,
        settings=dict(settings or {}),
        workload=dict(work or {}),
        controllers=controllers,
        brokers=brokers,
        faults=None if faults is None else tuple(faults),
        injected=injected,
    )
    if on is not None:
        request = request.on_apache_kafka(on)
    return run_request(request, out, clients=clients, restarts_clients=restarts_clients)


def run_request(
    request: RunRequest,
    out: Path | None = None,
    *,
    clients: tuple[str, ...] = (),
    restarts_clients: bool = False,
    observer: "Observer | None" = None,
    fork: "Fork | None" = None,
) -> RunResult:
    """Run a request, and return the result; `clients` as for `run_scenario`.

    `observer` gets every event of a run in simulation, and `fork` lets it branch: in this process
    only.
    """
    directory = None if out is None else RunDirectory(out)
    if directory is not None and directory.run_file.exists():
        raise FileExistsError(f"{out} contains a run already: choose another --out, or remove it")
    if clients and request.mode is Mode.SIM:
        raise ValueError("own programs need real time: use --client with --mode processes")
    if isolated.needs_isolation(request):
        return _isolated_run(request, out)
    if request.mode is Mode.SIM:
        from kraftsim.lab.explore.virtual import run_in_virtual_time

        return run_in_virtual_time(request, directory, observer, fork)
    from kraftsim.lab.explore.over_sockets import run_over_sockets

    if directory is None:
        raise ValueError("a run over sockets needs a directory: use --out")
    return run_over_sockets(request, directory, clients=clients, restarts_clients=restarts_clients)


def _isolated_run(request: RunRequest, out: Path | None) -> RunResult:
    """Run code from outside: see `kraftsim.lab.explore.isolated`."""
    place = None if out is None else str(out.absolute())
    task = f"{__name__}:{run_as_data.__name__}"
    answer = isolated.call(task, request, msgspec.json.encode(place), directory=place)
    result = msgspec.json.decode(answer, type=RunResult)
    return result if out is None else msgspec.structs.replace(result, out=str(out))


def run_as_data(request: RunRequest, place: bytes) -> bytes:
    """Run a request into a directory (JSON: its path, or null), and return the result as JSON."""
    out = msgspec.json.decode(place, type=str | None)
    return msgspec.json.encode(run_request(request, None if out is None else Path(out)))


# --------------------------------------------------------------------------------------------------
# Runs a replay file, and reports whether the run equals the recorded one


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a replay compared with the recorded run.

    `difference` is known if the first run's event logs are beside the file.
    """

    events_sha256: str | None
    recorded_sha256: str | None
    outcome: str
    recorded_outcome: str
    difference: RunDifference | None
    recorded_environment: Environment
    environment: Environment
    changed_extensions: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        """Return whether every byte of the event logs is the same."""
        return self.events_sha256 is not None and self.events_sha256 == self.recorded_sha256

    def lines(self) -> list[str]:
        """Return it as text for people."""
        if self.is_same:
            return [f"the same, byte for byte: {self.outcome}, event log {self.events_sha256}"]
        text = [f"not the same: {self.outcome} (recorded: {self.recorded_outcome})"]
        if self.environment != self.recorded_environment:
            text.append(
                f"  recorded with {_environment_text(self.recorded_environment)}; replayed with "
                f"{_environment_text(self.environment)}"
            )
        text += [f"  {name} has changed since the run" for name in self.changed_extensions]
        if self.difference is None:
            return [
                *text,
                (
                    "  the first run's event logs are not beside the file, so the first difference "
                    "is unknown"
                ),
            ]
        return [*text, *(f"  {line}" for line in self.difference.lines())]


def rerun(replay: Replay, out: Path | None, on: ApacheTarget | None = None) -> RunResult:
    """Run a replay file, on nodes of Apache Kafka if a release is given or was recorded.

    Raises as `run_request`, and ApacheKafkaMissing.
    """
    request = replay.request()
    target = on or (apache_target(replay.on) if replay.on else None)
    return run_request(request if target is None else request.on_apache_kafka(target), out)


def check_replay(replay: Replay, *, recorded: Path, out: Path) -> Checked:
    """Run a replay file into a directory, and compare the run with the recorded one."""
    result = rerun(replay, out)
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
        changed_extensions=replay.changed_extensions(),
    )


def _environment_text(environment: Environment) -> str:
    return (
        f"Python {environment.python} on {environment.platform}, hash seed {environment.hash_seed}"
    )
