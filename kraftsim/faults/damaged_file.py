"""What the faults have in common that let a disk give something back wrong: the next incarnation reads it, and healing puts it right again.

A file that is damaged already is left alone: where one damage lies over another, what was right can no longer be told from either.
"""

from collections.abc import Sequence

from kraftsim.faults.strike import Strike
from kraftsim.world.simulated import Host
from kraftsim.world.simulated.damage import Damage


def sound_files(host: Host, paths: Sequence[str]) -> list[str]:
    """Return those of some files of a host that nothing has damaged yet."""
    return [path for path in paths if not host.platter.names[path].damages]


def hurt_until_healed(strike: Strike, host: Host, path: str, damages: Sequence[Damage]) -> None:
    """Damage a file, kill the process that has it open, and start it again; healed, the file is right and the node is started once more."""
    inode = host.platter.names[path]
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
