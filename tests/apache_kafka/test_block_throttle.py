"""Apache Kafka's controller throttles AllocateProducerIds above request_percentage, and does not
count error responses.

Source: KIP-124.
"""

import pytest

from kraftsim.conformance.peer import Peer
from protocol.errors import ErrorCode
from protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from tests.apache_kafka.harness import ApacheKafka
from tests.cluster.broker_client import broker_client
from tests.cluster.test_block_throttle import limit, looped

pytestmark = pytest.mark.interop
EPOCHS = range(300)
PERCENT = 0.01


def epoch_of(controller: Peer) -> int:
    """The epoch of broker 1: the offset of its registration, which no response contains."""
    for epoch in EPOCHS:
        answer = controller.ask(
            AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch),
            0,
            AllocateProducerIdsResponse,
        )
        if answer.error_code == ErrorCode.NONE:
            return epoch
    raise AssertionError("broker 1 is not registered")


def test_apache_kafka_throttles_block_requests_as_kraftsim_does(apache_kafka: ApacheKafka) -> None:
    """730-12: what the KIP calls the existing throttle.

    `tests/cluster/test_block_throttle.py` tests kraftsim the same way.
    """
    with (
        broker_client(apache_kafka.bootstrap) as broker,
        Peer.at(apache_kafka.controller) as controller,
    ):
        epoch = epoch_of(controller)
        unlimited = looped(controller, epoch)
        limit(broker.peer, PERCENT)
        try:
            limited = looped(controller, epoch)
            refused = looped(controller, epoch + 1, error=ErrorCode.STALE_BROKER_EPOCH)
        finally:
            limit(broker.peer, None)
    assert not unlimited.silenced and not refused.silenced
    assert limited.silenced and limited.blocks * 3 < unlimited.blocks
