"""Apache Kafka 3.1: Fetch with topic ids (KIP-516).

A delta of 3.0.   Source: the message definitions in the jars of 3.1.2.
"""

from kraftsim.releases import r3_0
from protocol.api_keys import ApiKey

RELEASE = r3_0.RELEASE.followed_by(
    name="3.1",
    patch="3.1.2",
    metadata_version=2,
    metadata_version_name="3.1-IV0",
    supported_features={},
    broker_apis={},
    controller_apis={},
    zookeeper_apis={
        ApiKey.FETCH: (0, 13),
        ApiKey.METADATA: (0, 12),
    },
    gained=(),
)
