"""A host loses power in the middle of a write: some sectors of it are durable and some are not, in
any order.

All file names are kept, so that torn files are read; see `lost-name` for the opposite.
"""

from kraftsim.lab.faults.fault import Between, DataLoss, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated.durable_disk import Names, Wreck
from kraftsim.world.simulated.inode import Fate


def inject(injection: Injection) -> None:
    """Power off the host now and restart it later; it is effective if a part of an unflushed write
    is durable.
    """
    host = injection.simulation.host(injection.target)
    if not host.is_alive:
        return
    fate = Fate[(injection.text("shape") or "holes").upper()]
    losses = injection.simulation.power_off(host, Wreck(names=Names.KEPT, fate=fate))
    if losses.torn_files:
        injection.record_effect(
            f"{losses.torn_files} files were torn, {losses.lost_bytes} bytes differ from what "
            "was written"
        )
    injection.start_later(host, injection.integer("after_ms"))


FAULT = FaultKind(
    name="torn-write",
    title="a write torn by a power loss",
    family=Family.DISK,
    inject=inject,
    triggers_on=("disk",),
    params={"shape": "holes", "after_ms": 1000},
    draws={"shape": OneOf(("prefix", "holes", "zeros")), "after_ms": Between(20, 4000)},
    data_loss=DataLoss.UNFLUSHED,
)
