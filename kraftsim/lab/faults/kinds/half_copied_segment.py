"""The copy of a segment to remote storage fails at one of its objects: the records may be there,
but not their indexes or snapshots.
"""

from kraftsim.lab.faults.fault import Aim, Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.storage_faults import impair, stores_of
from kraftsim.world.simulated.objects import StoreFault


def inject(injection: Injection) -> None:
    """Let writes of one kind of object fail; it is effective with the first."""
    ending = injection.text("ending")
    for store in stores_of(injection):
        impair(
            injection,
            store,
            StoreFault(
                record_effect=lambda: injection.record_effect(
                    f"no object {ending} could be written"
                ),
                fails_at=ending,
            ),
        )


FAULT = FaultKind(
    name="half-copied-segment",
    title="incomplete copies of segments in a remote store",
    family=Family.STORE,
    inject=inject,
    aim=Aim.ALL,
    triggers_on=("time", "event"),
    params={"ending": ".snapshot", "duration_ms": 5000},
    draws={
        "ending": OneOf((".index", ".timeindex", ".leader_epoch_checkpoint", ".snapshot")),
        "duration_ms": Between(500, 5000),
    },
)
