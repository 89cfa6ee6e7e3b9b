"""A disk says that it has flushed, and has not: a drive with a cache of its own, and nobody who makes it write through.

It does no harm as long as the power stays. Healed, the drive has written what it said it had; a host that does not start on what is left gets an
empty disk, as from an operator who has nothing better.
"""

from kraftsim.faults.fault import Between, Family, FaultKind, OneOf, Spoils
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.disk_faults import LyingFlush


def strike(strike: Strike) -> None:
    """Let flushes return at once and do nothing; with `power_loss` the power goes as well. It bites when something is gone that was flushed."""
    simulation = strike.simulation
    host = simulation.host(strike.target)
    lies = host.platter.faults.lies
    ailment = LyingFlush(kind=strike.file_class(), bite=strike.bite)
    lies.append(ailment)

    def lose_power() -> None:
        if host.is_alive and not strike.is_over:
            simulation.kill(host, power_loss=True)
            strike.start_later(host, strike.integer("after_ms"))

    def heal() -> None:
        lies.remove(ailment)
        for path in sorted(host.platter.names):
            host.platter.names[path].keep_promise()
        if not host.is_alive:
            host.platter.lose_everything()
            strike.start_later(host, 0)

    strike.lasting(heal, strike.integer("duration_ms"))
    strike.after(strike.integer("power_loss_ms"), lose_power)


FAULT = FaultKind(
    name="lying-flush",
    title="a disk that says it has flushed",
    family=Family.DISK,
    strike=strike,
    params={"file_class": None, "power_loss_ms": 1000, "after_ms": 200, "duration_ms": 5000},
    draws={"file_class": OneOf((None, "metadata-log")), "power_loss_ms": Between(200, 3000), "after_ms": Between(20, 2000)},
    spoils=Spoils.FLUSHED,
)
