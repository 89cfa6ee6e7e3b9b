"""Up to where a controller's metadata log was on disk for certain, so that damage is told from a tail that was never flushed.

A torn tail is cut and costs nothing. What was flushed may have been acknowledged: without it a voter must not vote, or the quorum loses what it
committed. Kafka keeps this file for partitions of brokers and cuts a damaged metadata log without a word: a deviation on purpose.
Source: the format is that of org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile.
"""

from kraftsim.node.config import NodeConfig
from kraftsim.node.config_keys import ConfigError
from kraftsim.world.interface import Disk
from protocol.disk.file_names import METADATA_TOPIC, RECOVERY_POINTS
from protocol.disk.offset_checkpoint import build_offset_checkpoint, parse_offset_checkpoint
from protocol.malformed import MalformedMessage

KEY = (METADATA_TOPIC, 0)


class RecoveryPoint:
    """The file of one controller. It may lag behind the truth, and never runs ahead of it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.offset = 0
        """What the file says; 0 where there is none."""

    def load(self) -> None:
        """Read the file. One that cannot be read says nothing."""
        try:
            self.offset = parse_offset_checkpoint(self._disk.read(RECOVERY_POINTS), RECOVERY_POINTS).get(KEY, 0)
        except (FileNotFoundError, MalformedMessage):
            self.offset = 0

    def require(self, end_offset: int, config: NodeConfig) -> None:
        """Refuse a log that lacks something that was flushed. Raises ConfigError."""
        if end_offset < self.offset:
            why = f"is damaged at offset {end_offset}, and was on disk up to {self.offset}"
            raise ConfigError(
                f"{config.metadata_key}: the metadata log in {config.metadata_directory} {why}: records that were committed may be gone"
            )

    async def store(self, offset: int) -> None:
        """Write the file; everything before the offset is flushed."""
        if offset != self.offset:
            self.offset = offset
            await self._disk.replace(RECOVERY_POINTS, build_offset_checkpoint({KEY: offset}))
