"""Apache Kafka 2.7: AlterIsr (KIP-497), versioned features (KIP-584), PRODUCER_FENCED for fenced
producers (KIP-588).

A delta of 2.6.   Source: the message definitions in the jars of 2.7.2.
"""

from kraftsim.releases import r2_6
from kraftsim.releases.release import WITHOUT_NUMBER
from kraftsim.releases.traits import ALTERED_PARTITIONS, FEATURE_ZNODE
from protocol.api_keys import ApiKey

RELEASE = r2_6.RELEASE.followed_by(
    name="2.7",
    patch="2.7.2",
    metadata_version=WITHOUT_NUMBER,
    metadata_version_name="2.7-IV2",
    supported_features={},
    broker_apis={},
    controller_apis={},
    zookeeper_apis={
        ApiKey.FETCH: (0, 12),
        ApiKey.CREATE_TOPICS: (0, 6),
        ApiKey.DELETE_TOPICS: (0, 5),
        ApiKey.INIT_PRODUCER_ID: (0, 4),
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 2),
        ApiKey.ADD_OFFSETS_TO_TXN: (0, 2),
        ApiKey.END_TXN: (0, 2),
        ApiKey.CREATE_PARTITIONS: (0, 3),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
        ApiKey.ALTER_PARTITION: (0, 0),
        ApiKey.UPDATE_FEATURES: (0, 0),
    },
    gained=(
        FEATURE_ZNODE,
        ALTERED_PARTITIONS,
    ),
)
