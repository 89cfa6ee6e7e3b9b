"""RemoveUserScramCredentialRecord (22): a SCRAM credential was deleted.

Source: KIP-900, RemoveUserScramCredentialRecord.json.
"""

from protocol.schema import int8, message, string


@message(key=22, kind="metadata", versions="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    """One mechanism of one user."""

    name: str = string()
    mechanism: int = int8()
