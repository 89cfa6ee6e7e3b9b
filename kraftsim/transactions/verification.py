"""Verifies with transaction coordinators that partitions are in a transaction, before its first
records are appended here.

The request is AddPartitionsToTxn, also to this broker itself; coordinators serve it to brokers
since 3.5.

Source: KIP-890, kafka.server.AddPartitionsToTxnManager.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, assert_never

from kraftsim.groups.rules_timing import partition_of
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_topic_names import TRANSACTION_STATE
from kraftsim.partitions.events_transactions import TransactionVerified
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
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

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
            await self._shell.world.yield_point("verified, and not appended")
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
