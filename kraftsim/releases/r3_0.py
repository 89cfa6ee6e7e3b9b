"""Apache Kafka 3.0: brokers obtain producer ids from the controller (KIP-730); tools to find
hanging transactions (KIP-664).

A delta of 2.8. Its KRaft, a preview without metadata.version up to 3.2, is not supported here.
Source: the message definitions in the jars of 3.0.2, a running 3.0.2.
"""

from kraftsim.releases import r2_8
from kraftsim.releases.traits import RPC_PRODUCER_IDS
from protocol.api_keys import ApiKey

RELEASE = r2_8.RELEASE.followed_by(
    name="3.0",
    patch="3.0.2",
    metadata_version=1,
    metadata_version_name="3.0-IV1",
    supported_features={},
    broker_apis={},
    controller_apis={},
    zookeeper_apis={
        ApiKey.LIST_OFFSETS: (0, 7),
        ApiKey.OFFSET_FETCH: (0, 8),
        ApiKey.FIND_COORDINATOR: (0, 4),
        ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
        ApiKey.LIST_TRANSACTIONS: (0, 0),
        ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0),
    },
    gained=(RPC_PRODUCER_IDS,),
)
