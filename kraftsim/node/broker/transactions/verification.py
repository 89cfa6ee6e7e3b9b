"""Asks the coordinators of transactions whether partitions are in them, before the first records of a transaction are written here.

This broker itself is asked like any other: AddPartitionsToTxn, whose answer every release since 3.5 knows to give.

Source: KIP-890, kafka.server.AddPartitionsToTxnManager.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, assert_never

from kraftsim.core.groups.placement import partition_of
from kraftsim.core.metadata.image import MetadataImage
from kraftsim.core.transactions.transaction_entry import TopicPartition
from kraftsim.core.transactions.verification_queue import Ask, Effect, Question, Told, VerificationErrors, VerificationQueue
from kraftsim.events.partition_transactions import TransactionVerified
from kraftsim.node.broker.internal_topics import TRANSACTION_STATE
from kraftsim.node.broker.transactions.broker_connections import BrokerConnections
from kraftsim.node.outbound import NoCommonVersion, VersionRange
from kraftsim.node.shell import NodeShell
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

FIRST_VERSION_OF_BROKERS: Final = 4
"""Of AddPartitionsToTxn: before it producers asked for one transaction each."""
NO_LEADER: Final = -1
OnVerified = Callable[[VerificationErrors], None]


class Verifier:
    """Answers with a code for each partition: what the coordinator said, or COORDINATOR_NOT_AVAILABLE, or NETWORK_EXCEPTION."""

    def __init__(self, shell: NodeShell, image: Callable[[], MetadataImage], *, own_versions: Mapping[int, VersionRange]) -> None:
        self._shell = shell
        self._image = image
        self._queue = VerificationQueue()
        self._waiters: dict[int, OnVerified] = {}
        self._next_waiter = 0
        self._connections = BrokerConnections(shell, "add-partitions-to-txn", address_of=self._address_of, own_versions=own_versions)

    async def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition], *, adds: bool = False
    ) -> VerificationErrors:
        """Wait until it is known of every partition whether it is in the transaction; with `adds`, whether it is in it now."""
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
        """Do the same, and call back; maybe at once."""
        waiter = self._next_waiter
        self._next_waiter += 1
        question = Question(
            waiter=waiter,
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=tuple(partitions),
            adds=adds,
        )
        coordinator_id = self._coordinator_of(transactional_id)
        if self._address_of(coordinator_id) is None:
            on_verified(question.all_with(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self._waiters[waiter] = on_verified
        self._carry_out(self._queue.add(coordinator_id, question))

    def close(self) -> None:
        """Ask nobody any more."""
        self._connections.close()

    def abort(self) -> None:
        """Drop every connection as a process that dies."""
        self._connections.abort()

    # Finding -------------------------------------------------------------------------------------------------------------------------------

    def _coordinator_of(self, transactional_id: str) -> int:
        """Return the broker that leads the partition of a transactional id; -1 while nobody does."""
        image = self._image()
        topic = image.topic(TRANSACTION_STATE)
        if topic is None:
            return NO_LEADER
        registered = image.partition(TRANSACTION_STATE, partition_of(transactional_id, len(topic.partitions)))
        return NO_LEADER if registered is None else registered.leader

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        registered = self._image().broker(broker_id)
        if registered is None or registered.fenced:
            return None
        found = registered.listener(self._shell.config.inter_broker_listener_name)
        return None if found is None else (found.host, found.port)

    # Asking --------------------------------------------------------------------------------------------------------------------------------

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Ask():
                    self._shell.tasks.spawn(self._exchange(effect), f"verification by broker {effect.coordinator_id}")
                case Told():
                    self._tell(effect)
                case _:
                    assert_never(effect)

    def _tell(self, told: Told) -> None:
        question = told.question
        errors = sorted({int(error) for error in told.errors.values()} - {0})
        self._shell.world.note(
            TransactionVerified(
                transactional_id=question.transactional_id,
                producer_id=question.producer_id,
                producer_epoch=question.producer_epoch,
                partitions=",".join(f"{topic}-{number}" for topic, number in question.partitions),
                adds=question.adds,
                error_code=errors[0] if errors else 0,
            )
        )
        self._waiters.pop(question.waiter)(told.errors)

    async def _exchange(self, ask: Ask) -> None:
        """Ask one coordinator, and take its answer, or that there is none."""
        try:
            answer = await self._answer_of(ask)
        except NoCommonVersion:
            effects = self._queue.on_answer(ask.coordinator_id, {})  # it cannot verify: nobody did when it was built
        except OSError:
            self._connections.leave(ask.coordinator_id)
            effects = self._queue.on_error(ask.coordinator_id, ErrorCode.NETWORK_EXCEPTION)
        else:
            await self._shell.world.breathe("verified, and not appended")
            effects = self._judge(ask, answer)
        self._carry_out(effects)

    def _judge(self, ask: Ask, answer: AddPartitionsToTxnResponse) -> list[Effect]:
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.NONE:
            return self._queue.on_answer(ask.coordinator_id, errors_of(answer))
        is_ours = error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # what this broker may not do is nothing that a producer understands
        return self._queue.on_error(ask.coordinator_id, ErrorCode.INVALID_TXN_STATE if is_ours else error)

    async def _answer_of(self, ask: Ask) -> AddPartitionsToTxnResponse:
        connection = await self._connections.to(ask.coordinator_id)
        version = connection.version_for(ApiKey.ADD_PARTITIONS_TO_TXN)
        if version < FIRST_VERSION_OF_BROKERS:
            raise NoCommonVersion(f"broker {ask.coordinator_id} cannot be asked about partitions of transactions")
        answer = await connection.request(request_of(ask.questions), api_version=version)
        assert isinstance(answer, AddPartitionsToTxnResponse), "AddPartitionsToTxn was asked"
        return answer


def request_of(questions: Sequence[Question]) -> AddPartitionsToTxnRequest:
    """Return the request that asks about transactions."""
    return AddPartitionsToTxnRequest(transactions=[_row(question) for question in questions])


def errors_of(answer: AddPartitionsToTxnResponse) -> dict[str, dict[TopicPartition, ErrorCode]]:
    """Return what was said of each partition, by transactional id."""
    return {
        row.transactional_id: {
            (topic.name, each.partition_index): ErrorCode(each.partition_error_code)
            for topic in row.topic_results
            for each in topic.results_by_partition
        }
        for row in answer.results_by_transaction
    }


def _row(question: Question) -> AddPartitionsToTxnTransaction:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for topic, number in question.partitions:
        topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic)).partitions.append(number)
    return AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer_id,
        producer_epoch=question.producer_epoch,
        verify_only=not question.adds,
        topics=list(topics.values()),
    )
