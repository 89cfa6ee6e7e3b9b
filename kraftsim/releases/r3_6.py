"""Apache Kafka 3.6: InitProducerId never waits for a block, leaders verify transactional batches,
delegation tokens in KRaft.

A delta of 3.5.   Source: the message definitions in the jars of 3.6.2.
"""

from kraftsim.releases import r3_5
from kraftsim.releases.traits import (
    METADATA_TRANSACTIONS,
    PREFETCHED_PRODUCER_IDS,
    VERIFIED_TRANSACTIONS,
)
from protocol.api_keys import ApiKey

RELEASE = r3_5.RELEASE.followed_by(
    name="3.6",
    patch="3.6.2",
    metadata_version=14,
    metadata_version_name="3.6-IV2",
    supported_features={"metadata.version": (1, 14)},
    broker_apis={
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 4),
        ApiKey.CREATE_DELEGATION_TOKEN: (0, 3),
        ApiKey.RENEW_DELEGATION_TOKEN: (0, 2),
        ApiKey.EXPIRE_DELEGATION_TOKEN: (0, 2),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: (0, 3),
    },
    controller_apis={
        ApiKey.CREATE_DELEGATION_TOKEN: (0, 3),
        ApiKey.RENEW_DELEGATION_TOKEN: (0, 2),
        ApiKey.EXPIRE_DELEGATION_TOKEN: (0, 2),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: (0, 3),
    },
    zookeeper_apis={
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 4),
    },
    gained=(
        PREFETCHED_PRODUCER_IDS,
        VERIFIED_TRANSACTIONS,
        METADATA_TRANSACTIONS,
    ),
)
