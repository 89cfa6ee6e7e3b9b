"""ApiVersions: the supported APIs, the supported features, and the finalized feature levels of the
cluster.

Source: KIP-35, KIP-584; a broker's features epoch is the last metadata offset it has applied.
"""

from typing import Protocol

from kraftsim.metadata.metadata_source import ClusterFeatures
from kraftsim.server.api_offer import (
    FIRST_VERSION_WITH_SOFTWARE_NAME,
    ApiOffer,
    is_named_properly,
)
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.serving_broker import ConfiguredBroker, TelemetryBroker
from protocol.api_keys import ApiKey
from protocol.messages.k18_api_versions import ApiVersionsRequest


class OfferingBroker(ConfiguredBroker, TelemetryBroker, Protocol):
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
    answer = broker.offer.answer(
        call, broker.features.finalized(), (broker.config.cluster_id, broker.config.node_id)
    )
    if broker.telemetry is not None and call.api_version >= FIRST_VERSION_WITH_SOFTWARE_NAME:
        asked = call.body
        assert isinstance(asked, ApiVersionsRequest), "dispatch decodes by API key"
        if is_named_properly(asked):
            broker.telemetry.on_api_versions(
                call.connection.number, asked.client_software_name, asked.client_software_version
            )
    return answer


HANDLER = Handler(key=ApiKey.API_VERSIONS, handle=handle)
