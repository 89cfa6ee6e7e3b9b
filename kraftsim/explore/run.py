"""Plays a scenario once, in any mode, and judges it."""

from collections.abc import Mapping
from pathlib import Path

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.explore.request import RunRequest
from kraftsim.explore.result import RunResult


def play(
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
    """Play a scenario and return what came of it. With `out` the run's directory is left there, as `kraftsim.cluster.directories` describes.

    `work` turns knobs of the scenario; without a `release` it is that of the story, and so are counts of nodes that are not given.

    Raises KeyError for a scenario, release or bug that does not exist, ValueError for a release that the story is not told of or fewer nodes than it
    needs, SpecError for what cannot be a cluster, FileExistsError if `out` holds a run already.
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
    return play_request(request, out)


def play_request(request: RunRequest, out: Path | None = None) -> RunResult:
    """Play what a request describes, down to its last fault, and return what came of it."""
    directory = None if out is None else RunDirectory(out)
    if directory is not None and directory.run_file.exists():
        raise FileExistsError(f"{out} holds a run already: choose another --out, or remove it")
    if request.mode is Mode.SIM:
        from kraftsim.explore.virtual import play_in_virtual_time

        return play_in_virtual_time(request, directory)
    from kraftsim.explore.over_sockets import play_over_sockets

    if directory is None:
        raise ValueError("a run over sockets needs a directory: use --out")
    return play_over_sockets(request, directory)
