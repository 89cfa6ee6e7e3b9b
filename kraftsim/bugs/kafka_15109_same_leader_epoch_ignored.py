"""Brokers in ZooKeeper mode take no news of a partition from a controller of KRaft, unless it has another leader epoch.

Such a controller changes the in-sync replicas, or where a replica lies, under the same leader: the leader asks under an old partition epoch from then
on, and is refused for ever. Replicas that come back never get in sync.
Source: KAFKA-15109, kafka.server.ReplicaManager.becomeLeaderOrFollower.
"""

from kraftsim.bugs.bug import Bug
from kraftsim.core.zookeeper_mode.received_metadata import ReceivedMetadata


class WantsAnotherEpoch(ReceivedMetadata):
    """Judges what a controller of KRaft says as if it came from one of ZooKeeper's time."""

    def takes_same_epoch(self, *, is_kraft: bool) -> bool:
        return False  # right: from a controller of KRaft it does


BUG = Bug(
    name="KAFKA-15109",
    title="brokers that migrate ignore changes of the in-sync replicas under the same leader",
    fixed_in=("3.5.1", "3.6.0"),
    swap=lambda parts: parts.replacing(received_metadata=WantsAnotherEpoch),
    story="zk_to_kraft_migration",
    caught_by=("acknowledged-records-on-replicas",),
)
