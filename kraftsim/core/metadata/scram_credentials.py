"""SCRAM credentials: alteration and description.

The server stores two derived keys, never the password.

Source: KIP-554, KIP-900, RFC 5802, org.apache.kafka.controller.ScramControlManager,
org.apache.kafka.image.ScramImage.
"""

import hashlib
import hmac
from collections import Counter
from dataclasses import dataclass
from typing import Final, TypeAlias

from kraftsim.core.decision import Decision, Refusal, Steps, ends_step, whole
from kraftsim.core.metadata.metadata_level import MetadataLevel
from kraftsim.core.metadata.registries import Registries
from kraftsim.events.metadata import ScramCredentialChanged
from protocol.errors import ErrorCode
from protocol.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from protocol.messages.k51_alter_user_scram_credentials import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.metadata.m11_user_scram_credential import UserScramCredentialRecord
from protocol.metadata.m22_remove_user_scram_credential import RemoveUserScramCredentialRecord
from protocol.schema import Message

HASHES: Final = {SCRAM_SHA_256: hashlib.sha256, SCRAM_SHA_512: hashlib.sha512}
ITERATIONS: Final = (4096, 16384)
TWICE: Final = Refusal(
    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
)
TOO_OLD: Final = Refusal(
    ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM"
)

Results: TypeAlias = list[tuple[str, Refusal | None]]
Change: TypeAlias = ScramCredentialDeletion | ScramCredentialUpsertion


@dataclass(frozen=True, slots=True)
class DescribedCredentials:
    """The credentials of a user, as (mechanism, iterations)."""

    user: str
    credentials: tuple[tuple[int, int], ...]


def decide_alter_credentials(
    registries: Registries, level: MetadataLevel, request: AlterUserScramCredentialsRequest
) -> Decision[Results]:
    """Upsert or delete credentials; one result per user, successful ones first."""
    return whole(alter_credentials_steps(registries, level, request))


def alter_credentials_steps(
    registries: Registries, level: MetadataLevel, request: AlterUserScramCredentialsRequest
) -> Steps[Decision[Results]]:
    """Like `decide_alter_credentials`, in steps."""
    changes: dict[str, Change] = {}
    refused: dict[str, Refusal] = {}
    asked: list[Change] = [*request.deletions, *request.upsertions]
    for index, change in enumerate(asked):
        if ends_step(index):
            yield
        if change.name in refused:
            continue
        if changes.pop(change.name, None) is not None:
            refused[change.name] = TWICE
            continue
        refusal = TOO_OLD if not level.has_scram_credentials else _refuse(registries, change)
        if refusal is None:
            changes[change.name] = change
        else:
            refused[change.name] = refusal
    records: list[Message] = []
    for index, change in enumerate(changes.values()):
        if ends_step(index):
            yield
        records.append(_record(change))
    facts = tuple(
        ScramCredentialChanged(
            user=change.name,
            mechanism=change.mechanism,
            is_removed=isinstance(change, ScramCredentialDeletion),
        )
        for change in changes.values()
    )
    return Decision(records, [*((user, None) for user in changes), *refused.items()], facts)


def describe_credentials(
    registries: Registries, request: DescribeUserScramCredentialsRequest
) -> list[DescribedCredentials | tuple[str, Refusal]]:
    """Return the credentials of the named users, or of all users."""
    found: dict[str, list[tuple[int, int]]] = {}
    for record in registries.scram_credentials.records():
        found.setdefault(record.name, []).append((record.mechanism, record.iterations))
    asked = (
        Counter(user.name for user in request.users) if request.users else Counter(sorted(found))
    )
    return [_described(user, times, found.get(user)) for user, times in asked.items()]


def _described(
    user: str, times: int, credentials: list[tuple[int, int]] | None
) -> DescribedCredentials | tuple[str, Refusal]:
    if times > 1:
        why = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        )
        return user, Refusal(ErrorCode.DUPLICATE_RESOURCE, why)
    if credentials is None:
        return user, Refusal(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"Attempt to describe a user credential that does not exist: {user}",
        )
    return DescribedCredentials(user, tuple(credentials))


def _refuse(registries: Registries, change: Change) -> Refusal | None:
    if not change.name:
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in HASHES:
        return Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialDeletion):
        is_known = registries.scram_credentials.get((change.name, change.mechanism)) is not None
        return (
            None
            if is_known
            else Refusal(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        )
    if ITERATIONS[0] <= change.iterations <= ITERATIONS[1]:
        return None
    return Refusal(
        ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "Too few iterations" if change.iterations < ITERATIONS[0] else "Too many iterations",
    )


def _record(change: Change) -> UserScramCredentialRecord | RemoveUserScramCredentialRecord:
    if isinstance(change, ScramCredentialDeletion):
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    make, salted = HASHES[change.mechanism], bytes(change.salted_password)
    client_key = hmac.new(salted, b"Client Key", make).digest()
    return UserScramCredentialRecord(
        name=change.name,
        mechanism=change.mechanism,
        salt=change.salt,
        stored_key=make(client_key).digest(),
        server_key=hmac.new(salted, b"Server Key", make).digest(),
        iterations=change.iterations,
    )
