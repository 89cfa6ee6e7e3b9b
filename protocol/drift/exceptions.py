"""Where the declarations differ from Apache Kafka's on purpose, each with the reason.

An exception that no longer hides anything is reported as well, so that this list cannot grow old.
"""

from collections.abc import Mapping
from typing import Final

MESSAGE_FORMATS_BEFORE_2 = "speaks message format 0 or 1, which this project does not build; dropped in 4.0 (KIP-896)"

VERSIONS_LEFT_OUT: Final[Mapping[str, Mapping[int, str]]] = {
    "ProduceRequest": dict.fromkeys(range(3), MESSAGE_FORMATS_BEFORE_2),
    "ProduceResponse": dict.fromkeys(range(3), MESSAGE_FORMATS_BEFORE_2),
    "FetchRequest": dict.fromkeys(range(4), MESSAGE_FORMATS_BEFORE_2),
    "FetchResponse": dict.fromkeys(range(4), MESSAGE_FORMATS_BEFORE_2),
}
"""Versions that some release has and the declaration does not."""

NOT_COMPARED: Final[Mapping[tuple[str, str], str]] = {
    ("metadata", "2.8.2"): "KRaft was a preview: records had no tagged fields and frame version 0, which every later release rejects",
    ("LeaderChangeMessage", "2.8.2"): "KRaft was a preview: the version did not stand in the message yet",
    ("ReadShareGroupStateSummaryResponse", "3.9.1"): "share groups were a preview (v0 unstable): the leader epoch did not stand in the message yet",
    (
        "StreamsGroupHeartbeatResponse",
        "4.1.2",
    ): "streams groups were a preview (v0 unstable); its AcceptableRecoveryLag had 32 bits, and another field has the name",
}
"""By kind or name of a message, and release."""

NOT_DECLARED: Final[Mapping[str, str]] = {
    "AccessControlRecord": "2.8's preview of KRaft only, in frame version 0; number 6 is given to no record since, access control is 18 and 19",
    "QuotaRecord": "2.8's preview of KRaft only, in frame version 0; number 14 is ClientQuotaRecord since 3.0, with other fields",
    "ShareGroupPartitionMetadataKey": "3.9's preview of share groups only; 4.x skips records of type 9 as unknown (KIP-932)",
    "ShareGroupPartitionMetadataValue": "3.9's preview of share groups only; 4.x skips records of type 9 as unknown (KIP-932)",
}
"""Messages that some release defines and that are not declared here."""

RENAMED: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "FetchResponse": {
        "PartitionResponses": ("Partitions", "2.8's word for it"),
        "Partition": ("PartitionIndex", "2.8's word for it"),
        "RecordSet": ("Records", "2.8's word for it"),
    },
}
"""By message: what some release calls a field, what we call it, and why."""

ALLOWED: Final[Mapping[str, Mapping[str, str]]] = {
    "RequestHeader": {"ClientId: ignorable": "4.0 has no header v0 left that would lack the field; up to 3.9 it is ignorable"},
}
"""By message: how the line of a difference begins, and why the difference stays."""
