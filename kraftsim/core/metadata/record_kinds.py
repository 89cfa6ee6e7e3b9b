"""The records of the metadata log that this slice understands.

A record that is not among them stops a node (nobody may skip what it does not understand).   Source: KIP-631, MetadataRecordType.
"""

from protocol.metadata.m00_register_broker import RegisterBrokerRecord
from protocol.metadata.m02_topic import TopicRecord
from protocol.metadata.m03_partition import PartitionRecord
from protocol.metadata.m04_config import ConfigRecord
from protocol.metadata.m05_partition_change import PartitionChangeRecord
from protocol.metadata.m12_feature_level import FeatureLevelRecord
from protocol.metadata.m15_producer_ids import ProducerIdsRecord
from protocol.metadata.m17_broker_registration_change import BrokerRegistrationChangeRecord
from protocol.metadata.m20_no_op import NoOpRecord
from protocol.metadata.m21_zk_migration_state import ZkMigrationStateRecord
from protocol.metadata.m23_begin_transaction import BeginTransactionRecord
from protocol.metadata.m24_end_transaction import EndTransactionRecord
from protocol.metadata.m25_abort_transaction import AbortTransactionRecord

MetadataRecord = (
    RegisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | NoOpRecord
    | ZkMigrationStateRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
)
