"""AllocateProducerIds (67): spoken between brokers and controllers, and to nobody else.

Source: KIP-730; AllocateProducerIdsRequest.json (listeners: controller).
"""

from kraftsim.conformance.expect import expect
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest

REQUIREMENTS = Requirements("allocate-producer-ids")


@REQUIREMENTS.that("AllocateProducerIds on a broker's listener closes the connection", source="AllocateProducerIdsRequest.json: listeners")
def closed_on_a_brokers_listener(target: Target) -> None:
    expect(ApiKey.ALLOCATE_PRODUCER_IDS not in target.ranges(), "a broker advertises AllocateProducerIds")
    with target.peer() as peer:
        peer.send(AllocateProducerIdsRequest(broker_id=1, broker_epoch=0), 0)
        expect(peer.is_closed_by_node(), "the connection stays open, or something is answered")
