"""Checkpoint files of the log directories: recovery points, high watermarks and log start offsets.

Source: ReplicaManager.checkpointHighWatermarks, LogManager.{checkpointLogRecoveryOffsets,
checkpointLogStartOffsets}.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.log_directory import LogDirectory, PartitionKey

Write = Callable[[LogDirectory, str, Callable[[], Awaitable[None]]], Awaitable[None]]
"""Takes the directory, the name of the operation, and the operation; handles I/O errors by failing
the directory.
"""


class Checkpoints:
    """The checkpoints of all online directories. A file has all logs of its directory: none is
    written before all of them are open, which `are_open` tells.
    """

    def __init__(
        self,
        online: Callable[[], Sequence[LogDirectory]],
        hosted: Callable[[], Iterable[HostedPartition]],
        write: Write,
        are_open: Callable[[LogDirectory], bool],
    ) -> None:
        self._all_online = online
        self._are_open = are_open
        self._hosted = hosted
        self._write = write

    def _online(self) -> list[LogDirectory]:
        return [home for home in self._all_online() if self._are_open(home)]

    async def store(self) -> None:
        """Write all checkpoints."""
        for home in self._online():
            await self._write(
                home, "write", partial(home.store_recovery_points, partial(self._flushed_in, home))
            )
        await self.store_high_watermarks()
        for home in self._online():
            await self._write(
                home, "write", partial(home.store_log_starts, partial(self._starts_in, home))
            )

    async def store_high_watermarks(self) -> None:
        """Write the high watermarks. After a restart a follower starts from them."""
        for home in self._online():
            await self._write(
                home,
                "write",
                partial(home.store_high_watermarks, partial(self._replicated_in, home)),
            )

    def _flushed_in(self, home: LogDirectory) -> dict[PartitionKey, int]:
        return {each.key: each.log.flushed_offset for each in self._in(home)}

    def _starts_in(self, home: LogDirectory) -> dict[PartitionKey, int]:
        return {each.key: each.log.log_start_offset for each in self._in(home)}

    def _replicated_in(self, home: LogDirectory) -> dict[PartitionKey, int]:
        return {each.key: each.replica.high_watermark for each in self._in(home)}

    def _in(self, home: LogDirectory) -> list[HostedPartition]:
        return [hosted for hosted in self._hosted() if hosted.home is home]
