"""Apache Kafka 2.5: producers recover from errors by an epoch bump (KIP-360), and groups fence
producers on offset commits (KIP-447).

A delta of 2.4.   Source: the message definitions in the jars of 2.5.1, and a running 2.5.1.
"""

from kraftsim.releases import r2_4
from kraftsim.releases.release import WITHOUT_NUMBER
from kraftsim.releases.traits import ACCEPTS_UNKNOWN_PRODUCERS
from protocol.api_keys import ApiKey

RELEASE = r2_4.RELEASE.followed_by(
    name="2.5",
    patch="2.5.1",
    metadata_version=WITHOUT_NUMBER,
    metadata_version_name="2.5-IV0",
    supported_features={},
    broker_apis={},
    controller_apis={},
    zookeeper_apis={
        ApiKey.OFFSET_FETCH: (0, 7),
        ApiKey.JOIN_GROUP: (0, 7),
        ApiKey.SYNC_GROUP: (0, 5),
        ApiKey.INIT_PRODUCER_ID: (0, 3),
        ApiKey.TXN_OFFSET_COMMIT: (0, 3),
        ApiKey.DESCRIBE_ACLS: (0, 2),
        ApiKey.CREATE_ACLS: (0, 2),
        ApiKey.DELETE_ACLS: (0, 2),
        ApiKey.SASL_AUTHENTICATE: (0, 2),
        ApiKey.CREATE_PARTITIONS: (0, 2),
        ApiKey.RENEW_DELEGATION_TOKEN: (0, 2),
        ApiKey.EXPIRE_DELEGATION_TOKEN: (0, 2),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: (0, 2),
    },
    gained=(ACCEPTS_UNKNOWN_PRODUCERS,),
)
