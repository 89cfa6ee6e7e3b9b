"""Sends WriteTxnMarkers to the leaders of a transaction's partitions: one request at a time to each
broker.

This broker itself is one of them and has no special path.
Source: TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, assert_never

from kraftsim.server.outbound import VersionRange
from kraftsim.server.pump import Pump
from kraftsim.server.shell import NodeShell
from kraftsim.transactions.broker_connections import AddressOf, BrokerConnections
from kraftsim.transactions.rules_markers import (
    Complete,
    Marker,
    MarkerEffect,
    MarkerErrors,
    MarkerQueue,
    PreparedTransaction,
    RetryLater,
    SendMarkers,
)
from kraftsim.transactions.rules_state import TopicPartition
from kraftsim.world.interface import YieldPoint
from protocol.errors import ErrorCode
from protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

RETRY_MS: Final = 50
KNOWN: Final = {int(code): code for code in ErrorCode}


class MarkerSender:
    """Executes the effects of the marker queue.

    `complete` writes the completion of a transaction.
    """

    def __init__(
        self,
        shell: NodeShell,
        queue: MarkerQueue,
        *,
        address_of: AddressOf,
        own_versions: Mapping[int, VersionRange],
        complete: Callable[[PreparedTransaction], None],
    ) -> None:
        self.queue = queue
        self.shell = shell
        self._complete = complete
        self._connections = BrokerConnections(
            shell, "txn-marker-sender", address_of=address_of, own_versions=own_versions
        )
        self._alarm: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._pump: Pump[MarkerEffect] = Pump(self._carry_out)

    def add(self, ended: PreparedTransaction) -> None:
        """Enqueue the markers of a transaction."""
        self.run(self.queue.add(ended))

    def run(self, effects: list[MarkerEffect]) -> None:
        """Execute effects of the queue."""
        if not self._is_closed:
            self._pump.run(effects)

    def close(self) -> None:
        """Stop, and close all connections."""
        self._stop()
        self._connections.close()

    def abort(self) -> None:
        """Close every connection at once, like a killed process."""
        self._stop()
        self._connections.abort()

    def _stop(self) -> None:
        self._is_closed = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _carry_out(self, effect: MarkerEffect) -> None:
        match effect:
            case SendMarkers():
                self.shell.tasks.spawn(
                    self._exchange(effect), f"markers to broker {effect.broker_id}"
                )
            case Complete():
                self._complete(effect.ended)
            case RetryLater():
                if self._alarm is None:
                    self._alarm = asyncio.get_running_loop().call_later(
                        RETRY_MS / 1000, self._on_alarm
                    )
            case _:
                assert_never(effect)

    def _on_alarm(self) -> None:
        self._alarm = None
        self.run(self.queue.retry())

    async def _exchange(self, effect: SendMarkers) -> None:
        """Send one request, and process the response or its loss."""
        try:
            connection = await self._connections.to(effect.broker_id)
            answer = await connection.request(request_of(effect.markers))
        except OSError:
            self._connections.leave(effect.broker_id)
            self.run(self.queue.on_lost(effect.broker_id))
            return
        assert isinstance(answer, WriteTxnMarkersResponse), "the response of WriteTxnMarkers"
        await self.shell.world.yield_point(YieldPoint.MARKERS_ANSWERED)
        await self.take(effect.broker_id, errors_of(answer))

    async def take(self, broker_id: int, errors: MarkerErrors) -> None:
        """Process a response; transactions that it completes are completed before any other task
        runs (KAFKA-10080).
        """
        self.run(self.queue.on_answer(broker_id, errors))


def request_of(markers: tuple[Marker, ...]) -> WriteTxnMarkersRequest:
    """Build the request for these markers."""
    return WriteTxnMarkersRequest(markers=[_row(marker) for marker in markers])


def errors_of(answer: WriteTxnMarkersResponse) -> MarkerErrors:
    """Return the result of each partition.

    Two markers of one producer may share a row or have one each.
    """
    found: dict[int, dict[TopicPartition, ErrorCode]] = {}
    for row in answer.markers:
        theirs = found.setdefault(row.producer_id, {})
        for topic in row.topics:
            for partition in topic.partitions:
                theirs[topic.name, partition.partition_index] = KNOWN.get(
                    partition.error_code, ErrorCode.UNKNOWN_SERVER_ERROR
                )
    return found


def _row(marker: Marker) -> WritableTxnMarker:
    topics: dict[str, WritableTxnMarkerTopic] = {}
    for topic, number in marker.partitions:
        topics.setdefault(topic, WritableTxnMarkerTopic(name=topic)).partition_indexes.append(
            number
        )
    ended = marker.ended
    return WritableTxnMarker(
        producer_id=ended.producer_id,
        producer_epoch=ended.producer_epoch,
        transaction_result=ended.is_commit,
        topics=list(topics.values()),
        coordinator_epoch=ended.coordinator_epoch,
        transaction_version=ended.transaction_version,
    )
