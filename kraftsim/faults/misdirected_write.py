"""A sector was written to another place of the same file: there it covers what stood there, and where it belongs it is missing.

Both come to light with the next incarnation. No file of Kafka's protects itself against this but by the checksums of its batches.
"""

from kraftsim.faults.fault import Between, Family, FaultKind, OneOf, Spoils
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.damage import Damage
from kraftsim.world.simulated.inode import SECTOR_BYTES


def strike(strike: Strike) -> None:
    """Move a flushed sector, kill the process, and start it again; it bites when one of the two places is read."""
    host = strike.simulation.host(strike.target)
    platter = host.platter
    paths = [path for path in platter.durable_files(strike.file_class()) if platter.names[path].flushed_bytes >= 2 * SECTOR_BYTES]
    if not paths or not host.is_alive:
        return
    path = strike.random.choice(paths)
    inode = platter.names[path]
    there, belongs = (number * SECTOR_BYTES for number in strike.random.sample(range(inode.flushed_bytes // SECTOR_BYTES), 2))
    moved = bytes(inode.cache[belongs : belongs + SECTOR_BYTES])
    effect = f"sector {belongs // SECTOR_BYTES} of {path} stands at {there // SECTOR_BYTES}"
    damages = [
        Damage(position=there, right=bytes(inode.cache[there : there + SECTOR_BYTES]), wrong=moved, effect=effect, bite=strike.bite),
        Damage(position=belongs, right=moved, wrong=bytes(SECTOR_BYTES), effect=effect, bite=strike.bite),
    ]
    for damage in damages:
        inode.hurt(damage)
    strike.simulation.kill(host)

    def heal() -> None:
        found = host.platter.names.get(path)
        if found is not None:
            for damage in damages:
                found.mend(damage)
        strike.start_later(host, 0)

    strike.start_later(host, strike.integer("after_ms"))
    strike.lasting(heal, strike.integer("duration_ms"))


FAULT = FaultKind(
    name="misdirected-write",
    title="a sector written to a wrong place",
    family=Family.DISK,
    strike=strike,
    params={"file_class": "metadata-log", "after_ms": 100, "duration_ms": 0},
    draws={"file_class": OneOf((None, "metadata-log", "partition-log")), "after_ms": Between(20, 2000)},
    spoils=Spoils.FLUSHED,
)
