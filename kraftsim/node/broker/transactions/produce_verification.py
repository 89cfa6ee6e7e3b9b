"""Before a Produce request begins transactions in partitions: who must be asked about them, and what becomes of those that may not.

Asked is once for all partitions of a request, and only for those in which the producer has no transaction open. Since Produce 12 the coordinator is
told to add them, so that the producer need not (KIP-890 part 2).

Source: KIP-890, kafka.server.ReplicaManager.{handleProduceAppend, maybeSendPartitionsToTransactionCoordinator}.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.core.transactions.verification_queue import VerificationErrors
from kraftsim.node.broker.partitions import PartitionKey, Partitions
from kraftsim.node.broker.transactions.verification import Verifier
from kraftsim.node.config import NodeConfig
from kraftsim.world.interface import Clock
from protocol.batches import RecordBatch
from protocol.errors import ErrorCode

FIRST_VERSION_WITH_ABORTABLE: Final = 11
"""Of Produce: the client knows TRANSACTION_ABORTABLE."""
FIRST_VERSION_THAT_ADDS: Final = 12
NOT_ADDED: Final = "Partition was not added to the transaction"
NOT_VERIFIED: Final = "Unable to verify the partition has been added to the transaction. Underlying error: "
WORTH_A_RETRY: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


@dataclass(slots=True)
class Verified:
    """What is known of the partitions of a request: the guards to append with, and those to which nothing is appended."""

    guards: dict[PartitionKey, int] = field(default_factory=dict)
    refused: dict[PartitionKey, Refusal] = field(default_factory=dict)


class ProduceVerification:
    """One request of a transactional producer. `run` calls back, at once if nobody need be asked."""

    def __init__(
        self,
        *,
        partitions: Partitions,
        verifier: Verifier,
        clock: Clock,
        config: NodeConfig,
        transactional_id: str,
        version: int,
        on_verified: Callable[[Verified], None],
    ) -> None:
        self._partitions = partitions
        self._verifier = verifier
        self._clock = clock
        self._transactional_id = transactional_id
        self._version = version
        self._on_verified = on_verified
        self._adds = version >= FIRST_VERSION_THAT_ADDS
        self._verified = Verified()
        self._retry_ms = config.add_partitions_to_txn_retry_backoff_ms
        self._retry_until_ms = clock.monotonic_ms() + min(config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms)

    def run(self, batches: Mapping[PartitionKey, RecordBatch]) -> None:
        """Ask about the partitions of these batches, which are all of one producer.

        Asked again while the transaction before is not complete, each time with new guards: the marker that ends it takes those before away.
        """
        now_ms = self._clock.wall_ms()
        verified = self._verified = Verified()
        for key, batch in batches.items():
            hosted = self._partitions.find(*key)
            if hosted is None:
                continue  # whoever appends says what is the matter
            guard = hosted.begin_verification(batch.producer_id, batch.producer_epoch, batch.base_sequence, now_ms, adds=self._adds)
            if isinstance(guard, Refusal):
                verified.refused[key] = guard
            elif guard is not None:
                verified.guards[key] = guard
        if not verified.guards:
            self._on_verified(verified)
            return
        batch = next(iter(batches.values()))

        def on_answer(errors: VerificationErrors) -> None:
            is_early = self._clock.monotonic_ms() < self._retry_until_ms
            if self._adds and is_early and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values():
                asyncio.get_running_loop().call_later(self._retry_ms / 1000, self.run, batches)
                return
            self._take(errors)

        self._verifier.ask(self._transactional_id, batch.producer_id, batch.producer_epoch, tuple(verified.guards), on_answer, adds=self._adds)

    def _take(self, errors: VerificationErrors) -> None:
        for key, error in errors.items():
            if error is not ErrorCode.NONE:
                self._verified.refused[key] = produce_refusal(error, self._version)
        self._on_verified(self._verified)


def produce_refusal(error: ErrorCode, version: int) -> Refusal:
    """Return what a producer is told of an error that a coordinator gave: one that a client of this version of Produce goes on from.

    NOT_ENOUGH_REPLICAS stands for whatever may be different soon, because it is tried again without a new look at the metadata.
    """
    if error is ErrorCode.PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_VERSION_WITH_ABORTABLE:
        error = ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.INVALID_TXN_STATE:
        return Refusal(error, NOT_ADDED)
    is_soon_over = error is ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_VERSION_THAT_ADDS
    return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, NOT_VERIFIED + error.name) if is_soon_over or error in WORTH_A_RETRY else Refusal(error)
