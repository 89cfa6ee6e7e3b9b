"""Common code of faults in stored data: in the files of a disk, and in the objects of a remote
store.
"""

from collections.abc import Sequence

from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated import Host
from kraftsim.world.simulated.inode import Damage
from kraftsim.world.simulated.objects import SharedObjects, StoreFault

# --------------------------------------------------------------------------------------------------
# Files: the next incarnation reads what is corrupt, and healing restores it
#
# A file that is damaged already is skipped: with two overlapping damages the original bytes could
# not be restored.


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


# --------------------------------------------------------------------------------------------------
# Objects: the remote stores of a simulation, and how to impair one of them for a while


def stores_of(injection: Injection) -> list[SharedObjects]:
    """Return every store that nodes use, in the order of their locations."""
    return [store for _, store in sorted(injection.simulation.stores.items())]


def impair(injection: Injection, store: SharedObjects, ailment: StoreFault) -> None:
    """Impair a store for `duration_ms`."""
    injection.lasting(store.impair(ailment), injection.integer("duration_ms"))


def random_key(injection: Injection, ending: str) -> tuple[SharedObjects, str] | None:
    """Choose an object with a given key suffix at random; None if there is none yet."""
    found = [
        (store, key)
        for store in stores_of(injection)
        for key in sorted(store.contents)
        if key.endswith(ending)
    ]
    return injection.random.choice(found) if found else None
