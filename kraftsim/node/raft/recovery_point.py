"""The recovery point of a controller's metadata log: the flushed offset, to distinguish damage from a tail that was never flushed.

A torn tail is truncated without loss. Flushed records may have been acknowledged: a voter that lost them must
not vote, or the quorum loses committed records. Kafka keeps this file for partitions of brokers, and
truncates a damaged metadata log silently: an intentional deviation.
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
    """The file of one controller. It may lag behind the flushed offset, and never exceeds it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.offset = 0
        """The offset in the file; 0 if there is none."""

    def load(self) -> None:
        """Read the file. An unreadable one counts as absent."""
        try:
            self.offset = parse_offset_checkpoint(self._disk.read(RECOVERY_POINTS), RECOVERY_POINTS).get(KEY, 0)
        except (FileNotFoundError, MalformedMessage):
            self.offset = 0

    def require(self, end_offset: int, config: NodeConfig) -> None:
        """Refuse a log that lacks flushed records. Raises ConfigError."""
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
