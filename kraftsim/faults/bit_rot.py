"""One bit of a file that was flushed long ago is another one when the next incarnation reads it.

Nobody can promise anything to a voter that this happens to: what it finds behind its recovery point looks like a torn write. And the checksum of a
batch does not cover its first 21 bytes, among them the leader epoch: what rots there may pass for sound (`is_checked` leaves that out).
"""

from collections.abc import Iterator

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
    if strike.flag("is_checked"):
        stretches = list(_checked(bytes(inode.cache[: inode.flushed_bytes])))
        if not stretches or not path.endswith(".log"):
            return
        position = strike.random.choice(strike.random.choice(stretches))
    else:
        position = strike.random.randrange(inode.flushed_bytes)
    right = inode.cache[position]
    wrong = right ^ (1 << strike.random.randrange(8))
    effect = f"byte {position} of {path} was read as {wrong:#04x} in place of {right:#04x}"
    damage = Damage(position=position, right=bytes([right]), wrong=bytes([wrong]), effect=effect, bite=strike.bite)
    hurt_until_healed(strike, host, path, [damage])


def _checked(data: bytes) -> Iterator[range]:
    """Yield which bytes of a segment the checksums of its batches cover: what comes behind them."""
    begin = 0
    while begin + OVERHEAD_BYTES <= len(data):
        end = begin + OVERHEAD_BYTES + int.from_bytes(data[begin + 8 : begin + OVERHEAD_BYTES])
        yield range(begin + UNCHECKED_BYTES, end)
        begin = end


OVERHEAD_BYTES, UNCHECKED_BYTES = 12, 21
"""Base offset and length; these, leader epoch, magic and the checksum itself."""


FAULT = FaultKind(
    name="bit-rot",
    title="a bit that rots on the disk",
    family=Family.DISK,
    strike=strike,
    params={"file_class": "metadata-log", "is_checked": False, "after_ms": 100, "duration_ms": 0},
    draws={"file_class": OneOf((None, "metadata-log", "partition-log", "checkpoint")), "after_ms": Between(20, 2000)},
    spoils=Spoils.FLUSHED,
)
