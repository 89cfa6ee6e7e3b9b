"""The directory of one partition: its topic id, and the small files beside its segments.

Source: PartitionMetadataFile (KIP-516), LeaderEpochCheckpointFile (KIP-101).
"""

from itertools import pairwise

from kraftsim.partitions.rules_log import LeaderEpochs
from kraftsim.world.interface import World
from kraftsim.zookeeper.rules_control_requests import is_derived
from protocol.malformed import MalformedMessage
from protocol.storage.checkpoints import (
    EpochStart,
    build_leader_epoch_checkpoint,
    parse_leader_epoch_checkpoint,
)
from protocol.storage.file_names import LEADER_EPOCHS, PARTITION_METADATA, partition_directory_name
from protocol.storage.partition_metadata import build_partition_metadata, parse_partition_metadata


class PartitionDirectory:
    """`epochs` are those of the log in it. OSErrors of the disk are passed on."""

    def __init__(
        self, world: World, topic: str, partition: int, directory: str | None = None
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.directory = (
            partition_directory_name(topic, partition) if directory is None else directory
        )
        self.epochs = LeaderEpochs()
        self._world = world
        self._stored_starts: tuple[EpochStart, ...] = ()

    async def store_epochs(self) -> None:
        """Write leader-epoch-checkpoint: after every change of `epochs`."""
        starts = self.epochs.starts
        await self._world.disk.replace(
            f"{self.directory}/{LEADER_EPOCHS}", build_leader_epoch_checkpoint(starts)
        )
        self._stored_starts = starts

    @property
    def owes_epochs(self) -> bool:
        """Whether leader-epoch-checkpoint must be written before more may count as durable."""
        return self.epochs.starts != self._stored_starts

    def _load_epochs(self) -> bool:
        """Load the epochs of leader-epoch-checkpoint, and return whether the file is valid."""
        try:
            starts = parse_leader_epoch_checkpoint(
                self._world.disk.read(f"{self.directory}/{LEADER_EPOCHS}")
            )
        except (FileNotFoundError, MalformedMessage):
            return False
        grows = all(
            former.leader_epoch < latter.leader_epoch and former.start_offset <= latter.start_offset
            for former, latter in pairwise(starts)
        )
        if not starts or not grows:
            return False
        self.epochs, self._stored_starts = LeaderEpochs(starts), tuple(starts)
        return True

    async def store_topic_id(self, topic_id: bytes) -> None:
        """Write partition.metadata: once, when the replica is created.

        A topic without an id has none.
        """
        if is_derived(topic_id):
            return
        await self._world.disk.replace(
            f"{self.directory}/{PARTITION_METADATA}", build_partition_metadata(topic_id)
        )

    def stored_topic_id(self) -> bytes | None:
        """Return the topic id of this directory; None if it has none."""
        try:
            return parse_partition_metadata(
                self._world.disk.read(f"{self.directory}/{PARTITION_METADATA}")
            )
        except (FileNotFoundError, MalformedMessage):
            return None
