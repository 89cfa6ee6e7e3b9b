"""All log directories of a broker: where a partition is located, where a new partition is placed,
and which directories are online.

Source: kafka.log.LogManager.{createAndValidateLogDirs, nextLogDirs, getOrCreateLog,
readBrokerEpochFromCleanShutdownFiles}, KIP-112, KIP-858.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from kraftsim.partitions.log_directory import NO_BROKER_EPOCH, LogDirectory, PartitionKey
from kraftsim.server.config import NodeConfig
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.events import DiskFailed
from kraftsim.server.identity import NO_DIRECTORY_ID, load_directory_identity
from kraftsim.world.interface import World
from protocol.storage.file_names import partition_directory_name
from protocol.uuids import LOST_DIRECTORY_ID, UNASSIGNED_DIRECTORY_ID

UNKNOWN_PLACES = (NO_DIRECTORY_ID, UNASSIGNED_DIRECTORY_ID)
OnFailure = Callable[[LogDirectory, str, str, OSError], None]
"""Receives an I/O error: (directory, path in it, operation, error)."""


class LogDirectories:
    """The first one is the node's data directory, which also has the node's other files."""

    def __init__(self, world: World, config: NodeConfig) -> None:
        self._world = world
        self._config = config
        self.all: list[LogDirectory] = []

    async def open(self, directory_id: bytes) -> int:
        """Load the state of the last shutdown of each; return its broker epoch if all were shut
        down cleanly with the same one (else -1).

        `directory_id` is that of the first. An unreadable directory starts offline. Raises
        ConfigError, or OSError of the first one.
        """
        epochs = []
        for path in self._config.log_dirs:
            is_first = not self.all
            directory = (
                LogDirectory(path, self._world, directory_id)
                if is_first
                else LogDirectory(path, self._world, NO_DIRECTORY_ID)
            )
            self.all.append(directory)
            try:
                if not is_first:
                    directory.world = self._world.elsewhere(path)
                    directory.directory_id = await load_directory_identity(
                        directory.world, self._config, path
                    )
                epochs.append(await directory.load())
            except OSError as failure:
                if is_first:
                    raise
                directory.take_offline(failure)
                self._world.emit(DiskFailed(path=path, operation="open", reason=str(failure)))
        ids = [each.directory_id for each in self.online if each.directory_id != NO_DIRECTORY_ID]
        if len(set(ids)) < len(ids):
            raise ConfigError(
                f"log.dirs: two of {', '.join(self._config.log_dirs)} have the same directory.id"
            )
        is_sure = len(epochs) == len(self.all) and len(set(epochs)) == 1
        return epochs[0] if is_sure else NO_BROKER_EPOCH

    @property
    def online(self) -> list[LogDirectory]:
        """The online directories, in the order of log.dirs."""
        return [each for each in self.all if each.is_online]

    @property
    def ids(self) -> list[bytes]:
        """The ids of the online directories."""
        return [each.directory_id for each in self.online]

    def by_path(self, path: str) -> LogDirectory | None:
        """Return the directory with this path in log.dirs."""
        return next((each for each in self.all if each.path == path), None)

    def by_id(self, directory_id: bytes) -> LogDirectory | None:
        """Return the online directory with this id."""
        return next(
            (
                each
                for each in self.online
                if each.directory_id == directory_id and directory_id not in UNKNOWN_PLACES
            ),
            None,
        )

    def holding(
        self, key: PartitionKey, assigned_id: bytes, on_failure: OnFailure
    ) -> list[LogDirectory]:
        """Return the directories with files of a partition; after an interrupted move there are
        two, the controller's assignment first. `on_failure` receives I/O errors.
        """
        if len(self.all) == 1:
            return self.online
        name, found = partition_directory_name(*key), list[LogDirectory]()
        for each in self.online:
            try:
                if each.world.disk.list(name):
                    found.append(each)
            except OSError as failure:
                on_failure(each, name, "list", failure)
        return sorted(found, key=lambda each: each.directory_id != assigned_id)

    def taken(self, homes: Iterable[LogDirectory]) -> dict[int, int]:
        """Count the occurrences of each directory, by its index in log.dirs."""
        places = {id(each): place for place, each in enumerate(self.all)}
        return Counter(places[id(home)] for home in homes)

    def place_for(
        self,
        key: PartitionKey,
        assigned_id: bytes,
        *,
        is_new: bool,
        taken: Mapping[int, int],
        wish: str | None,
    ) -> LogDirectory | None:
        """Return the directory for a partition without files: the requested one, the controller's
        assignment, or the one with the fewest partitions.

        None: it may be in an offline directory, and must not be created elsewhere. `taken`:
        partitions in each directory, by its index in log.dirs.
        """
        wished = None if wish is None else self.by_path(wish)
        if wished is not None and wished.is_online:
            return wished
        assigned = self.by_id(assigned_id)
        if assigned is not None:
            return assigned
        is_somewhere_else = assigned_id == LOST_DIRECTORY_ID or assigned_id not in UNKNOWN_PLACES
        if len(self.online) < len(self.all) and (not is_new or is_somewhere_else):
            return None
        counted = [
            (taken.get(place, 0), place) for place, each in enumerate(self.all) if each.is_online
        ]
        return self.all[min(counted)[1]] if counted else None
