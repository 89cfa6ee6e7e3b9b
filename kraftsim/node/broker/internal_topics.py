"""The topics that brokers keep for themselves.   Source: org.apache.kafka.common.internals.Topic."""

GROUP_METADATA = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
ADMIN_CLIENT_ID = "__admin_client"
"""AdminUtils.ADMIN_CLIENT_ID: who calls itself so may write internal topics."""


def is_internal(topic: str) -> bool:
    """Tell whether a topic belongs to the brokers."""
    return topic in (GROUP_METADATA, TRANSACTION_STATE)
