"""One bit of a file that was flushed long ago is another one when the next incarnation reads it.

Nobody can promise anything to a voter that this happens to: what it finds behind its recovery point looks like a torn write.
"""

from kraftsim.faults.damaged_file import hurt_until_healed, sound_files
from kraftsim.faults.fault import Between, Family, FaultKind, OneOf, Spoils
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.damage import Damage


def strike(strike: Strike) -> None:
    """Flip a bit of the target's disk, kill its process, and start it again; it bites when the byte is read. Healed, the bit is right again."""
    host = strike.simulation.host(strike.target)
    paths = sound_files(host, host.platter.durable_files(strike.file_class()))
    if not paths or not host.is_alive:
        return
    path = strike.random.choice(paths)
    inode = host.platter.names[path]
    position = strike.random.randrange(inode.flushed_bytes)
    right = inode.cache[position]
    wrong = right ^ (1 << strike.random.randrange(8))
    effect = f"byte {position} of {path} was read as {wrong:#04x} in place of {right:#04x}"
    damage = Damage(position=position, right=bytes([right]), wrong=bytes([wrong]), effect=effect, bite=strike.bite)
    hurt_until_healed(strike, host, path, [damage])


FAULT = FaultKind(
    name="bit-rot",
    title="a bit that rots on the disk",
    family=Family.DISK,
    strike=strike,
    params={"file_class": "metadata-log", "after_ms": 100, "duration_ms": 0},
    draws={"file_class": OneOf((None, "metadata-log", "partition-log", "checkpoint")), "after_ms": Between(20, 2000)},
    spoils=Spoils.FLUSHED,
)
