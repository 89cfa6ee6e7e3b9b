"""Apache Kafka 2.6: client quota APIs (KIP-546).

A delta of 2.5.   Source: the message definitions in the jars of 2.6.3.
"""

from kraftsim.releases import r2_5
from kraftsim.releases.release import WITHOUT_NUMBER
from protocol.api_keys import ApiKey

RELEASE = r2_5.RELEASE.followed_by(
    name="2.6",
    patch="2.6.3",
    metadata_version=WITHOUT_NUMBER,
    metadata_version_name="2.6-IV0",
    supported_features={},
    broker_apis={},
    controller_apis={},
    zookeeper_apis={
        ApiKey.STOP_REPLICA: (0, 3),
        ApiKey.LIST_GROUPS: (0, 4),
        ApiKey.DELETE_RECORDS: (0, 2),
        ApiKey.DESCRIBE_CONFIGS: (0, 3),
        ApiKey.DESCRIBE_LOG_DIRS: (0, 2),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 0),
        ApiKey.ALTER_CLIENT_QUOTAS: (0, 0),
    },
    gained=(),
)
