"""The transaction coordinator of a broker: processes the requests for its transactional ids, and
completes each transaction.

The rules decide every transition; it is appended to the log, and the response is sent once all
in-sync replicas have it. EndTxn is answered when the prepare state is written; the markers follow.
Source: org.apache.kafka.coordinator.transaction.TransactionCoordinator, TransactionStateManager;
KIP-98, KIP-360, KIP-890.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from kraftsim.core.decision import Refusal
from kraftsim.groups.coordinator_log import CoordinatorLog
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.partitions.partitions import PartitionKey, Partitions
from kraftsim.producer_ids.broker import ProducerIds
from kraftsim.producer_ids.events import ProducerIdSpent
from kraftsim.server.call import Call
from kraftsim.server.config import NodeConfig
from kraftsim.server.outbound import VersionRange
from kraftsim.server.purgatory import Purgatory
from kraftsim.server.shell import NodeShell
from kraftsim.transactions.events import (
    ProducerFenced,
    TransactionAbortForced,
    TransactionKept,
    TransactionRefused,
)
from kraftsim.transactions.marker_sender import MarkerSender
from kraftsim.transactions.rules_coordinator import (
    Already,
    EndTxnInput,
    Expected,
    MustAbort,
    NeedsProducerId,
    TransactionRules,
)
from kraftsim.transactions.rules_markers import MarkerQueue, NoLeader, PreparedTransaction
from kraftsim.transactions.rules_state import (
    ONGOING,
    TopicPartition,
    TransactionEntry,
    TransactionFacts,
    TransactionShard,
)
from kraftsim.transactions.transaction_partitions import (
    CoordinatedTransactions,
    TransactionPartitions,
)
from kraftsim.world.interface import World, YieldPoint
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.records.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.records.record import Compression


@dataclass(frozen=True, slots=True)
class TransactionalIdentity:
    """The producer id and epoch to continue with.

    `is_fresh`: the id was not returned to any client before. `kept`: the identity of the open
    transaction that was kept (KIP-939).
    """

    producer_id: int
    producer_epoch: int
    is_fresh: bool = False
    kept: Expected = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


OnIdentity = Callable[[TransactionalIdentity | Refusal], None]
OnEnd = Callable[[ErrorCode], None]
DecideInit = Callable[
    [TransactionEntry, Expected | None, int, int, int | None],
    TransactionFacts | NeedsProducerId | MustAbort | Refusal,
]
"""What an InitProducerId does to an entry: with the producer that it expects, its time-out, the
time, and a new producer id if one was needed.
"""
OnProducerId = Callable[[int | Refusal], None]
BUSY: Final = Refusal(
    ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction of the previous producer is being aborted"
)
UNKNOWN_ID: Final = Refusal(
    ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the transactional id is not initialized"
)


class CoordinatorParts(Protocol):
    """The replaceable classes of a transaction coordinator."""

    @property
    def verification_is_abortable(self) -> bool:
        """Whether a partition that is not in the transaction returns TRANSACTION_ABORTABLE."""
        ...

    def coordinator_rules(self, config: NodeConfig) -> type[TransactionRules]:
        """Return the decisions of the coordinator."""
        ...

    @property
    def transaction_shard(self) -> type[TransactionShard]:
        """The transactional ids of one partition."""
        ...

    @property
    def marker_queue(self) -> type[MarkerQueue]:
        """The transaction markers to write."""
        ...

    @property
    def marker_sender(self) -> type[MarkerSender]:
        """Sends the markers."""
        ...


class TransactionCoordinator:
    """`partitions` has the loaded transactional ids; `markers` sends the transaction markers."""

    def __init__(
        self,
        shell: NodeShell,
        parts: CoordinatorParts,
        image: Callable[[], MetadataImage],
        hosted: Partitions,
        produces: Purgatory[PartitionKey],
        fetches: Purgatory[PartitionKey],
        producer_ids: ProducerIds,
        *,
        own_versions: Mapping[int, VersionRange],
        transaction_version: Callable[[], int],
    ) -> None:
        self._shell = shell
        self._world = shell.world
        self._config = config = shell.config
        self._image = image
        self._producer_ids = producer_ids
        self._transaction_version = transaction_version
        self._absent = (
            ErrorCode.TRANSACTION_ABORTABLE
            if parts.verification_is_abortable
            else ErrorCode.INVALID_TXN_STATE
        )
        self.rules = parts.coordinator_rules(config)()
        log = CoordinatorLog(
            hosted,
            produces,
            fetches,
            shell.world.clock,
            timeout_ms=config.request_timeout_ms,
            compression=Compression.NONE,
        )
        self.partitions = TransactionPartitions(
            shell,
            image,
            hosted,
            log,
            self.rules,
            parts.transaction_shard,
            transaction_version=transaction_version,
            on_loaded=self._on_loaded,
            on_left=self._on_left,
        )
        queue = parts.marker_queue(self._leader_of)
        self.markers = parts.marker_sender(
            shell,
            queue,
            address_of=self._address_of,
            own_versions=own_versions,
            complete=self.complete,
        )

    def on_partition_changed(self, key: PartitionKey) -> None:
        """Load or unload a partition if this broker became or ceased to be its leader."""
        self.partitions.on_partition_changed(key)

    def begin_upkeep(self) -> None:
        """Start the tasks that abort timed-out transactions and expire unused transactional ids."""
        self._shell.tasks.spawn(self._abort_timed_out(), "transaction time-outs")
        self._shell.tasks.spawn(self._expire(), "transactional id expiration")

    def close(self) -> None:
        """Stop to send markers: the node shuts down."""
        self.markers.close()

    def abort(self) -> None:
        """Close every connection at once, like a killed process."""
        self.markers.abort()

    # InitProducerId
    # ----------------------------------------------------------------------------------------------

    def init(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Expected | None,
        on_end: OnIdentity,
        *,
        keeps: bool = False,
    ) -> None:
        """Initialize a transactional id, which fences its previous producer. With `keeps` its open
        transaction is not aborted (KIP-939).
        """
        led = self.partitions.coordinated(transactional_id)
        if isinstance(led, ErrorCode):
            on_end(Refusal(led))
            return
        decide = self.rules.decide_keeping if keeps else self.rules.decide_init
        entry = led.shard.entries.get(transactional_id)
        if entry is not None:
            self._init(led, entry, decide, expected, timeout_ms, on_end)
            return

        def on_claimed(claimed: int | Refusal) -> None:
            self._emit_spent(claimed, transactional_id, "new transactional id")
            if isinstance(claimed, Refusal):
                on_end(claimed)
            elif not self.partitions.is_current(led):
                on_end(Refusal(ErrorCode.NOT_COORDINATOR))
            else:
                made = led.shard.known_or_new(transactional_id, claimed, timeout_ms, self._now_ms())
                self._init(led, made, decide, expected, timeout_ms, on_end)

        self._claim(on_claimed)

    def _init(
        self,
        led: CoordinatedTransactions,
        entry: TransactionEntry,
        decide: DecideInit,
        expected: Expected | None,
        timeout_ms: int,
        on_end: OnIdentity,
        fresh_producer_id: int | None = None,
    ) -> None:
        outcome = decide(entry, expected, timeout_ms, self._now_ms(), fresh_producer_id)
        match outcome:
            case Refusal():
                on_end(outcome)
            case NeedsProducerId():
                self._claim_for(
                    led,
                    entry.transactional_id,
                    lambda fresh: self._init(
                        led, entry, decide, expected, timeout_ms, on_end, fresh
                    ),
                    on_end,
                )
            case MustAbort():
                self.force_abort(
                    led,
                    entry,
                    "initialised",
                    lambda error: on_end(BUSY if error is ErrorCode.NONE else Refusal(error)),
                )
            case TransactionFacts():
                given = given_to(entry.facts, outcome)
                if outcome.state is ONGOING:
                    self._emit_kept(led, entry, outcome)
                led.store(
                    entry,
                    outcome,
                    lambda error: on_end(given if error is ErrorCode.NONE else Refusal(error)),
                )

    # AddPartitionsToTxn, AddOffsetsToTxn
    # ----------------------------------------------------------------------------------------------

    def add(
        self,
        transactional_id: str,
        producer: Expected,
        partitions: Sequence[TopicPartition],
        transaction_version: int,
        on_end: OnEnd,
    ) -> None:
        """Add partitions to a transaction: all of them, or none."""
        found = self._known(transactional_id)
        if isinstance(found, Refusal):
            on_end(found.error)
            return
        led, entry = found
        outcome = self.rules.decide_add(
            entry, producer, partitions, transaction_version, self._now_ms()
        )
        match outcome:
            case Refusal():
                on_end(outcome.error)
            case Already():
                on_end(ErrorCode.NONE)
            case TransactionFacts():
                led.store(entry, outcome, on_end)

    def verify(
        self, transactional_id: str, producer: Expected, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return for each partition whether it is in the transaction. Nothing is written."""
        found = self._known(transactional_id)
        if isinstance(found, Refusal):
            return dict.fromkeys(partitions, found.error)
        entry = found[1]
        return {
            each: self.rules.verify(entry, producer, each, absent=self._absent)
            for each in partitions
        }

    # EndTxn
    # ----------------------------------------------------------------------------------------------

    def end(
        self,
        transactional_id: str,
        asked: EndTxnInput,
        on_end: OnIdentity,
        fresh_producer_id: int | None = None,
    ) -> None:
        """Commit or abort; `on_end` is called once the prepare state is written."""
        found = self._known(transactional_id)
        if isinstance(found, Refusal):
            on_end(found)
            return
        led, entry = found
        outcome = self.rules.decide_end(entry, asked, self._now_ms(), fresh_producer_id)
        match outcome:
            case Refusal():
                on_end(outcome)
            case Already():
                on_end(TransactionalIdentity(outcome.producer_id, outcome.producer_epoch))
            case NeedsProducerId():
                self._claim_for(
                    led,
                    transactional_id,
                    lambda fresh: self.end(transactional_id, asked, on_end, fresh),
                    on_end,
                )
            case TransactionFacts():
                self._decide(led, entry, outcome, on_end)

    def _decide(
        self,
        led: CoordinatedTransactions,
        entry: TransactionEntry,
        facts: TransactionFacts,
        on_end: OnIdentity,
    ) -> None:
        def on_stored(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                on_end(Refusal(error))
                return
            on_end(TransactionalIdentity(*self.rules.identity_after(facts)))
            self._send_markers(led, entry)

        led.store(entry, facts, on_stored)

    def force_abort(
        self,
        led: CoordinatedTransactions,
        entry: TransactionEntry,
        reason: str,
        on_end: OnEnd,
        fresh_producer_id: int | None = None,
    ) -> None:
        """Abort a transaction without its producer, which is fenced."""
        if entry.pending is not None or entry.facts.state is not ONGOING:
            on_end(ErrorCode.CONCURRENT_TRANSACTIONS)
            return
        facts = self.rules.decide_forced_abort(
            entry, self._transaction_version(), self._now_ms(), fresh_producer_id
        )
        if isinstance(facts, NeedsProducerId):
            self._claim_for(
                led,
                entry.transactional_id,
                lambda fresh: self.force_abort(led, entry, reason, on_end, fresh),
                lambda refused: on_end(_error_of(refused)),
            )
            return
        if isinstance(facts, Refusal):
            on_end(facts.error)
            return
        self._world.emit(
            TransactionAbortForced(
                transactional_id=entry.transactional_id,
                producer_id=facts.producer_id,
                producer_epoch=facts.producer_epoch,
                reason=reason,
            )
        )

        def on_stored(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._send_markers(led, entry)
            else:
                self.rules.on_forced_abort_failed(entry)
            on_end(error)

        led.store(entry, facts, on_stored)

    # Markers
    # ----------------------------------------------------------------------------------------------

    def _send_markers(self, led: CoordinatedTransactions, entry: TransactionEntry) -> None:
        completion = self.rules.completed(entry, self._now_ms())
        self.markers.add(PreparedTransaction(entry, completion, led.number, led.coordinator_epoch))

    def complete(self, ended: PreparedTransaction) -> None:
        """All markers are written: write the completion.

        If the partition was unloaded or reloaded since, its new coordinator does so.
        """
        led = self.partitions.find(ended.shard_number)
        if led is None or led.is_loading or led.coordinator_epoch != ended.coordinator_epoch:
            return

        def on_stored(error: ErrorCode) -> None:
            if error not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
                self.markers.run(self.markers.queue.on_not_completed(ended))

        led.store(ended.entry, ended.completion, on_stored)

    def _leader_of(self, partition: TopicPartition) -> int | NoLeader:
        registered = self._image().partition(*partition)
        if registered is None:
            return NoLeader.GONE
        return (
            NoLeader.UNKNOWN if self._address_of(registered.leader) is None else registered.leader
        )

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        registered = self._image().broker(broker_id)
        if registered is None or registered.fenced:
            return None
        found = registered.listener(self._config.inter_broker_listener_name)
        return None if found is None else (found.host, found.port)

    # Loading and unloading
    # ----------------------------------------------------------------------------------------------

    def _on_loaded(self, led: CoordinatedTransactions) -> None:
        """Continue after the previous coordinator: complete all transactions in a prepare state."""
        for entry in list(led.shard.prepared()):
            self._send_markers(led, entry)

    def _on_left(self, led: CoordinatedTransactions) -> None:
        self.markers.queue.forget_shard(led.number)

    # Timeouts and expiration
    # ----------------------------------------------------------------------------------------------

    async def _abort_timed_out(self) -> None:
        while True:
            await asyncio.sleep(
                self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000
            )
            for led in list(self.partitions.all()):
                for entry in led.shard.timed_out(self._now_ms()) if not led.is_loading else ():
                    await self._world.yield_point(YieldPoint.TRANSACTION_TIMED_OUT)
                    if (
                        self.partitions.is_current(led)
                        and led.shard.entries.get(entry.transactional_id) is entry
                    ):
                        self.force_abort(led, entry, "timeout", lambda error: None)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(
                self._config.transaction_remove_expired_transaction_cleanup_interval_ms / 1000
            )
            for led in list(self.partitions.all()):
                if led.is_loading:
                    continue
                for expired in led.shard.expired(
                    self._now_ms(), self._config.transactional_id_expiration_ms
                ):
                    led.store_tombstones(expired, self._config.request_timeout_ms)

    # Look-up
    # ----------------------------------------------------------------------------------------------

    def _known(
        self, transactional_id: str
    ) -> tuple[CoordinatedTransactions, TransactionEntry] | Refusal:
        if not transactional_id:
            return Refusal(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        led = self.partitions.coordinated(transactional_id)
        if isinstance(led, ErrorCode):
            return Refusal(led)
        entry = led.shard.entries.get(transactional_id)
        return UNKNOWN_ID if entry is None else (led, entry)

    def _claim(self, on_claimed: OnProducerId) -> None:
        """Allocate a producer id, at once or later."""
        claimed = self._producer_ids.claim(on_claimed)
        if claimed is not None:
            on_claimed(claimed)

    def _claim_for(
        self,
        led: CoordinatedTransactions,
        transactional_id: str,
        on_id: Callable[[int], None],
        on_refused: Callable[[Refusal], None],
    ) -> None:
        """Allocate a producer id, and continue if the partition is still loaded with the same
        epoch.
        """

        def on_claimed(claimed: int | Refusal) -> None:
            self._emit_spent(claimed, transactional_id, "exhausted epoch")
            if isinstance(claimed, Refusal):
                on_refused(claimed)
            elif not self.partitions.is_current(led):
                on_refused(Refusal(ErrorCode.NOT_COORDINATOR))
            else:
                on_id(claimed)

        self._claim(on_claimed)

    def _emit_spent(self, claimed: int | Refusal, transactional_id: str, reason: str) -> None:
        if not isinstance(claimed, Refusal):
            self._world.emit(
                ProducerIdSpent(
                    producer_id=claimed, reason=reason, transactional_id=transactional_id
                )
            )

    def _emit_kept(
        self, led: CoordinatedTransactions, entry: TransactionEntry, kept: TransactionFacts
    ) -> None:
        self._world.emit(
            TransactionKept(
                transactional_id=entry.transactional_id,
                producer_id=kept.producer_id,
                producer_epoch=kept.producer_epoch,
                next_producer_id=kept.next_producer_id,
                next_producer_epoch=kept.next_producer_epoch,
                partition=led.number,
                coordinator_epoch=led.coordinator_epoch,
            )
        )

    def _now_ms(self) -> int:
        return self._world.clock.wall_ms()


def given_to(before: TransactionFacts, stored: TransactionFacts) -> TransactionalIdentity:
    """Return what a producer gets with an InitProducerId that is stored."""
    if stored.state is not ONGOING:
        return TransactionalIdentity(
            stored.producer_id, stored.producer_epoch, is_first_of_its_id(before, stored)
        )
    return TransactionalIdentity(
        stored.next_producer_id,
        stored.next_producer_epoch,
        is_fresh=stored.next_producer_epoch == 0,
        kept=(stored.producer_id, stored.producer_epoch),
    )


def is_first_of_its_id(before: TransactionFacts, given: TransactionFacts) -> bool:
    """Return whether the result is the first epoch of a producer id, and not a retry whose response
    was lost.
    """
    return given.producer_epoch == 0 and (before.producer_id, before.producer_epoch) != (
        given.producer_id,
        0,
    )


def _error_of(refusal: Refusal) -> ErrorCode:
    return refusal.error


class TransactionsBroker(Protocol):
    """A broker with a transaction coordinator."""

    @property
    def transactions(self) -> TransactionCoordinator:
        """The transactional ids that it coordinates."""
        ...


# --------------------------------------------------------------------------------------------------
# Shared by the transaction APIs: how errors are mapped for older clients, and the events of
# rejected requests
#
# Source: KIP-588; kafka.server.KafkaApis.


def error_in_version(error: ErrorCode, call: Call, first_version_with_fenced: int) -> ErrorCode:
    """Return an error in the form of the request version: PRODUCER_FENCED was
    INVALID_PRODUCER_EPOCH before.
    """
    if error is ErrorCode.PRODUCER_FENCED and call.api_version < first_version_with_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def emit_refusal(
    world: World, key: ApiKey, transactional_id: str, producer: Expected, error: ErrorCode
) -> None:
    """Emit an event for a rejected request of a producer."""
    api = key.name
    if error is ErrorCode.PRODUCER_FENCED:
        world.emit(
            ProducerFenced(
                transactional_id=transactional_id,
                producer_id=producer[0],
                producer_epoch=producer[1],
                api=api,
            )
        )
    elif error is not ErrorCode.NONE:
        world.emit(
            TransactionRefused(
                api=api,
                transactional_id=transactional_id,
                error_code=error,
                producer_id=producer[0],
                producer_epoch=producer[1],
            )
        )
