"""A migration is copied piece by piece, and brokers see each at once; where the controller fails in between, the next one copies all again.

What was copied before is in the log twice then: a controller that is told of the same block of producer ids again believes its log no more.
Source: KAFKA-17457: before 3.9 a migration could begin below 3.6-IV1, where the log has no transactions.
"""

from kraftsim.bugs.bug import Bug
from kraftsim.node.controller.migration.copying import ZookeeperCopy


class CopiesInPieces(ZookeeperCopy):
    """Begins no transaction."""

    def is_one(self) -> bool:
        return False  # right: as the level of the cluster has it


BUG = Bug(
    name="KAFKA-17457",
    title="a controller that fails while it copies leaves a part of the copy behind",
    fixed_in=("3.9.0",),
    swap=lambda parts: parts.replacing(zookeeper_copy=CopiesInPieces),
    story="controller_failover_during_migration",
    caught_by=("nodes-believe-the-truth",),
)
