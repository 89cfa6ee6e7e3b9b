"""RemoveDelegationTokenRecord (26): a delegation token expired or was deleted.

Source: KIP-48, KAFKA-15219, RemoveDelegationTokenRecord.json.
"""

from protocol.schema import message, string


@message(key=26, kind="metadata", versions="0", flexible="0+")
class RemoveDelegationTokenRecord:
    """By the id of the token."""

    token_id: str = string()
