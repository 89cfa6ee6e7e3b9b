"""A controller that takes /controller over goes by the version of /migration that it read before that.

If the one before it wrote in between, nothing that it wants to write is ever written, and no broker in ZooKeeper mode hears of anything any more.

Source: KAFKA-16171, KAFKA-16667, kafka.zk.ZkMigrationClient.claimControllerLeadership.
"""

from dataclasses import replace

from kraftsim.bugs.bug import Bug
from kraftsim.core.migration.driver import Claim
from kraftsim.node.controller.migration.zookeeper_side import ZookeeperSide


class KnowsTheVersion(ZookeeperSide):
    """Does not write /migration to learn its version."""

    async def claim(self, claim: Claim) -> Claim:
        taken = await super().claim(claim)
        return replace(taken, migration_version=claim.migration_version)  # right: the one that the last write gave it


BUG = Bug(
    name="KAFKA-16171",
    title="a controller that took over writes nothing to ZooKeeper, because the one before wrote last",
    fixed_in=("3.6.2", "3.7.0", "3.8.0"),
    swap=lambda parts: parts.replacing(zookeeper_side=KnowsTheVersion),
    caught_by=("zookeeper-mirrors-log", "settles-after-heal"),
)
