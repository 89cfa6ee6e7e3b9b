"""Retention: deletes expired segments, one log after the other.

Source: kafka.log.LogManager.cleanupLogs.
"""

from collections.abc import Callable, Iterable

from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.log_directory import LogDirectory, PartitionKey
from kraftsim.server.shell import NodeShell


class RetentionUpkeep:
    """`fail_directory` receives I/O errors: the directory, the path, the operation, and the
    error.
    """

    def __init__(
        self,
        shell: NodeShell,
        hosted: Callable[[], Iterable[HostedPartition]],
        on_changed: Callable[[PartitionKey], None],
        fail_directory: Callable[[LogDirectory, str, str, OSError], None],
    ) -> None:
        self._shell = shell
        self._hosted = hosted
        self._on_changed = on_changed
        self._fail_directory = fail_directory

    async def delete_expired(self) -> None:
        """Delete the expired segments of all logs that the cleaner does not handle."""
        config = self._shell.config
        for hosted in list(self._hosted()):
            is_the_cleaners = (
                hosted.settings.cleaning.is_compacted
                and config.log_cleaner_enable
                and config.log_cleaner_threads
            )
            if not is_the_cleaners and hosted.log.is_open and hosted.log.gate.is_free:
                await self.delete_expired_of(hosted)

    async def delete_expired_of(self, hosted: HostedPartition) -> None:
        """Delete the expired segments of one log."""
        try:
            if hosted.delete_expired(self._shell.world.clock.wall_ms()):
                await hosted.log.store_epochs()
                self._on_changed(hosted.key)
        except OSError as failure:
            self._fail_directory(hosted.home, hosted.log.directory, "delete", failure)
