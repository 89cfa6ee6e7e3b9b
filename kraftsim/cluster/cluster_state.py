"""`cluster.json`: written by `kraftsim up` for as long as the cluster runs, so that other commands
find it by its data directory.
"""

import msgspec

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.private import write_private


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """What `up` writes for other commands and for people: the supervisor, the process id of each
    running node, and the fault-control port.
    """

    supervisor: int
    bootstrap: str
    nodes: dict[str, int]
    door: int = 0
    """Port of the fault-control socket; 0 until the cluster is ready."""
    secret: str = ""
    """The secret that a client of that socket must send; only the owner can read this file."""


def read_state(directory: RunDirectory) -> ClusterState | None:
    """Return what a running `up` wrote, or None."""
    try:
        return msgspec.json.decode(directory.state_file.read_bytes(), type=ClusterState)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def write_state(directory: RunDirectory, state: ClusterState) -> None:
    """Replace the file atomically; readers never see half of one."""
    fresh = directory.state_file.with_suffix(".new")
    write_private(fresh, msgspec.json.encode(state))
    fresh.rename(directory.state_file)
