"""Verifies with transaction coordinators that partitions are in a transaction, before its first
records are appended here.

The request is AddPartitionsToTxn, also to this broker itself; coordinators serve it to brokers
since 3.5.

Source: KIP-890, kafka.server.AddPartitionsToTxnManager.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

from kraftsim.core.decision import Refusal
from kraftsim.groups.rules_timing import partition_of
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_topic_names import TRANSACTION_STATE
from kraftsim.partitions.events_transactions import TransactionVerified
from kraftsim.partitions.partitions import PartitionKey, Partitions
from kraftsim.server.config import NodeConfig
from kraftsim.server.outbound import NoCommonVersion, VersionRange
from kraftsim.server.pump import Pump
from kraftsim.server.shell import NodeShell
from kraftsim.transactions.broker_connections import BrokerConnections
from kraftsim.transactions.rules_markers import (
    Ask,
    Question,
    VerificationEffect,
    VerificationErrors,
    VerificationQueue,
    VerificationResult,
)
from kraftsim.transactions.rules_state import TopicPartition
from kraftsim.world.interface import Clock, YieldPoint
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from protocol.records.batches import RecordBatch

FIRST_VERSION_OF_BROKERS: Final = 4
"""The first version of AddPartitionsToTxn for brokers; in earlier ones a producer adds partitions
to its own transaction.
"""
NO_LEADER: Final = -1
OnVerified = Callable[[VerificationErrors], None]


class Verifier:
    """Returns an error code for each partition: the coordinator's, COORDINATOR_NOT_AVAILABLE, or
    NETWORK_EXCEPTION.
    """

    def __init__(
        self,
        shell: NodeShell,
        image: Callable[[], MetadataImage],
        *,
        own_versions: Mapping[int, VersionRange],
    ) -> None:
        self._shell = shell
        self._image = image
        self._queue = VerificationQueue()
        self._pump: Pump[VerificationEffect] = Pump(self._carry_out)
        self._waiters: dict[int, OnVerified] = {}
        self._next_waiter = 0
        self._connections = BrokerConnections(
            shell, "add-partitions-to-txn", address_of=self._address_of, own_versions=own_versions
        )

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool = False,
    ) -> VerificationErrors:
        """Wait until every partition is verified; with `adds`, until it is added."""
        answered: asyncio.Future[VerificationErrors] = asyncio.get_running_loop().create_future()

        def settle(errors: VerificationErrors) -> None:
            if not answered.done():
                answered.set_result(errors)

        self.ask(transactional_id, producer_id, producer_epoch, partitions, settle, adds=adds)
        return await answered

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        on_verified: OnVerified,
        *,
        adds: bool = False,
    ) -> None:
        """The same with a callback, which may be called at once."""
        waiter = self._next_waiter
        self._next_waiter += 1
        verification = Question(
            waiter=waiter,
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=tuple(partitions),
            adds=adds,
        )
        coordinator_id = self._coordinator_of(transactional_id)
        if self._address_of(coordinator_id) is None:
            on_verified(verification.all_with(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self._waiters[waiter] = on_verified
        self._pump.run(self._queue.add(coordinator_id, verification))

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    def abort(self) -> None:
        """Close every connection at once, like a killed process."""
        self._connections.abort()

    # Look-up
    # ----------------------------------------------------------------------------------------------

    def _coordinator_of(self, transactional_id: str) -> int:
        """Return the coordinator of a transactional id; -1 if there is none."""
        image = self._image()
        topic = image.topic(TRANSACTION_STATE)
        if topic is None:
            return NO_LEADER
        registered = image.partition(
            TRANSACTION_STATE, partition_of(transactional_id, len(topic.partitions))
        )
        return NO_LEADER if registered is None else registered.leader

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        registered = self._image().broker(broker_id)
        if registered is None or registered.fenced:
            return None
        found = registered.listener(self._shell.config.inter_broker_listener_name)
        return None if found is None else (found.host, found.port)

    # Requests
    # ----------------------------------------------------------------------------------------------

    def _carry_out(self, effect: VerificationEffect) -> None:
        match effect:
            case Ask():
                self._shell.tasks.spawn(
                    self._exchange(effect), f"verification by broker {effect.coordinator_id}"
                )
            case VerificationResult():
                self._complete(effect)
            case _:
                assert_never(effect)

    def _complete(self, verified: VerificationResult) -> None:
        verification = verified.question
        errors = sorted({int(error) for error in verified.errors.values()} - {0})
        self._shell.world.emit(
            TransactionVerified(
                transactional_id=verification.transactional_id,
                producer_id=verification.producer_id,
                producer_epoch=verification.producer_epoch,
                partitions=",".join(
                    f"{topic}-{number}" for topic, number in verification.partitions
                ),
                adds=verification.adds,
                error_code=errors[0] if errors else 0,
            )
        )
        self._waiters.pop(verification.waiter)(verified.errors)

    async def _exchange(self, ask: Ask) -> None:
        """Send one request, and process the response or its loss."""
        try:
            answer = await self._answer_of(ask)
        except NoCommonVersion:
            effects = self._queue.on_answer(
                ask.coordinator_id, {}
            )  # the coordinator is too old to verify
        except OSError:
            self._connections.leave(ask.coordinator_id)
            effects = self._queue.on_error(ask.coordinator_id, ErrorCode.NETWORK_EXCEPTION)
        else:
            await self._shell.world.yield_point(YieldPoint.TRANSACTION_VERIFIED)
            effects = self._process(ask, answer)
        self._pump.run(effects)

    def _process(self, ask: Ask, answer: AddPartitionsToTxnResponse) -> list[VerificationEffect]:
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.NONE:
            return self._queue.on_answer(ask.coordinator_id, errors_of(answer))
        is_ours = (
            error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        )  # concerns this broker's principal, and is no error that a producer handles
        return self._queue.on_error(
            ask.coordinator_id, ErrorCode.INVALID_TXN_STATE if is_ours else error
        )

    async def _answer_of(self, ask: Ask) -> AddPartitionsToTxnResponse:
        connection = await self._connections.to(ask.coordinator_id)
        version = connection.version_for(ApiKey.ADD_PARTITIONS_TO_TXN)
        if version < FIRST_VERSION_OF_BROKERS:
            raise NoCommonVersion(
                f"broker {ask.coordinator_id} does not support verification of transaction "
                "partitions"
            )
        answer = await connection.request(request_of(ask.questions), api_version=version)
        assert isinstance(answer, AddPartitionsToTxnResponse), "the response of AddPartitionsToTxn"
        return answer


def request_of(questions: Sequence[Question]) -> AddPartitionsToTxnRequest:
    """Build the request for these verifications."""
    return AddPartitionsToTxnRequest(
        transactions=[_row(verification) for verification in questions]
    )


def errors_of(answer: AddPartitionsToTxnResponse) -> dict[str, dict[TopicPartition, ErrorCode]]:
    """Return the result of each partition, by transactional id."""
    return {
        row.transactional_id: {
            (topic.name, each.partition_index): ErrorCode(each.partition_error_code)
            for topic in row.topic_results
            for each in topic.results_by_partition
        }
        for row in answer.results_by_transaction
    }


def _row(verification: Question) -> AddPartitionsToTxnTransaction:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for topic, number in verification.partitions:
        topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic)).partitions.append(number)
    return AddPartitionsToTxnTransaction(
        transactional_id=verification.transactional_id,
        producer_id=verification.producer_id,
        producer_epoch=verification.producer_epoch,
        verify_only=not verification.adds,
        topics=list(topics.values()),
    )


# --------------------------------------------------------------------------------------------------
# Verification of a transactional Produce request: which partitions the coordinator must verify, and
# the errors of those that fail
#
# There is one verification for all partitions of a request, and only for those without an open
# transaction of the producer. Since Produce 12 the coordinator adds the partitions, so that the
# producer need not send AddPartitionsToTxn (KIP-890 part 2).
#
# Source: KIP-890, kafka.server.ReplicaManager.{handleProduceAppend,
# maybeSendPartitionsToTransactionCoordinator}.

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
