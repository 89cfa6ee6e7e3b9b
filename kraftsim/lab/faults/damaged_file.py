"""Common code of faults that corrupt data on a disk: the next incarnation reads it, and healing
restores it.

A file that is damaged already is skipped: with two overlapping damages the original bytes could not
be restored.
"""

from collections.abc import Sequence

from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated import Host
from kraftsim.world.simulated.damage import Damage


def sound_files(host: Host, paths: Sequence[str]) -> list[str]:
    """Return those of some files of a host that are not damaged yet."""
    return [path for path in paths if not host.durable.names[path].damages]


def damage_until_healed(
    injection: Injection, host: Host, path: str, damages: Sequence[Damage]
) -> None:
    """Damage a file, kill the process that has it open, and restart it; healing restores the file
    and starts the node if it is down.
    """
    inode = host.durable.names[path]
    for damage in damages:
        inode.hurt(damage)
    injection.simulation.kill(host)

    def heal() -> None:
        found = host.durable.names.get(path)
        if found is not None:
            for damage in damages:
                found.heal(damage)
        injection.start_later(host, 0)

    injection.start_later(host, injection.integer("after_ms"))
    injection.lasting(heal, injection.integer("duration_ms"))
