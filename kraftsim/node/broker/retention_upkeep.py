"""Deletes what is too old, of one log after the other.

Source: kafka.log.LogManager.cleanupLogs.
"""

from collections.abc import Callable, Iterable

from kraftsim.node.broker.hosted_partition import HostedPartition
from kraftsim.node.broker.log_directory import LogDirectory, PartitionKey
from kraftsim.node.shell import NodeShell


class RetentionUpkeep:
    """`lose` hears of a disk that refuses: the directory, the path, what was done, and why not."""

    def __init__(
        self,
        shell: NodeShell,
        hosted: Callable[[], Iterable[HostedPartition]],
        on_changed: Callable[[PartitionKey], None],
        lose: Callable[[LogDirectory, str, str, OSError], None],
    ) -> None:
        self._shell = shell
        self._hosted = hosted
        self._on_changed = on_changed
        self._lose = lose

    async def delete_expired(self) -> None:
        """Delete what is too old of the logs that the cleaner does not look after."""
        config = self._shell.config
        for hosted in list(self._hosted()):
            is_the_cleaners = hosted.settings.cleaning.is_compacted and config.log_cleaner_enable and config.log_cleaner_threads
            if not is_the_cleaners and hosted.log.is_open and hosted.log.gate.is_free:
                await self.delete_expired_of(hosted)

    async def delete_expired_of(self, hosted: HostedPartition) -> None:
        """Delete what is too old of one log."""
        try:
            if hosted.delete_expired(self._shell.world.clock.wall_ms()):
                await hosted.log.store_epochs()
                self._on_changed(hosted.key)
        except OSError as failure:
            self._lose(hosted.home, hosted.log.directory, "delete", failure)
