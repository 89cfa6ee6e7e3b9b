"""The transactions of an exact client: each call sends one request to the coordinator, in a given
version.

Requests are retried while the coordinator loads, moves, or completes the previous transaction; any
other answer is returned.
Source: KIP-98, KIP-890.
"""

import asyncio
from typing import Final

from kraftsim.clients.cluster_connections import ClusterConnections, find_coordinator
from kraftsim.clients.rules_transaction_steps import CoordinatorKind
from protocol.errors import ErrorCode
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from protocol.schema import Message

INIT_VERSION, ADD_VERSION = 4, 3
BUMPS_SINCE: Final = 5
"""The version of EndTxn since which each transaction bumps the epoch."""
RETRY_SECONDS: Final = 0.1
TRANSACTION_MS: Final = 60_000
BUSY: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


class ExactTransactionalId:
    """One transactional id, and the partition that its transactions write to."""

    def __init__(
        self, connections: ClusterConnections, name: str, partition: tuple[str, int]
    ) -> None:
        self._connections = connections
        self.name = name
        self._partition = partition

    async def take(self) -> tuple[int, int]:
        """Initialise the transactional id, once its previous transaction has ended; return the
        producer id and epoch.
        """
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=TRANSACTION_MS
        )
        while True:
            answer = await self._ask(request, INIT_VERSION)
            assert isinstance(answer, InitProducerIdResponse), "InitProducerId was asked"
            if not await self._must_retry(answer.error_code):
                return answer.producer_id, answer.producer_epoch

    async def add(self, producer: tuple[int, int]) -> None:
        """Add the partition to the transaction, as clients without transaction.version 2 do."""
        topic, partition = self._partition
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        while True:
            answer = await self._ask(request, ADD_VERSION)
            assert isinstance(answer, AddPartitionsToTxnResponse), "AddPartitionsToTxn was asked"
            if not await self._must_retry(
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ):
                return

    async def end(
        self, producer: tuple[int, int], *, commits: bool, version: int
    ) -> tuple[int, int]:
        """End the transaction; return the producer id and epoch of the next one."""
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commits,
        )
        while True:
            answer = await self._ask(request, version)
            assert isinstance(answer, EndTxnResponse), "EndTxn was asked"
            if not await self._must_retry(answer.error_code):
                return (
                    (answer.producer_id, answer.producer_epoch)
                    if version >= BUMPS_SINCE
                    else producer
                )

    async def _must_retry(self, error_code: int) -> bool:
        """Return whether the request must be retried, after a pause.

        Raises RuntimeError for any other error: the request was valid.
        """
        if error_code in BUSY:
            await asyncio.sleep(RETRY_SECONDS)
            return True
        if error_code != ErrorCode.NONE:
            raise RuntimeError(
                f"the coordinator of {self.name} answered {ErrorCode(error_code).name}"
            )
        return False

    async def _ask(self, request: Message, version: int) -> Message:
        while True:
            try:
                broker_id = await find_coordinator(
                    self._connections, CoordinatorKind.TRANSACTION, self.name
                )
                if not isinstance(broker_id, ErrorCode):
                    return await (await self._connections.to_broker(broker_id)).request(
                        request, api_version=version
                    )
            except OSError:
                pass  # asked again
            await asyncio.sleep(RETRY_SECONDS)
