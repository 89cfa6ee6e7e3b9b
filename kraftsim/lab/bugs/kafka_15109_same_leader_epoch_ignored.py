"""Brokers in ZooKeeper mode ignore LeaderAndIsr of a KRaft controller, unless the leader epoch has
changed.

A KRaft controller changes the in-sync replicas, or the directory of a replica, under the same
leader epoch: from then on the leader sends an old partition epoch and is rejected for ever.
Restarted replicas never get in sync.
Source: KAFKA-15109, kafka.server.ReplicaManager.becomeLeaderOrFollower.
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.zookeeper.rules_received_metadata import ReceivedMetadata


class WantsAnotherEpoch(ReceivedMetadata):
    """Processes requests of a KRaft controller as if they came from a ZooKeeper-mode controller."""

    def takes_same_epoch(self, *, is_kraft: bool) -> bool:
        return False  # right: from a controller of KRaft it does


BUG = Bug(
    name="KAFKA-15109",
    title="migrating brokers ignore ISR changes in the same leader epoch",
    fixed_in=("3.5.1", "3.6.0"),
    swap=lambda parts: parts.replacing(received_metadata=WantsAnotherEpoch),
    scenario="zk_to_kraft_migration",
    caught_by=("acknowledged-records-on-replicas",),
)
