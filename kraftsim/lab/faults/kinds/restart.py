"""A process is killed, or its host loses power, and it restarts after a while with the remaining
data of its disk.
"""

from kraftsim.lab.faults.fault import EVERYWHERE, Between, DataLoss, Family, FaultKind, OneOf
from kraftsim.lab.faults.field import SocketInjection
from kraftsim.lab.faults.injection import Injection


def inject(injection: Injection) -> None:
    """Take the target down now and start it again later, unless another fault did."""
    simulation = injection.simulation
    host = simulation.host(injection.target)
    if not host.is_alive:
        return
    connections = len(host.process.transports)
    incarnation = host.process.incarnation
    lost_bytes = simulation.kill(host, power_loss=bool(injection.integer("power_loss")))

    def start() -> None:
        if not host.is_alive and host.process.incarnation == incarnation:
            simulation.restart(host)

    injection.record_effect(f"{lost_bytes} bytes and {connections} connections were lost")
    injection.lasting(start, injection.integer("after_ms"))


async def over_sockets(injection: SocketInjection) -> None:
    """Send SIGKILL and start the node again; the page cache survives, so a power loss is only a
    kill here.
    """
    if not await injection.field.kill(injection.target):
        return
    injection.record_effect("a node went down")
    await injection.lasts(injection.integer("after_ms"))
    await injection.field.restart(injection.target)


FAULT = FaultKind(
    name="restart",
    title="a crash and a restart of a process",
    family=Family.PROCESS,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"after_ms": 1000, "power_loss": False},
    draws={"after_ms": Between(20, 4000), "power_loss": OneOf((False, True))},
    data_loss=DataLoss.UNFLUSHED,
    data_loss_if="power_loss",
)
