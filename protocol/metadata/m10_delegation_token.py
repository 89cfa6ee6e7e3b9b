"""DelegationTokenRecord (10): a delegation token was created or renewed (3.6).

Source: KIP-48, KAFKA-15219, DelegationTokenRecord.json.
"""

from protocol.schema import array, int64, message, string


@message(key=10, kind="metadata", versions="0", flexible="0+")
class DelegationTokenRecord:
    """Timestamps are milliseconds since 1970; the secret is not included, every node derives it
    from its own key.
    """

    owner: str = string()
    requester: str = string()
    renewers: list[str] = array(string)
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()
