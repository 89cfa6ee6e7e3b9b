"""A sector was written to another place of the same file: there it covers what stood there, and where it belongs it is missing.

Both come to light with the next incarnation. No file of Kafka's protects itself against this but by the checksums of its batches.
"""

from kraftsim.faults.damaged_file import hurt_until_healed, sound_files
from kraftsim.faults.fault import Between, Family, FaultKind, OneOf, Spoils
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.damage import Damage
from kraftsim.world.simulated.inode import SECTOR_BYTES


def strike(strike: Strike) -> None:
    """Move a flushed sector, kill the process, and start it again; it bites when one of the two places is read."""
    host = strike.simulation.host(strike.target)
    platter = host.platter
    found = sound_files(host, platter.durable_files(strike.file_class()))
    paths = [path for path in found if platter.names[path].flushed_bytes >= 2 * SECTOR_BYTES]
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
    hurt_until_healed(strike, host, path, damages)


FAULT = FaultKind(
    name="misdirected-write",
    title="a sector written to a wrong place",
    family=Family.DISK,
    strike=strike,
    params={"file_class": "metadata-log", "after_ms": 100, "duration_ms": 0},
    draws={"file_class": OneOf((None, "metadata-log", "partition-log")), "after_ms": Between(20, 2000)},
    spoils=Spoils.FLUSHED,
)
