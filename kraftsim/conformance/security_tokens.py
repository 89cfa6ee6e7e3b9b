"""Delegation tokens (38 to 41) without delegation.token.secret.key: which requests are rejected,
and with which error.

Source: KIP-48, KIP-373; KafkaApis.allowTokenRequests, DelegationTokenManager; verified against
Apache Kafka 3.9.1 and 4.4.0.
"""

from kraftsim.conformance.expect import expect_equal
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.security_rights import as_alice, require_authorizer
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k38_create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from protocol.messages.k39_renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from protocol.messages.k40_expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from protocol.messages.k41_describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

REQUIREMENTS = Requirements("security", 10, "Delegation tokens without a secret key")
OWNERS_SINCE = 3
"""The first version of CreateDelegationToken with an owner."""


def errors(target: Target, peer: Peer) -> dict[str, int]:
    """Send token requests in every version: for the client itself, with a renewer, of an owner and
    of all; return the errors.
    """
    found = {}
    renewer = CreatableRenewers(principal_type="User", principal_name="alice")
    for version in target.versions(ApiKey.CREATE_DELEGATION_TOKEN):
        for renewers in ([], [renewer]):
            asked = CreateDelegationTokenRequest(max_lifetime_ms=-1, renewers=renewers)
            error = peer.ask(asked, version, CreateDelegationTokenResponse).error_code
            found[f"CreateDelegationToken v{version}, {len(renewers)} renewers"] = error
    for version in target.versions(ApiKey.RENEW_DELEGATION_TOKEN):
        asked_renewal = RenewDelegationTokenRequest(hmac=b"no token", renew_period_ms=-1)
        found[f"RenewDelegationToken v{version}"] = peer.ask(
            asked_renewal, version, RenewDelegationTokenResponse
        ).error_code
    for version in target.versions(ApiKey.EXPIRE_DELEGATION_TOKEN):
        for period_ms in (-1, 0, 1000):
            asked_end = ExpireDelegationTokenRequest(
                hmac=b"no token", expiry_time_period_ms=period_ms
            )
            error = peer.ask(asked_end, version, ExpireDelegationTokenResponse).error_code
            found[f"ExpireDelegationToken v{version}, {period_ms} ms"] = error
    owner = DescribeDelegationTokenOwner(principal_type="User", principal_name="alice")
    for version in target.versions(ApiKey.DESCRIBE_DELEGATION_TOKEN):
        for owners in (None, [], [owner]):
            answer = peer.ask(
                DescribeDelegationTokenRequest(owners=owners),
                version,
                DescribeDelegationTokenResponse,
            )
            found[f"DescribeDelegationToken v{version} of {owners and len(owners)} owners"] = (
                answer.error_code
            )
            expect_equal(answer.tokens, [], f"tokens of DescribeDelegationToken v{version}")
    return found


@REQUIREMENTS.that(
    1,
    "an authenticated client gets DELEGATION_TOKEN_AUTH_DISABLED for each of the four requests",
    source="DelegationTokenManager",
)
def disabled(target: Target) -> None:
    require_authorizer(target)
    with as_alice(target) as peer:
        found = errors(target, peer)
    expect_equal(
        found, dict.fromkeys(found, int(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)), "errors"
    )


@REQUIREMENTS.that(
    2,
    "an unauthenticated client gets DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, super user or not",
    source="KafkaApis.allowTokenRequests",
)
def not_allowed(target: Target) -> None:
    require_authorizer(target)
    with target.peer() as peer:
        found = errors(target, peer)
    expect_equal(
        found, dict.fromkeys(found, int(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)), "errors"
    )


@REQUIREMENTS.that(
    3,
    "a token of another principal needs CREATE_TOKENS on it, which is checked first: "
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
    source="KIP-373; KafkaApis",
    since="3.3",
)
def of_another(target: Target) -> None:
    require_authorizer(target)
    asked = CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name="bob", max_lifetime_ms=-1, renewers=[]
    )
    with as_alice(target) as peer:
        for version in target.versions(ApiKey.CREATE_DELEGATION_TOKEN, since=OWNERS_SINCE):
            answer = peer.ask(asked, version, CreateDelegationTokenResponse)
            found = (
                answer.error_code,
                answer.principal_name,
                answer.token_requester_principal_name,
            )
            expect_equal(
                found,
                (int(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED), "bob", "alice"),
                f"v{version}: error, owner, requester",
            )
