"""One bit of a file that was flushed long ago is flipped when the next incarnation reads it.

A voter has no guarantees against this: a corrupt batch behind its recovery point looks like a torn
write. And the checksum of a batch does not cover its first 21 bytes, among them the leader epoch:
corruption there may go undetected (`is_checked` excludes it).
"""

from collections.abc import Iterator

from kraftsim.lab.faults.fault import Between, DataLoss, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.storage_faults import damage_until_healed, sound_files
from kraftsim.world.simulated.damage import Damage


def inject(injection: Injection) -> None:
    """Flip a bit of the target's disk, kill its process, and restart it; it is effective when the
    byte is read.

    Healing restores the bit.
    """
    host = injection.simulation.host(injection.target)
    paths = sound_files(host, host.durable.durable_files(injection.file_class()))
    if not paths or not host.is_alive:
        return
    path = injection.random.choice(paths)
    inode = host.durable.names[path]
    if injection.flag("is_checked"):
        stretches = list(_checked(bytes(inode.cache[: inode.flushed_bytes])))
        if not stretches or not path.endswith(".log"):
            return
        position = injection.random.choice(injection.random.choice(stretches))
    else:
        position = injection.random.randrange(inode.flushed_bytes)
    right = inode.cache[position]
    wrong = right ^ (1 << injection.random.randrange(8))
    effect = f"byte {position} of {path} was read as {wrong:#04x} instead of {right:#04x}"
    damage = Damage(
        position=position,
        right=bytes([right]),
        wrong=bytes([wrong]),
        effect=effect,
        record_effect=injection.record_effect,
    )
    damage_until_healed(injection, host, path, [damage])


def _checked(data: bytes) -> Iterator[range]:
    """Yield the byte ranges of a segment that the checksums of its batches cover: those behind each
    checksum.
    """
    begin = 0
    while begin + OVERHEAD_BYTES <= len(data):
        end = begin + OVERHEAD_BYTES + int.from_bytes(data[begin + 8 : begin + OVERHEAD_BYTES])
        yield range(begin + UNCHECKED_BYTES, end)
        begin = end


OVERHEAD_BYTES, UNCHECKED_BYTES = 12, 21
"""Base offset and length; these, leader epoch, magic and the checksum itself."""


FAULT = FaultKind(
    name="bit-rot",
    title="bit rot on the disk",
    family=Family.DISK,
    inject=inject,
    params={"file_class": "metadata-log", "is_checked": False, "after_ms": 100, "duration_ms": 0},
    draws={
        "file_class": OneOf((None, "metadata-log", "partition-log", "checkpoint")),
        "after_ms": Between(20, 2000),
    },
    data_loss=DataLoss.FLUSHED,
)
