"""A host restarts with an empty disk: its process finds no data directory, formats one, and has a
new directory id.

A broker registers again and replicates its partitions from the start. A voter must have left the
quorum before, and rejoins as a new replica.
Source: KIP-853 (a replica is known by its id and its directory id), KIP-858.
"""

from kraftsim.lab.faults.fault import Between, DataLoss, Family, FaultKind
from kraftsim.lab.faults.injection import Injection


def inject(injection: Injection) -> None:
    """Kill the target's process, erase its disk, and restart it; it is effective if the disk had
    any files.
    """
    host = injection.simulation.host(injection.target)
    if not host.is_alive:
        return
    injection.simulation.kill(host)
    files = host.durable.lose_everything()
    if files:
        injection.record_effect(f"{files} files are gone")
    injection.start_later(host, injection.integer("after_ms"))


FAULT = FaultKind(
    name="lost-disk",
    title="a disk replaced by an empty one",
    family=Family.DISK,
    inject=inject,
    params={"after_ms": 1000},
    draws={"after_ms": Between(20, 6000)},
    data_loss=DataLoss.FLUSHED,
)
