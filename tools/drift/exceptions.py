"""Intended differences between the declarations and Apache Kafka's definitions, each with the
reason.

An exception that no longer hides anything is reported as well, so that this list stays up to date.
"""

from collections.abc import Mapping
from typing import Final

TRANSACTIONS_OF_ONE = (
    "the name in 2.8; v4 has many transactions, and the older fields were renamed (KIP-890)"
)
AS_ALTER_ISR = "2.8's word for it, when the RPC was called AlterIsr (KIP-704)"
BEFORE_PRE_VOTE = "the name in 3.9; the sender of a pre-vote is no candidate yet (KIP-996)"

VERSIONS_LEFT_OUT: Final[Mapping[str, Mapping[int, str]]] = {}
"""Versions that some release has and the declaration does not have."""

NOT_COMPARED: Final[Mapping[tuple[str, str], str]] = {
    (
        "metadata",
        "2.8.2",
    ): (
        "KRaft was a preview: records had no tagged fields and frame version 0, which every "
        "later release rejects"
    ),
    (
        "LeaderChangeMessage",
        "2.8.2",
    ): "KRaft was a preview: the version did not stand in the message yet",
    (
        "ShareGroupMetadataValue",
        "3.9.1",
    ): "share groups were a preview: the hash of the topics did not stand in the record yet",
    (
        "ReadShareGroupStateSummaryResponse",
        "3.9.1",
    ): (
        "share groups were a preview (v0 unstable): the leader epoch did not stand in the "
        "message yet"
    ),
    (
        "StreamsGroupHeartbeatResponse",
        "4.1.2",
    ): (
        "streams groups were a preview (v0 unstable); its AcceptableRecoveryLag had 32 bits, and "
        "another field has the name"
    ),
}
"""By kind or name of a message, and release."""

NOT_DECLARED: Final[Mapping[str, str]] = {
    "AccessControlRecord": (
        "2.8's preview of KRaft only, in frame version 0; number 6 is given to no record since, "
        "access control is 18 and 19"
    ),
    "QuotaRecord": (
        "2.8's preview of KRaft only, in frame version 0; number 14 is ClientQuotaRecord since "
        "3.0, with other fields"
    ),
    "ShareGroupPartitionMetadataKey": (
        "3.9's preview of share groups only; 4.x skips records of type 9 as unknown (KIP-932)"
    ),
    "ShareGroupPartitionMetadataValue": (
        "3.9's preview of share groups only; 4.x skips records of type 9 as unknown (KIP-932)"
    ),
}
"""Messages that some release defines and that are not declared here."""

RENAMED: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "AddPartitionsToTxnRequest": {
        ".TransactionalId": ("V3AndBelowTransactionalId", TRANSACTIONS_OF_ONE),
        ".ProducerId": ("V3AndBelowProducerId", TRANSACTIONS_OF_ONE),
        ".ProducerEpoch": ("V3AndBelowProducerEpoch", TRANSACTIONS_OF_ONE),
        ".Topics": ("V3AndBelowTopics", TRANSACTIONS_OF_ONE),
    },
    "AddPartitionsToTxnResponse": {
        ".Results": ("ResultsByTopicV3AndBelow", TRANSACTIONS_OF_ONE),
        "AddPartitionsToTxnTopicResult.Results": ("ResultsByPartition", TRANSACTIONS_OF_ONE),
        "AddPartitionsToTxnPartitionResult.ErrorCode": ("PartitionErrorCode", TRANSACTIONS_OF_ONE),
    },
    "AlterPartitionRequest": {
        "TopicData.Name": ("TopicName", AS_ALTER_ISR),
        "CurrentIsrVersion": ("PartitionEpoch", AS_ALTER_ISR),
    },
    "AlterPartitionResponse": {
        "TopicData.Name": ("TopicName", AS_ALTER_ISR),
        "CurrentIsrVersion": ("PartitionEpoch", AS_ALTER_ISR),
    },
    "DescribeLogDirsRequest": {"PartitionIndex": ("Partitions", "2.8's word for it")},
    "ElectLeadersRequest": {"PartitionId": ("Partitions", "2.8's word for it")},
    "FetchResponse": {
        "PartitionResponses": ("Partitions", "2.8's word for it"),
        "Partition": ("PartitionIndex", "2.8's word for it"),
        "RecordSet": ("Records", "2.8's word for it"),
    },
    "LeaderAndIsrRequest": {"ZkVersion": ("PartitionEpoch", "2.8's word for it")},
    "ListConfigResourcesResponse": {
        "ClientMetricsResources": (
            "ConfigResources",
            "3.9's word for it, when there were no others to list",
        ),
        "ClientMetricsResource.Name": ("ResourceName", "3.9's word for it"),
    },
    "OffsetCommitRequest": {
        "GenerationId": (
            "GenerationIdOrMemberEpoch",
            "2.8's word for it, before members had epochs (KIP-848)",
        )
    },
    "TxnOffsetCommitRequest": {
        "GenerationId": (
            "GenerationIdOrMemberEpoch",
            "the word up to 4.1, before members had epochs here (KIP-1319)",
        )
    },
    "VoteRequest": {
        "CandidateEpoch": ("ReplicaEpoch", BEFORE_PRE_VOTE),
        "CandidateId": ("ReplicaId", BEFORE_PRE_VOTE),
        "CandidateDirectoryId": ("ReplicaDirectoryId", BEFORE_PRE_VOTE),
    },
}
"""By message: the name of a field in some release, our name of it, and why.

`Structure.Field` if only that structure's field is meant, `.Field` if only the message's own.
"""


def present_name(message: str, structure: str, field: str) -> str:
    """Return our name of a field; `structure` is empty for the message's own fields."""
    renamed = RENAMED.get(message, {})
    found = renamed.get(f"{structure}.{field}") or renamed.get(field)
    return found[0] if found else field


ALLOWED: Final[Mapping[str, Mapping[str, str]]] = {
    "ProducerSnapshot": {
        "ProducerEntries.CoordinatorEpoch: default": (
            "0 in Kafka, which always sets it; a fresh entry here says that there is none"
        ),
        "ProducerEntries.CurrentTxnFirstOffset: default": (
            "0 in Kafka, which always sets it; a fresh entry here says that there is none"
        ),
    },
    "RequestHeader": {
        "ClientId: ignorable": (
            "4.0 has no header v0 left that would lack the field; up to 3.9 it is ignorable"
        )
    },
}
"""By message: the start of a difference's line, and why the difference is intended."""
