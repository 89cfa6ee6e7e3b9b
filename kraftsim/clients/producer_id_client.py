"""The producer-id client: allocates producer ids and uses none; the smallest workload that
exercises blocks, their exchange and their loss.

Source: KIP-98, KIP-730.
"""

import asyncio
from collections.abc import Sequence

from kraftsim.clients.cluster_connections import (
    Address,
    ClientIdentity,
    ClusterConnections,
    error_of,
)
from kraftsim.clients.events import ClientInitialized, ClientStarted, ClientStopped
from kraftsim.clients.producer import LIBRARY, TRANSACTION_TIMEOUT_MS, ProducerIdRefused
from kraftsim.world.interface import World
from protocol.errors import ErrorCode
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

RETRY_BACKOFF_MS = 100
"""Kafka's retry.backoff.ms."""


class InitProducerIdClient:
    """Sends InitProducerId to the brokers, round-robin. `ask` repeatedly, then `close`."""

    def __init__(
        self,
        world: World,
        *,
        bootstrap: Sequence[Address],
        client_id: str,
        retry_backoff_ms: int = RETRY_BACKOFF_MS,
        frame_events: bool = False,
    ) -> None:
        self.client_id = client_id
        self._world = world
        self._retry_backoff_ms = retry_backoff_ms
        self._connections = ClusterConnections(
            world,
            ClientIdentity(
                client_id=client_id, bootstrap=tuple(bootstrap), frame_events=frame_events
            ),
        )
        world.emit(ClientStarted(client_id=client_id, library=LIBRARY))

    async def ask(self, count: int) -> list[int]:
        """Return `count` new producer ids, each from the next broker.

        Retries without limit; raises ProducerIdRefused.
        """
        return [await self._ask_one() for _ in range(count)]

    async def close(self) -> None:
        """Stop the client."""
        self._connections.close()
        self._world.emit(ClientStopped(client_id=self.client_id, reason="closed"))
        self._world.flush_events()

    async def ask_once(self) -> ErrorCode:
        """Send requests to one broker after the other until there is a response, and return its
        error, or NONE.
        """
        return error_of((await self._until_answered()).error_code)

    async def _ask_one(self) -> int:
        while True:
            answer = await self._until_answered()
            error = error_of(answer.error_code)
            if error is ErrorCode.NONE:
                return answer.producer_id
            if not error.retriable:
                raise ProducerIdRefused(f"InitProducerId returned {error.name}")
            await asyncio.sleep(self._retry_backoff_ms / 1000)

    async def _until_answered(self) -> InitProducerIdResponse:
        """Send requests to one broker after the other until one responds."""
        while True:
            try:
                return await self._answer()
            except OSError:
                await asyncio.sleep(self._retry_backoff_ms / 1000)

    async def _answer(self) -> InitProducerIdResponse:
        """Send a request to the next broker, and emit an event for the returned id.

        Raises OSError.
        """
        connection = await self._connections.to_any()
        answer = await connection.request(
            InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
            )
        )
        assert isinstance(answer, InitProducerIdResponse), "the response of InitProducerId"
        if answer.error_code == ErrorCode.NONE:
            self._world.emit(
                ClientInitialized(
                    client_id=self.client_id,
                    producer_id=answer.producer_id,
                    producer_epoch=answer.producer_epoch,
                )
            )
        return answer
