"""AlterUserScramCredentials (51) and DescribeUserScramCredentials (50).

Source: KIP-554, KIP-900, ScramControlManager, ScramImage.
"""

from kraftsim.conformance.expect import expect_equal, settled
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    UserName,
)
from protocol.messages.k51_alter_user_scram_credentials import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

REQUIREMENTS = Requirements("credentials", 1, "SCRAM credentials")
CONTROL = "ScramControlManager"
Fate = tuple[str, int, str | None]


def _alter(
    target: Target, given: list[tuple[str, int, int]], deleted: list[tuple[str, int]] | None = None
) -> list[Fate]:
    asked = AlterUserScramCredentialsRequest(
        deletions=[
            ScramCredentialDeletion(name=name, mechanism=mechanism)
            for name, mechanism in deleted or []
        ],
        upsertions=[
            ScramCredentialUpsertion(
                name=name,
                mechanism=mechanism,
                iterations=iterations,
                salt=b"salt",
                salted_password=b"salted" * 6,
            )
            for name, mechanism, iterations in given
        ],
    )
    with target.peer() as peer:
        answer = peer.ask(
            asked,
            target.newest(ApiKey.ALTER_USER_SCRAM_CREDENTIALS),
            AlterUserScramCredentialsResponse,
        )
    return sorted((row.user, row.error_code, row.error_message) for row in answer.results)


def _describe(target: Target, *users: str) -> list[DescribeUserScramCredentialsResult]:
    asked = DescribeUserScramCredentialsRequest(users=[UserName(name=user) for user in users])
    with target.peer() as peer:
        version = target.newest(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
        return peer.ask(asked, version, DescribeUserScramCredentialsResponse).results


def _described(target: Target, user: str) -> list[tuple[int, int]]:
    """Return (mechanism, iterations) of a user."""
    return [
        (info.mechanism, info.iterations) for info in _describe(target, user)[0].credential_infos
    ]


@REQUIREMENTS.that(
    1,
    "a credential that is set is returned, and absent once it is deleted",
    source="KIP-554",
    since="3.5",
)
def given_and_deleted(target: Target) -> None:
    user = target.fresh_name()
    expected = [(SCRAM_SHA_256, 4096), (SCRAM_SHA_512, 16384)]
    for mechanism, iterations in expected:
        expect_equal(
            _alter(target, [(user, mechanism, iterations)]),
            [(user, 0, None)],
            f"mechanism {mechanism}",
        )
    settled(
        lambda: sorted(_described(target, user)),
        lambda found: found == expected,
        "both credentials",
    )
    for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512):
        expect_equal(
            _alter(target, [], [(user, mechanism)]),
            [(user, 0, None)],
            f"mechanism {mechanism}, deleted",
        )
    why = f"Attempt to describe a user credential that does not exist: {user}"
    rows = settled(
        lambda: _describe(target, user), lambda rows: rows[0].error_code != 0, "nothing of the user"
    )
    expect_equal(
        (rows[0].error_code, rows[0].error_message),
        (int(ErrorCode.RESOURCE_NOT_FOUND), why),
        "the error of a user without credentials",
    )


@REQUIREMENTS.that(
    2, "an invalid credential is rejected with Kafka's error message", source=CONTROL, since="3.5"
)
def bad_credentials(target: Target) -> None:
    user = target.fresh_name()
    unacceptable = int(ErrorCode.UNACCEPTABLE_CREDENTIAL)
    bad: list[tuple[str, int, int, int, str]] = [
        (user, SCRAM_SHA_256, 4095, unacceptable, "Too few iterations"),
        (user, SCRAM_SHA_256, 16385, unacceptable, "Too many iterations"),
        ("", SCRAM_SHA_256, 4096, unacceptable, "Username must not be empty"),
        (user, 3, 4096, int(ErrorCode.UNSUPPORTED_SASL_MECHANISM), "Unknown SCRAM mechanism"),
    ]
    for name, mechanism, iterations, error, why in bad:
        expect_equal(
            _alter(target, [(name, mechanism, iterations)]),
            [(name, error, why)],
            f"{name!r}, mechanism {mechanism}, {iterations} iterations",
        )


@REQUIREMENTS.that(
    3, "deleting a missing credential returns RESOURCE_NOT_FOUND", source=CONTROL, since="3.5"
)
def nothing_to_delete(target: Target) -> None:
    user = target.fresh_name()
    expected = [
        (
            user,
            int(ErrorCode.RESOURCE_NOT_FOUND),
            "Attempt to delete a user credential that does not exist",
        )
    ]
    expect_equal(_alter(target, [], [(user, SCRAM_SHA_256)]), expected, "the deletion")


@REQUIREMENTS.that(
    4, "a duplicate user in a request returns DUPLICATE_RESOURCE", source="KIP-554", since="3.5"
)
def named_twice(target: Target) -> None:
    user = target.fresh_name()
    expected = [
        (
            user,
            int(ErrorCode.DUPLICATE_RESOURCE),
            "A user credential cannot be altered twice in the same request",
        )
    ]
    expect_equal(
        _alter(target, [(user, SCRAM_SHA_256, 4096), (user, SCRAM_SHA_512, 4096)]),
        expected,
        "two credentials of a user",
    )
    rows = _describe(target, user, user)
    why = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    found = [(row.user, row.error_code, row.error_message) for row in rows]
    expect_equal(
        found, [(user, int(ErrorCode.DUPLICATE_RESOURCE), why)], "a user that is requested twice"
    )
