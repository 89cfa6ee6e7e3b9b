"""A migration is written record by record, and brokers see each at once; if the controller fails in
between, the next one starts over.

Then the records of the first attempt are in the log twice: a controller that replays the same block
of producer ids again treats its log as corrupt.
Source: KAFKA-17457: before 3.9 a migration could begin below 3.6-IV1, where the log has no
transactions.
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.migration.zookeeper_copy import ZookeeperCopy


class MigratesInPieces(ZookeeperCopy):
    """Begins no transaction."""

    def is_one(self) -> bool:
        return False  # right: as the level of the cluster has it


BUG = Bug(
    name="KAFKA-17457",
    title="a controller that fails during the migration leaves a partial migration",
    fixed_in=("3.9.0",),
    swap=lambda parts: parts.replacing(zookeeper_copy=MigratesInPieces),
    scenario="controller_failover_during_migration",
    caught_by=("nodes-believe-the-truth",),
)
