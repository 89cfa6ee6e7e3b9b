"""All record types of the metadata log since 3.0.

An unknown record type is fatal for a node, as it cannot be skipped.
Source: KIP-631, MetadataRecordType.
"""

from kraftsim.core.metadata.registries import RegistryRecord
from protocol.metadata.m00_register_broker import RegisterBrokerRecord
from protocol.metadata.m01_unregister_broker import UnregisterBrokerRecord
from protocol.metadata.m02_topic import TopicRecord
from protocol.metadata.m03_partition import PartitionRecord
from protocol.metadata.m04_config import ConfigRecord
from protocol.metadata.m05_partition_change import PartitionChangeRecord
from protocol.metadata.m07_fence_broker import FenceBrokerRecord
from protocol.metadata.m08_unfence_broker import UnfenceBrokerRecord
from protocol.metadata.m09_remove_topic import RemoveTopicRecord
from protocol.metadata.m12_feature_level import FeatureLevelRecord
from protocol.metadata.m15_producer_ids import ProducerIdsRecord
from protocol.metadata.m17_broker_registration_change import BrokerRegistrationChangeRecord
from protocol.metadata.m20_no_op import NoOpRecord
from protocol.metadata.m23_begin_transaction import BeginTransactionRecord
from protocol.metadata.m24_end_transaction import EndTransactionRecord
from protocol.metadata.m25_abort_transaction import AbortTransactionRecord
from protocol.metadata.m28_clear_elr import ClearElrRecord

MetadataRecord = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | NoOpRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | ClearElrRecord
    | RegistryRecord
)
