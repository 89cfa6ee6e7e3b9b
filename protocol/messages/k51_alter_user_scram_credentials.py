"""AlterUserScramCredentials (51): set or delete SASL/SCRAM credentials of users.

The password is never sent: the client salts and hashes it, and the server derives from that what it
stores.
Source: KIP-554, KIP-900 (KRaft); AlterUserScramCredentialsRequest.json,
AlterUserScramCredentialsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, byte_string, int8, int16, int32, message, string, structure

SCRAM_SHA_256 = 1
SCRAM_SHA_512 = 2

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    ErrorCode.UNSUPPORTED_VERSION,  # KRaft before metadata.version 3.5
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.RESOURCE_NOT_FOUND,  # nothing to delete
    ErrorCode.DUPLICATE_RESOURCE,  # a user is named twice
    ErrorCode.UNACCEPTABLE_CREDENTIAL,  # no name, or fewer than 4096 or more than 16384 iterations
)


@structure
class ScramCredentialDeletion:
    """A credential to delete."""

    name: str = string()
    mechanism: int = int8()


@structure
class ScramCredentialUpsertion:
    """A credential to create or replace: salted_password is PBKDF2 of the password with this salt
    and that many iterations.
    """

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = byte_string()
    salted_password: bytes = byte_string()


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    """A user may occur once in both lists together."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@structure
class AlterUserScramCredentialsResult:
    """The result of one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    """One result per user."""

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
