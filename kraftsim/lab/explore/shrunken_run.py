"""Saves the result of shrinking: the small run, executed in full, and its description."""

from pathlib import Path

from kraftsim.lab.explore.description import DESCRIPTION_FILE, scenario
from kraftsim.lab.explore.record import REPLAY_FILE
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request
from kraftsim.lab.explore.shrink import Shrunken


def keep(shrunken: Shrunken, request: RunRequest, out: Path) -> str:
    """Execute the small run in full into a directory, write its description there, and return
    that.
    """
    result = run_request(shrunken.candidate.request(request), out)
    shows_it = (
        shrunken.finding.invariant is None
        or shrunken.finding.invariant in result.invariants_violated
    )
    assert shows_it and result.outcome != "ok", (
        f"the small run must fail as the large one did, not: {result.outcome} {result.trouble}"
    )
    replay = f"kraftsim replay {out / REPLAY_FILE}"
    text = scenario(
        shrunken,
        scenario=request.scenario.name,
        seed=request.seed,
        bugs=request.bugs,
        replay=replay,
    )
    (out / DESCRIPTION_FILE).write_text(text)
    return text
