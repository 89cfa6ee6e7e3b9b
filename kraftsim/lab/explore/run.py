"""Runs a scenario once, in any mode, and checks it."""

from collections.abc import Mapping
from pathlib import Path

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.result import RunResult


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
) -> RunResult:
    """Run a scenario and return the result.

    With `out` the run's directory is kept there, as `kraftsim.cluster.directories` describes.

    `work` sets workload parameters; a missing `release` and missing numbers of nodes are those of
    the scenario.

    Raises KeyError for an unknown scenario, release or bug, ValueError for a release that the
    scenario does not support or fewer nodes than it needs, SpecError for an invalid cluster,
    FileExistsError if `out` contains a run already.
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
    )
    return run_request(request, out)


def run_request(request: RunRequest, out: Path | None = None) -> RunResult:
    """Run a request, and return the result."""
    directory = None if out is None else RunDirectory(out)
    if directory is not None and directory.run_file.exists():
        raise FileExistsError(f"{out} contains a run already: choose another --out, or remove it")
    if request.mode is Mode.SIM:
        from kraftsim.lab.explore.virtual import run_in_virtual_time

        return run_in_virtual_time(request, directory)
    from kraftsim.lab.explore.over_sockets import run_over_sockets

    if directory is None:
        raise ValueError("a run over sockets needs a directory: use --out")
    return run_over_sockets(request, directory)
