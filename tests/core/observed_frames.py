"""A client's conversation with brokers in frames, for tests of the observer: requests and responses
as bytes, and the events that the observer emits.
"""

from typing import TypeVar

from kraftsim.clients.rules_observed_frames import ClientObserver, ObservedConnection
from kraftsim.events.event import Event
from protocol.api_keys import ApiKey
from protocol.messages.k00_produce import (
    ACKS_ALL,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from protocol.records.batches import build_batch
from protocol.records.record import Compression, Record
from protocol.requests import request_chunks, response_chunks
from protocol.schema import Message

E = TypeVar("E", bound=Event)
CLIENT_ID = "shop"
TOPIC = "orders"


class Talk:
    """One process that is observed. Connections are made at their first use; bytes come in pieces
    of `piece_bytes`, or whole.
    """

    def __init__(self, *, piece_bytes: int = 1 << 20) -> None:
        self.events: list[Event] = []
        self.observer = ClientObserver("app-1", self.events.append)
        self.connections: dict[str, ObservedConnection] = {}
        self._piece_bytes = piece_bytes
        self._correlation_id = 0

    def connection(self, peer: str = "b1") -> ObservedConnection:
        """Return the connection to a broker."""
        found = self.connections.get(peer)
        if found is None:
            found = self.connections[peer] = self.observer.connect(peer)
        return found

    def lose(self, peer: str = "b1") -> None:
        """Lose a connection; the next request opens another."""
        del self.connections[peer]

    def send(
        self,
        api: ApiKey,
        version: int,
        body: Message,
        *,
        peer: str = "b1",
        client_id: str | None = CLIENT_ID,
    ) -> int:
        """Send a request; return its correlation id."""
        self._correlation_id += 1
        chunks = request_chunks(api, version, self._correlation_id, client_id, body)
        for piece in self._pieces(b"".join(chunks)):
            self.connection(peer).sent(piece)
        return self._correlation_id

    def answer(
        self, api: ApiKey, version: int, body: Message, correlation_id: int, *, peer: str = "b1"
    ) -> None:
        """Receive a response."""
        chunks = response_chunks(api, version, correlation_id, body)
        for piece in self._pieces(b"".join(chunks)):
            self.connection(peer).received(piece)

    def _pieces(self, data: bytes) -> list[bytes]:
        step = self._piece_bytes
        return [data[start : start + step] for start in range(0, len(data), step)]

    def exchange(
        self, api: ApiKey, version: int, request: Message, response: Message, *, peer: str = "b1"
    ) -> None:
        """Send a request and receive its response."""
        self.answer(api, version, response, self.send(api, version, request, peer=peer), peer=peer)

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of a kind so far."""
        return [event for event in self.events if isinstance(event, kind)]

    # What producers say
    # ----------------------------------------------------------------------------------------------

    def initialize(
        self, producer_id: int, producer_epoch: int = 0, transactional_id: str | None = None
    ) -> None:
        """Obtain a producer id."""
        self.exchange(
            ApiKey.INIT_PRODUCER_ID,
            4,
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000),
            InitProducerIdResponse(producer_id=producer_id, producer_epoch=producer_epoch),
        )

    def end(self, identity: tuple[int, int], *, commit: bool, error_code: int | None = 0) -> None:
        """Send EndTxn; without an error code no response comes."""
        correlation_id = self.send(
            ApiKey.END_TXN,
            3,
            EndTxnRequest(
                transactional_id="t",
                producer_id=identity[0],
                producer_epoch=identity[1],
                committed=commit,
            ),
        )
        if error_code is not None:
            self.answer(ApiKey.END_TXN, 3, EndTxnResponse(error_code=error_code), correlation_id)

    def produce(
        self,
        data: bytes,
        *,
        acks: int = ACKS_ALL,
        version: int = 9,
        transactional_id: str | None = None,
        topic: str = TOPIC,
        topic_id: bytes | None = None,
        peer: str = "b1",
    ) -> int:
        """Send one batch to partition 0; return the correlation id."""
        named = TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=0, records=data)]
        )
        if topic_id is not None:
            named.name, named.topic_id = "", topic_id
        request = ProduceRequest(
            transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=[named]
        )
        return self.send(ApiKey.PRODUCE, version, request, peer=peer)

    def produced(
        self,
        correlation_id: int,
        base_offset: int,
        *,
        error_code: int = 0,
        version: int = 9,
        topic_id: bytes | None = None,
        peer: str = "b1",
    ) -> None:
        """Receive the result of the batch."""
        result = PartitionProduceResponse(index=0, error_code=error_code, base_offset=base_offset)
        named = TopicProduceResponse(name=TOPIC, partition_responses=[result])
        if topic_id is not None:
            named.name, named.topic_id = "", topic_id
        self.answer(
            ApiKey.PRODUCE, version, ProduceResponse(responses=[named]), correlation_id, peer=peer
        )


def batch(
    *keys: str | None,
    producer: tuple[int, int] = (-1, -1),
    sequence: int = -1,
    transactional: bool = False,
    compression: Compression = Compression.NONE,
    value: bytes | None = b"v",
    base_offset: int = 0,
) -> bytes:
    """Return a batch with these keys."""
    return build_batch(
        [Record(key=None if key is None else key.encode(), value=value) for key in keys],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        transactional=transactional,
        compression=compression,
        base_offset=base_offset,
    )
