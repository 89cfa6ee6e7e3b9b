"""UserScramCredentialRecord (11): the data to verify a SCRAM password (3.5).

Source: KIP-900, UserScramCredentialRecord.json.
"""

from protocol.schema import byte_string, int8, int32, message, string

SCRAM_SHA_256 = 1
SCRAM_SHA_512 = 2


@message(key=11, kind="metadata", versions="0", flexible="0+")
class UserScramCredentialRecord:
    """The password itself is not stored."""

    name: str = string()
    mechanism: int = int8()
    salt: bytes = byte_string()
    stored_key: bytes = byte_string()
    server_key: bytes = byte_string()
    iterations: int = int32()
