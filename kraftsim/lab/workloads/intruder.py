"""A client that breaks the protocol: it writes into a transaction under an epoch that was never
allocated to it, and ends transactions with WriteTxnMarkers as an administrator may.

Source: KIP-664 (kafka-transactions.sh abort), KIP-890.
"""

from kraftsim.clients.cluster_connections import ClientIdentity, ClusterConnections, error_of
from kraftsim.clients.rules_producer_steps import ProducerIdentity
from kraftsim.cluster.scenario import ClientHost
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.records.batches import build_batch
from protocol.records.record import Record

EXPLICIT_PRODUCE = 11
ADMIN_COORDINATOR_EPOCH = 0


class Intruder:
    """Writes to the leader of one partition."""

    def __init__(self, client_host: ClientHost, topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition
        identity = ClientIdentity(
            client_id=client_host.name, bootstrap=tuple(client_host.bootstrap)
        )
        self._connections = ClusterConnections(client_host.world, identity)

    async def write(self, transactional_id: str, identity: ProducerIdentity) -> ErrorCode:
        """Write one record into a transaction, as an older client does; return the leader's answer.

        Raises OSError kinds.
        """
        batch = build_batch(
            [Record(0, 0, b"intruder", b"", ())],
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        data = TopicProduceData(
            name=self._topic,
            partition_data=[PartitionProduceData(index=self._partition, records=batch)],
        )
        request = ProduceRequest(
            transactional_id=transactional_id, acks=-1, timeout_ms=5000, topic_data=[data]
        )
        connection = await self._connections.to_broker(await self._leader())
        answer = await connection.request(request, api_version=EXPLICIT_PRODUCE)
        assert isinstance(answer, ProduceResponse), "Produce was asked"
        return error_of(answer.responses[0].partition_responses[0].error_code)

    async def abort(self, identity: ProducerIdentity) -> ErrorCode:
        """End a transaction with WriteTxnMarkers; return the leader's answer.

        Raises OSError kinds.
        """
        topics = [WritableTxnMarkerTopic(name=self._topic, partition_indexes=[self._partition])]
        marker = WritableTxnMarker(
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            transaction_result=False,
            topics=topics,
        )
        marker.coordinator_epoch = ADMIN_COORDINATOR_EPOCH
        connection = await self._connections.to_broker(await self._leader())
        answer = await connection.request(WriteTxnMarkersRequest(markers=[marker]))
        assert isinstance(answer, WriteTxnMarkersResponse), "WriteTxnMarkers was asked"
        return error_of(answer.markers[0].topics[0].partitions[0].error_code)

    def close(self) -> None:
        """End the client."""
        self._connections.close()

    async def _leader(self) -> int:
        found = await self._connections.metadata([self._topic])
        for each in found.topics[0].partitions:
            if each.partition_index == self._partition:
                return each.leader_id
        raise ConnectionError(f"a broker knows no partition {self._partition} of {self._topic} yet")
