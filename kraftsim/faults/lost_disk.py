"""A host comes back with an empty disk: its process finds no data directory, formats one, and has a new directory id.

A broker registers again and is given its partitions anew. A voter may do this only after it has left the quorum, and joins again as a stranger.
Source: KIP-853 (a replica is known by its id and its directory id), KIP-858.
"""

from kraftsim.faults.fault import Between, Family, FaultKind, Spoils
from kraftsim.faults.strike import Strike


def strike(strike: Strike) -> None:
    """Kill the target's process, take its disk, and start it again; it bites if there was anything on it."""
    host = strike.simulation.host(strike.target)
    if not host.is_alive:
        return
    strike.simulation.kill(host)
    files = host.platter.lose_everything()
    if files:
        strike.bite(f"{files} files are gone")
    strike.start_later(host, strike.integer("after_ms"))


FAULT = FaultKind(
    name="lost-disk",
    title="a disk that is replaced by an empty one",
    family=Family.DISK,
    strike=strike,
    params={"after_ms": 1000},
    draws={"after_ms": Between(20, 6000)},
    spoils=Spoils.FLUSHED,
)
