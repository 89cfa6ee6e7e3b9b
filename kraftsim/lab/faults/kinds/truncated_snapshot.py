"""The newest snapshot of the metadata log is truncated when the next incarnation reads it.

A node that still has the records in its log does not need the snapshot; another one must report the
error and not start. Healing restores the file and starts the node.
"""

from kraftsim.lab.faults.fault import Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.storage_faults import damage_until_healed, sound_files
from kraftsim.world.simulated import FileClass
from kraftsim.world.simulated.damage import Damage

SUFFIX = ".checkpoint"
BOOTSTRAP = "bootstrap.checkpoint"
"""Read by the first start only; its name sorts after those of all snapshots."""
PERMILLE = 1000


def inject(injection: Injection) -> None:
    """Truncate the file, kill the process, and restart it; it is effective when the file is read to
    its end.
    """
    host = injection.simulation.host(injection.target)
    written = [
        path for path in host.durable.durable_files(FileClass.CHECKPOINT) if path.endswith(SUFFIX)
    ]
    paths = sound_files(host, [path for path in written if not path.endswith(BOOTSTRAP)])
    if not paths or not host.is_alive:
        return
    path = paths[-1]
    inode = host.durable.names[path]
    kept_bytes = len(inode.cache) * injection.integer("kept_permille") // PERMILLE
    effect = f"{path} ends after {kept_bytes} of {len(inode.cache)} bytes"
    damage = Damage(
        position=kept_bytes,
        right=bytes(inode.cache[kept_bytes:]),
        wrong=b"",
        effect=effect,
        record_effect=injection.record_effect,
    )
    damage_until_healed(injection, host, path, [damage])


FAULT = FaultKind(
    name="truncated-snapshot",
    title="a truncated snapshot",
    family=Family.DISK,
    needs_quorum=True,
    inject=inject,
    params={"kept_permille": 500, "after_ms": 100, "duration_ms": 5000},
    settings={"metadata.log.max.record.bytes.between.snapshots": "500"},
    draws={
        "kept_permille": OneOf((0, 100, 500, 900, 999)),
        "after_ms": Between(20, 2000),
        "duration_ms": Between(2000, 8000),
    },
)
