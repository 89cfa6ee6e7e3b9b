"""`cluster.json`: what a cluster of `kraftsim up` says of itself as long as it runs, so that other verbs find it by its data directory."""

import msgspec

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.private import write_private


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """What `up` leaves for other verbs and for people: who supervises, the process id of every node that is up, and where it takes faults."""

    supervisor: int
    bootstrap: str
    nodes: dict[str, int]
    door: int = 0
    """Port of the socket that takes faults; 0 until the cluster is ready."""
    secret: str = ""
    """What a client of that socket must know; the file is readable by its owner only."""


def read_state(directory: RunDirectory) -> ClusterState | None:
    """Return what a running `up` wrote, or None."""
    try:
        return msgspec.json.decode(directory.state_file.read_bytes(), type=ClusterState)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def write_state(directory: RunDirectory, state: ClusterState) -> None:
    """Replace it; nobody ever reads half of one."""
    fresh = directory.state_file.with_suffix(".new")
    write_private(fresh, msgspec.json.encode(state))
    fresh.rename(directory.state_file)
