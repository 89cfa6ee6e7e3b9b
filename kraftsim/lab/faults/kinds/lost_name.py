"""A host loses power before its directories were flushed: the last creations, renames and deletions
of files are undone.

The content of files survives, so that only names are affected; with `zeros` a file that kept its
new name has lost its content.
"""

from kraftsim.lab.faults.fault import Between, DataLoss, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated.durable_disk import Names, Wreck
from kraftsim.world.simulated.inode import Fate


def inject(injection: Injection) -> None:
    """Power off the host now and restart it later; it is effective if a name was undone, or a file
    lost its content.
    """
    host = injection.simulation.host(injection.target)
    if not host.is_alive:
        return
    kept = injection.text("kept") or "none"
    wreck = (
        Wreck(names=Names.KEPT, fate=Fate.ZEROS)
        if kept == "zeros"
        else Wreck(names=Names.SOME if kept == "some" else Names.LOST, fate=Fate.KEPT)
    )
    losses = injection.simulation.power_off(host, wreck)
    if losses.lost_names or losses.torn_files:
        injection.record_effect(
            f"{losses.lost_names} names were undone, {losses.torn_files} files have a name but "
            "no content"
        )
    injection.start_later(host, injection.integer("after_ms"))


FAULT = FaultKind(
    name="lost-name",
    title="a rename undone by a power loss",
    family=Family.DISK,
    inject=inject,
    triggers_on=("disk",),
    params={"kept": "none", "after_ms": 1000},
    draws={"kept": OneOf(("none", "some", "zeros")), "after_ms": Between(20, 4000)},
    data_loss=DataLoss.UNFLUSHED,
)
