"""Kafka's existing throttle for a broker that requests producer-id blocks in a loop:
request_percentage on the controller.

Over sockets, because it measures request handling time, which is zero in simulation.
Source: KIP-124, KIP-730 (rate limiting).
"""

import time
from dataclasses import dataclass

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.conformance.peer import CLIENT_ID, Peer
from protocol.errors import ErrorCode
from protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    QuotaAlteration,
)
from protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from tests.cluster.broker_client import broker_client
from tests.cluster.running import logged_events
from tools.claims.recording import Figures

PERCENT = 0.05
SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Looped:
    """The responses to a client in a loop: the number of blocks, and of those with a throttle
    time.
    """

    blocks: int
    silenced: int

    @property
    def outcome(self) -> str:
        """Return whether it was sometimes throttled."""
        return "silenced" if self.silenced else "served"


def looped(controller: Peer, broker_epoch: int, *, error: ErrorCode = ErrorCode.NONE) -> Looped:
    """Send requests as broker 1 for some time, as fast as possible."""
    blocks = silenced = 0
    ends_at = time.monotonic() + SECONDS
    while time.monotonic() < ends_at:
        answer = controller.ask(
            AllocateProducerIdsRequest(broker_id=1, broker_epoch=broker_epoch),
            0,
            AllocateProducerIdsResponse,
        )
        assert answer.error_code == error
        blocks += 1
        silenced += answer.throttle_time_ms > 0
    return Looped(blocks, silenced)


def limit(broker: Peer, percent: float | None) -> None:
    """Set the request_percentage of the client id, or delete it."""
    entity = [EntityData(entity_type="client-id", entity_name=CLIENT_ID)]
    alteration = QuotaAlteration(
        entity=entity,
        ops=[OpData(key="request_percentage", value=percent or 0.0, remove=percent is None)],
    )
    answer = broker.ask(
        AlterClientQuotasRequest(entries=[alteration]), 1, AlterClientQuotasResponse
    )
    assert answer.entries[0].error_code == ErrorCode.NONE


@pytest.mark.kraftsim(brokers=1)
def test_a_client_above_request_percentage_is_served_then_throttled(
    embedded_cluster: EmbeddedCluster, figures: Figures
) -> None:
    """730-12: blocks are never refused because of the quota, as in Apache Kafka; error responses do
    not count.
    """
    node = embedded_cluster.spec.node(embedded_cluster.spec.controller_names[0])
    with (
        broker_client(embedded_cluster.bootstrap) as broker,
        Peer.at(f"{node.host}:{node.port}") as controller,
    ):
        broker.fresh_producer_id()
        epoch = logged_events(embedded_cluster.directory, "BrokerRegistered", node.name)[0][
            "broker_epoch"
        ]
        unlimited = looped(controller, epoch)
        limit(broker.peer, PERCENT)
        limited = looped(controller, epoch)
        refused = looped(controller, epoch + 1, error=ErrorCode.STALE_BROKER_EPOCH)
    assert not unlimited.silenced and not refused.silenced
    assert (
        limited.silenced
        and limited.blocks * 3 < unlimited.blocks
        and limited.blocks * 3 < refused.blocks
    )
    figures(
        with_quota=limited.outcome,
        without_quota=unlimited.outcome,
        errors_with_quota=refused.outcome,
        is_a_third=limited.blocks * 3 < unlimited.blocks,
        request_percentage=PERCENT,
    )
