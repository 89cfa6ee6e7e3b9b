"""Bugs of the controller's view of brokers: which incarnation is registered, and which is alive.

A broker that died is fenced, so that others lead its partitions. One that comes back is another
incarnation: it must not lead in the epochs of the former one, whose records it may have lost.
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.metadata.rules_controller_state import ControllerState
from protocol.metadata.topics import PartitionChangeRecord

KAFKA_18106 = Bug(
    name="KAFKA-18106",
    title="a broker that comes back after a crash leads in the epochs of its former incarnation",
    about="""A broker that stopped uncleanly registers again within its session, and no partition
        changes: it is still leader, in the same leader epoch.

        It has lost records that were not flushed, and that its followers have acknowledged. It
        appends others at the same offsets, and the logs differ without an epoch that shows it.

        Source: KAFKA-18106, KAFKA-18635, of candidates of 4.0.0, fixed by leader and ISR changes in
        the registration (ReplicationControlManager.handleBrokerUncleanShutdown).
        """,
    fixed_in=("4.0.0",),
    swap=lambda parts: parts.replacing(controller_state=LeavesPartitionsAlone),
    scenario="broker_power_loss",
    release="4.0",
    caught_by=(
        "one-partition-leader-per-epoch",
        "partition-leader-completeness",
        "partition-log-matching",
        "partition-high-watermark-replicated",
        "acknowledged-records-on-replicas",
        "acknowledged-records-in-final-log",
        "replicas-equal",
    ),
)


class LeavesPartitionsAlone(ControllerState):
    """Changes partitions for clean shutdowns only."""

    def _departure_of_former(
        self, broker_id: int, *, is_clean: bool
    ) -> list[PartitionChangeRecord]:
        """Return no changes after a crash; right: another leader, or another epoch."""
        return super()._departure_of_former(broker_id, is_clean=True) if is_clean else []


BUGS = (KAFKA_18106,)
