"""A sector was written to another position of the same file: it overwrites the data there, and is
missing at its own position.

The next incarnation reads both. Only the checksums of batches protect Kafka's files against this.
"""

from kraftsim.lab.faults.fault import Between, DataLoss, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.storage_faults import damage_until_healed, sound_files
from kraftsim.world.simulated.damage import Damage
from kraftsim.world.simulated.inode import SECTOR_BYTES


def inject(injection: Injection) -> None:
    """Move a flushed sector, kill the process, and restart it; it is effective when one of the two
    positions is read.
    """
    host = injection.simulation.host(injection.target)
    durable = host.durable
    found = sound_files(host, durable.durable_files(injection.file_class()))
    paths = [path for path in found if durable.names[path].flushed_bytes >= 2 * SECTOR_BYTES]
    if not paths or not host.is_alive:
        return
    path = injection.random.choice(paths)
    inode = durable.names[path]
    there, belongs = (
        number * SECTOR_BYTES
        for number in injection.random.sample(range(inode.flushed_bytes // SECTOR_BYTES), 2)
    )
    moved = bytes(inode.cache[belongs : belongs + SECTOR_BYTES])
    effect = f"sector {belongs // SECTOR_BYTES} of {path} was written to {there // SECTOR_BYTES}"
    damages = [
        Damage(
            position=there,
            right=bytes(inode.cache[there : there + SECTOR_BYTES]),
            wrong=moved,
            effect=effect,
            record_effect=injection.record_effect,
        ),
        Damage(
            position=belongs,
            right=moved,
            wrong=bytes(SECTOR_BYTES),
            effect=effect,
            record_effect=injection.record_effect,
        ),
    ]
    damage_until_healed(injection, host, path, damages)


FAULT = FaultKind(
    name="misdirected-write",
    title="a misdirected write",
    family=Family.DISK,
    inject=inject,
    params={"file_class": "metadata-log", "after_ms": 100, "duration_ms": 0},
    draws={
        "file_class": OneOf((None, "metadata-log", "partition-log")),
        "after_ms": Between(20, 2000),
    },
    data_loss=DataLoss.FLUSHED,
)
