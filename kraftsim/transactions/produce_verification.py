"""Verification of a transactional Produce request: which partitions the coordinator must verify,
and the errors of those that fail.

There is one verification for all partitions of a request, and only for those without an open
transaction of the producer. Since Produce 12 the coordinator adds the partitions, so that the
producer need not send AddPartitionsToTxn (KIP-890 part 2).

Source: KIP-890, kafka.server.ReplicaManager.{handleProduceAppend,
maybeSendPartitionsToTransactionCoordinator}.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.partitions.partitions import PartitionKey, Partitions
from kraftsim.server.config import NodeConfig
from kraftsim.transactions.rules_markers import VerificationErrors
from kraftsim.transactions.verification import Verifier
from kraftsim.world.interface import Clock
from protocol.errors import ErrorCode
from protocol.records.batches import RecordBatch

FIRST_VERSION_WITH_ABORTABLE: Final = 11
"""The first version of Produce with TRANSACTION_ABORTABLE."""
FIRST_VERSION_THAT_ADDS: Final = 12
NOT_ADDED: Final = "Partition was not added to the transaction"
NOT_VERIFIED: Final = (
    "Unable to verify the partition has been added to the transaction. Underlying error: "
)
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
    """The verification result of a request: the guards of the verified partitions, and the errors
    of the others.
    """

    guards: dict[PartitionKey, int] = field(default_factory=dict)
    refused: dict[PartitionKey, Refusal] = field(default_factory=dict)


class ProduceVerification:
    """One request of a transactional producer.

    `run` calls back, at once if no verification is required.
    """

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
        self._retry_until_ms = clock.monotonic_ms() + min(
            config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms
        )

    def run(self, batches: Mapping[PartitionKey, RecordBatch]) -> None:
        """Verify the partitions of these batches, which are all of one producer.

        Retried while the previous transaction is being completed, each time with new guards: its
        marker invalidates the earlier ones.
        """
        now_ms = self._clock.wall_ms()
        verified = self._verified = Verified()
        for key, batch in batches.items():
            hosted = self._partitions.find(*key)
            if hosted is None:
                continue  # the append returns the error
            guard = hosted.begin_verification(
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                now_ms,
                adds=self._adds,
            )
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

        self._verifier.ask(
            self._transactional_id,
            batch.producer_id,
            batch.producer_epoch,
            tuple(verified.guards),
            on_answer,
            adds=self._adds,
        )

    def _take(self, errors: VerificationErrors) -> None:
        for key, error in errors.items():
            if error is not ErrorCode.NONE:
                self._verified.refused[key] = produce_refusal(error, self._version)
        self._on_verified(self._verified)


def produce_refusal(error: ErrorCode, version: int) -> Refusal:
    """Map an error of the coordinator to one that a client of this version of Produce can handle.

    NOT_ENOUGH_REPLICAS stands for transient errors, because clients retry it without refreshing
    their metadata.
    """
    if error is ErrorCode.PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_VERSION_WITH_ABORTABLE:
        error = ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.INVALID_TXN_STATE:
        return Refusal(error, NOT_ADDED)
    is_soon_over = error is ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_VERSION_THAT_ADDS
    return (
        Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, NOT_VERIFIED + error.name)
        if is_soon_over or error in WORTH_A_RETRY
        else Refusal(error)
    )
