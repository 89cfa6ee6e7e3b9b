"""Apache Kafka 3.4: migration from ZooKeeper (KIP-866), and a separate producer.id.expiration.ms.

A delta of 3.3.   Source: the message definitions in the jars of 3.4.1.
"""

from kraftsim.releases import r3_3
from kraftsim.releases.traits import MIGRATES_FROM_ZOOKEEPER, PRODUCER_ID_EXPIRATION
from protocol.api_keys import ApiKey

RELEASE = r3_3.RELEASE.followed_by(
    name="3.4",
    patch="3.4.1",
    metadata_version=8,
    metadata_version_name="3.4-IV0",
    supported_features={"metadata.version": (1, 8)},
    broker_apis={},
    controller_apis={ApiKey.BROKER_REGISTRATION: (0, 1)},
    zookeeper_apis={
        ApiKey.LEADER_AND_ISR: (0, 7),
        ApiKey.STOP_REPLICA: (0, 4),
        ApiKey.UPDATE_METADATA: (0, 8),
        ApiKey.ENVELOPE: (0, 0),
    },
    gained=(PRODUCER_ID_EXPIRATION, MIGRATES_FROM_ZOOKEEPER),
)
