"""ApiVersions: the supported APIs, the supported features, and the finalized feature levels of the
cluster.

Source: KIP-35, KIP-584; a broker's features epoch is the last metadata offset it has applied.
"""

from typing import Protocol

from kraftsim.metadata.metadata_source import ClusterFeatures
from kraftsim.server.api_offer import ApiOffer
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.serving_broker import ConfiguredBroker
from protocol.api_keys import ApiKey


class OfferingBroker(ConfiguredBroker, Protocol):
    """A broker that reports its APIs and the features of the cluster."""

    @property
    def offer(self) -> ApiOffer:
        """The APIs that it serves."""
        ...

    @property
    def features(self) -> ClusterFeatures:
        """The finalized features."""
        ...


def handle(broker: OfferingBroker, call: Call) -> Answer:
    """Return NONE, INVALID_REQUEST for an invalid client software name, or REBOOTSTRAP_REQUIRED for
    a client of another node (since 4.4).
    """
    return broker.offer.answer(
        call, broker.features.finalized(), (broker.config.cluster_id, broker.config.node_id)
    )


HANDLER = Handler(key=ApiKey.API_VERSIONS, handle=handle)
