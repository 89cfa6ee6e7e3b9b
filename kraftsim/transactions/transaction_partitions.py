"""The partitions of `__transaction_state` that this broker leads: loaded on becoming leader,
unloaded on resignation.

Source: TransactionStateManager.{loadTransactionsForTxnTopicPartition,
removeTransactionsForTxnTopicPartition}, BrokerMetadataPublisher.
"""

from collections.abc import Callable, Iterator

from kraftsim.groups.coordinator_log import CoordinatorLog
from kraftsim.groups.rules_timing import partition_of
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_topic_names import TRANSACTION_STATE
from kraftsim.partitions.hosted_partition import read_back
from kraftsim.partitions.partitions import PartitionKey, Partitions
from kraftsim.server.shell import NodeShell
from kraftsim.transactions.coordinated_transactions import CoordinatedTransactions
from kraftsim.transactions.events import TransactionsUnloaded
from kraftsim.transactions.rules_coordinator import TransactionRules
from kraftsim.transactions.rules_state import TransactionShard, value_version
from protocol.errors import ErrorCode

OnPartition = Callable[[CoordinatedTransactions], None]


class TransactionPartitions:
    """Partitions by number.

    `on_loaded` and `on_left` are called for each one that is loaded and unloaded.
    """

    def __init__(
        self,
        shell: NodeShell,
        image: Callable[[], MetadataImage],
        partitions: Partitions,
        log: CoordinatorLog,
        rules: TransactionRules,
        new_shard: Callable[[], TransactionShard],
        *,
        transaction_version: Callable[[], int],
        on_loaded: OnPartition,
        on_left: OnPartition,
    ) -> None:
        self._shell = shell
        self._world = shell.world
        self._image = image
        self._hosted = partitions
        self._log = log
        self._rules = rules
        self._new_shard = new_shard
        self._transaction_version = transaction_version
        self._on_loaded = on_loaded
        self._on_left = on_left
        self._led: dict[int, CoordinatedTransactions] = {}

    def partition_of(self, transactional_id: str) -> int:
        """Return the partition of `__transaction_state` that a transactional id belongs to."""
        topic = self._image().topic(TRANSACTION_STATE)
        count = (
            self._shell.config.transaction_state_log_num_partitions
            if topic is None
            else len(topic.partitions)
        )
        return partition_of(transactional_id, count)

    def coordinated(self, transactional_id: str) -> CoordinatedTransactions | ErrorCode:
        """Return the partition of a transactional id, or NOT_COORDINATOR or
        COORDINATOR_LOAD_IN_PROGRESS.
        """
        found = self._led.get(self.partition_of(transactional_id))
        if found is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if found.is_loading else found

    def is_current(self, led: CoordinatedTransactions) -> bool:
        """Return whether a partition is still loaded with the same coordinator epoch."""
        return self._led.get(led.number) is led and not led.is_loading

    def find(self, number: int) -> CoordinatedTransactions | None:
        """Return a partition that is loaded or being loaded."""
        return self._led.get(number)

    def all(self) -> Iterator[CoordinatedTransactions]:
        """Yield every partition that is loaded or being loaded, by number."""
        for number in sorted(self._led):
            yield self._led[number]

    def on_partition_changed(self, key: PartitionKey) -> None:
        """Load or unload a partition if its leader or its leader epoch has changed."""
        topic, number = key
        if topic != TRANSACTION_STATE:
            return
        hosted = self._hosted.find(topic, number)
        leads = hosted is not None and hosted.replica.is_leader
        known = self._led.get(number)
        if known is not None and not (
            hosted is known.hosted
            and leads
            and known.coordinator_epoch == known.hosted.replica.leader_epoch
        ):
            self._unload(known)
            known = None
        if known is None and hosted is not None and leads:
            led = CoordinatedTransactions(
                self._world,
                hosted,
                self._new_shard(),
                self._log,
                self._rules,
                lambda: value_version(self._transaction_version()),
            )
            self._led[number] = led
            self._shell.tasks.spawn(
                self._load(led), f"transactions of {TRANSACTION_STATE}-{number}"
            )

    def _unload(self, led: CoordinatedTransactions) -> None:
        del self._led[led.number]
        led.is_over = True
        self._on_left(led)
        self._world.emit(
            TransactionsUnloaded(partition=led.number, coordinator_epoch=led.coordinator_epoch)
        )

    async def _load(self, led: CoordinatedTransactions) -> None:
        """Read the log to its end, beyond the high watermark, too: those records may be committed,
        and no other broker writes them any more.
        """
        log = led.hosted.log
        try:
            next_offset = await read_back(
                led.hosted,
                buffer_size=self._shell.config.transaction_state_log_load_buffer_size,
                is_wanted=lambda: not led.is_over,
                replay=led.shard.replay,
            )
        except OSError as failure:
            self._hosted.disk_failed(log.directory, "read", failure)
            return
        await self._world.yield_point("transactions read back, and not answered for")
        if led.is_over:
            return
        led.is_loading = False
        led.emit_loaded(next_offset)
        self._on_loaded(led)
