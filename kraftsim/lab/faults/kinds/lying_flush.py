"""A disk acknowledges flushes without making data durable: a drive with a volatile write cache.

Without a power loss it has no effect. Healing makes the acknowledged data durable; a host that does
not start from the remaining data gets an empty disk, as an operator would provide.
"""

from kraftsim.lab.faults.fault import Between, DataLoss, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated.disk_faults import LyingFlush


def inject(injection: Injection) -> None:
    """Let flushes return at once and do nothing; with `power_loss` the host loses power as well.

    It is effective when flushed data is lost.
    """
    simulation = injection.simulation
    host = simulation.host(injection.target)
    lies = host.durable.faults.lies
    ailment = LyingFlush(kind=injection.file_class(), record_effect=injection.record_effect)
    lies.append(ailment)

    def lose_power() -> None:
        if host.is_alive and not injection.is_over:
            simulation.kill(host, power_loss=True)
            injection.start_later(host, injection.integer("after_ms"))

    def heal() -> None:
        lies.remove(ailment)
        for path in sorted(host.durable.names):
            host.durable.names[path].keep_promise()
        if not host.is_alive:
            host.durable.lose_everything()
            injection.start_later(host, 0)

    injection.lasting(heal, injection.integer("duration_ms"))
    injection.after(injection.integer("power_loss_ms"), lose_power)


FAULT = FaultKind(
    name="lying-flush",
    title="a disk that acknowledges flushes without doing them",
    family=Family.DISK,
    inject=inject,
    params={"file_class": None, "power_loss_ms": 1000, "after_ms": 200, "duration_ms": 5000},
    draws={
        "file_class": OneOf((None, "metadata-log")),
        "power_loss_ms": Between(200, 3000),
        "after_ms": Between(20, 2000),
    },
    data_loss=DataLoss.FLUSHED,
)
