"""DescribeUserScramCredentials (50): the users with SASL/SCRAM credentials, with mechanism and
iterations; never the credentials.

Source: KIP-554; DescribeUserScramCredentialsRequest.json,
DescribeUserScramCredentialsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int8, int16, int32, message, string, structure

SCRAM_SHA_256 = 1
SCRAM_SHA_512 = 2

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.RESOURCE_NOT_FOUND,  # of a user: has no credential
    ErrorCode.DUPLICATE_RESOURCE,  # of a user: asked for twice
)


@structure
class UserName:
    """A user to describe."""

    name: str = string()


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    """Null and an empty list both mean all users with a credential."""

    users: list[UserName] | None = array(UserName, nullable="0+")


@structure
class CredentialInfo:
    """A mechanism, and its iteration count."""

    mechanism: int = int8()
    iterations: int = int32()


@structure
class DescribeUserScramCredentialsResult:
    """The credentials of one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    """With a top-level error there are no results."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
