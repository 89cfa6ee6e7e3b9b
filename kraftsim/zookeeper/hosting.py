"""Partition hosting in ZooKeeper mode: the controller's requests decide which replicas the broker
holds, not the metadata log.

The controller's requests are meant for this incarnation: requests with another broker epoch are
refused earlier. A stopped replica stays on disk unless the request deletes it.
Source: kafka.server.ReplicaManager.{stopReplicas, becomeLeaderOrFollower, updateStrayLogs},
kafka.cluster.Partition.isReplicaIsrEligible.
"""

from collections.abc import Collection
from functools import partial

from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.log_directory import PartitionKey
from kraftsim.partitions.partitions import Partitions
from kraftsim.partitions.replication import Replication
from kraftsim.zookeeper.rules_received_metadata import LocalPartition
from protocol.storage.file_names import partition_directory_name

STRAY_SUFFIX = "-stray"
NO_LEADER_EPOCH = -1


class ControlledPartitions(Partitions):
    """`Partitions` with the operations that LeaderAndIsr and StopReplica need."""

    def held(self, topic: str, partition: int) -> LocalPartition | None:
        """Return the local state of a partition; None if it is neither hosted nor offline."""
        if self.is_offline(topic, partition):
            return LocalPartition(leader_epoch=NO_LEADER_EPOCH, topic_id=None, is_offline=True)
        hosted = self.find(topic, partition)
        if hosted is None:
            owner = self._owner(topic, partition)
            return (
                None
                if owner is None
                else LocalPartition(leader_epoch=NO_LEADER_EPOCH, topic_id=owner)
            )
        return LocalPartition(leader_epoch=hosted.replica.leader_epoch, topic_id=hosted.topic_id)

    def _owner(self, topic: str, partition: int) -> bytes | None:
        """Return the topic id of a log left by an earlier run; None if there is no log, or it has
        no topic id.
        """
        for home in self.directories.online:
            if home.world.disk.list(partition_directory_name(topic, partition)):
                owner = PartitionLog(home.world, topic, partition).stored_topic_id()
                if owner is not None:
                    return owner
        return None

    async def name_topic(self, topic: str, topic_id: bytes) -> None:
        """Persist the topic id of a log that had none."""
        for hosted in self.hosted():
            if hosted.topic == topic:
                hosted.topic_id = topic_id
                await self._in(hosted.home, "write", partial(hosted.log.store_topic_id, topic_id))

    async def stop_replica(self, key: PartitionKey, *, deletes: bool) -> None:
        """Stop serving a partition; with `deletes` delete its log, even if it was not opened in
        this run.
        """
        async with self._following:
            hosted = self._hosted.get(key)
            if not deletes:
                if hosted is not None:
                    self._replication.leave(key)
                return
            if hosted is not None:
                await self._delete(hosted)
            directory = partition_directory_name(*key)
            for home in self.directories.online:
                if home.world.disk.list(directory):
                    await self._delete_files(home, directory)

    async def keep_only(self, keys: Collection[PartitionKey]) -> None:
        """Rename replicas that a full LeaderAndIsr request does not contain: their topics were
        deleted while this broker was offline.
        """
        async with self._following:
            for hosted in self.hosted():
                if hosted.key not in keys:
                    self._stand_down(hosted)
                    await self.moves.cancel(hosted.key)
                    async with hosted.log.gate:
                        hosted.log.abort()
                        del self._hosted[hosted.key]
                        hosted.home.forget(hosted.key)
                        hosted.home.world.disk.move_directory(
                            hosted.log.directory, f"{hosted.log.directory}{STRAY_SUFFIX}"
                        )
                    self._on_changed(hosted.key)

    def _is_meant(self, image: MetadataImage) -> bool:
        """All assignments are meant for this incarnation."""
        return True


class ControlledReplication(Replication):
    """`Replication` without knowledge of broker epochs: every live broker may join the ISR."""

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Return whether a follower may join the ISR."""
        return self._image().broker(broker_id) is not None
