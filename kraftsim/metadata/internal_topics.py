"""Internal topics.   Source: org.apache.kafka.common.internals.Topic."""

GROUP_METADATA = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
ADMIN_CLIENT_ID = "__admin_client"
"""AdminUtils.ADMIN_CLIENT_ID: clients with this client id may write to internal topics."""


def is_internal(topic: str) -> bool:
    """Return whether a topic is internal."""
    return topic in (GROUP_METADATA, TRANSACTION_STATE)
