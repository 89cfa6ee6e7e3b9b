"""Key-value state of the metadata log, where the latest record of a key is its value: controllers,
quotas, credentials, tokens, ACLs, the migration state; and the alteration of SCRAM credentials.

The controller stores it in timeline tables, a broker's image in plain ones, and both write the same
records into a snapshot.
Source: org.apache.kafka.image.{ClusterImage, ClientQuotasImage, ScramImage, DelegationTokenImage,
AclsImage, FeaturesImage}.
"""

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeAlias, TypeVar, assert_never

from kraftsim.core.decision import Decision, Refusal, Steps, ends_step, whole
from kraftsim.metadata.events import ScramCredentialChanged
from kraftsim.metadata.rules_versions import MetadataLevel
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
from protocol.metadata.controller import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
    ProducerIdsRecord,
)
from protocol.metadata.registrations import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from protocol.metadata.security import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from protocol.metadata.settings import (
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    FeatureLevelRecord,
    ZkMigrationStateRecord,
)
from protocol.metadata.topics import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.schema import Message

K = TypeVar("K")
R = TypeVar("R")

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""(entity type, name or None for the default), sorted by type."""

RegistryRecord = (
    RegisterControllerRecord
    | UnregisterControllerRecord
    | ClientQuotaRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | ZkMigrationStateRecord
)
"""The record types of the registries."""


# --------------------------------------------------------------------------------------------------
# The registries


class Table(Protocol[K, R]):
    """A dictionary, plain or with undo."""

    def __getitem__(self, key: K, /) -> R: ...
    def __setitem__(self, key: K, value: R, /) -> None: ...
    def __delitem__(self, key: K, /) -> None: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __iter__(self) -> Iterator[K]: ...
    def get(self, key: K, /) -> R | None: ...


class NewTable(Protocol):
    """Creates empty tables."""

    def __call__(self) -> Table[K, R]: ...


class Registry(Generic[K, R]):
    """The latest record of each key. Stored records are immutable.

    Records are also indexed by `group_of`, so that a lookup costs the size of its result. The index
    is built on first use; `forget_groups` has to be called when the table changes by other means.
    """

    __slots__ = ("_group_of", "_groups", "_table")

    def __init__(
        self, table: Table[K, R], group_of: Callable[[R], Hashable] = lambda record: None
    ) -> None:
        self._table = table
        self._group_of = group_of
        self._groups: dict[Hashable, dict[K, None]] | None = None

    def get(self, key: K) -> R | None:
        """Return the record of a key, or None."""
        return self._table.get(key)

    def records(self) -> list[R]:
        """Return all records, in an order independent of their insertion."""
        return [self._table[key] for key in sorted(self._table, key=repr)]

    def of_group(self, group: Hashable) -> list[R]:
        """Return the records of a group, in the same order."""
        if self._groups is None:
            self._groups = {}
            for key in self._table:
                self._groups.setdefault(self._group_of(self._table[key]), {})[key] = None
        return [self._table[key] for key in sorted(self._groups.get(group, ()), key=repr)]

    def forget_groups(self) -> None:
        """Drop the index: records were reverted."""
        self._groups = None

    def put(self, key: K, record: R) -> None:
        """Store a record under its key."""
        if self._groups is not None:
            self._leave_group(key)
            self._groups.setdefault(self._group_of(record), {})[key] = None
        self._table[key] = record

    def drop(self, key: K) -> None:
        """Remove a key, if it is present."""
        if key in self._table:
            self._leave_group(key)
            del self._table[key]

    def _leave_group(self, key: K) -> None:
        record = self._table.get(key)
        if self._groups is None or record is None:
            return
        group = self._group_of(record)
        del self._groups[group][key]
        if not self._groups[group]:
            del self._groups[group]


class Registries:
    """All registries, over tables created by `new_table`."""

    def __init__(self, new_table: NewTable) -> None:
        self.controllers: Registry[int, RegisterControllerRecord] = Registry(new_table())
        self.quotas: Registry[tuple[QuotaEntity, str], ClientQuotaRecord] = Registry(
            new_table(), lambda record: quota_entity(record.entity)
        )
        """Grouped by entity."""
        self.quota_changes = 0
        """Incremented whenever quotas may have changed."""
        self.scram_credentials: Registry[tuple[str, int], UserScramCredentialRecord] = Registry(
            new_table(), lambda record: record.name
        )
        """Grouped by user."""
        self.delegation_tokens: Registry[str, DelegationTokenRecord] = Registry(new_table())
        self.access_rules: Registry[bytes, AccessControlEntryRecord] = Registry(
            new_table(),
            lambda record: (record.resource_type, record.pattern_type, record.resource_name),
        )
        """Grouped by resource: type, pattern type, name."""
        self.rule_changes = 0
        """Incremented whenever ACLs may have changed."""
        self._migration: Registry[int, ZkMigrationStateRecord] = Registry(new_table())

    @property
    def migration_state(self) -> ZkMigrationStateRecord:
        """The state of a migration from ZooKeeper; NONE if the log has none."""
        return self._migration.get(0) or ZkMigrationStateRecord()

    def on_undone(self) -> None:
        """Records were reverted in the tables."""
        self.rule_changes += 1
        self.quota_changes += 1
        for registry in (self.quotas, self.scram_credentials, self.access_rules):
            registry.forget_groups()

    def replay(self, record: RegistryRecord) -> None:
        """Replay a record."""
        match record:
            case RegisterControllerRecord():
                self.controllers.put(record.controller_id, record)
            case UnregisterControllerRecord():
                self.controllers.drop(record.controller_id)
            case ClientQuotaRecord():
                self._replay_quota(record)
            case UserScramCredentialRecord():
                self.scram_credentials.put((record.name, record.mechanism), record)
            case RemoveUserScramCredentialRecord():
                self.scram_credentials.drop((record.name, record.mechanism))
            case DelegationTokenRecord():
                self.delegation_tokens.put(record.token_id, record)
            case RemoveDelegationTokenRecord():
                self.delegation_tokens.drop(record.token_id)
            case AccessControlEntryRecord():
                self.access_rules.put(record.id, record)
                self.rule_changes += 1
            case RemoveAccessControlEntryRecord():
                self.access_rules.drop(record.id)
                self.rule_changes += 1
            case ZkMigrationStateRecord():
                self._migration.put(0, record)
            case _:
                assert_never(record)

    def _replay_quota(self, record: ClientQuotaRecord) -> None:
        self.quota_changes += 1
        key = (quota_entity(record.entity), record.key)
        if record.remove:
            self.quotas.drop(key)
        else:
            self.quotas.put(key, record)


def quota_entity(entity: list[EntityData]) -> QuotaEntity:
    """Return the entity of a quota, independent of the order of its parts."""
    return tuple(
        sorted(((part.entity_type, part.entity_name) for part in entity), key=lambda part: part[0])
    )


# --------------------------------------------------------------------------------------------------
# All record types of the metadata log since 3.0
#
# An unknown record type is fatal for a node, as it cannot be skipped.
# Source: KIP-631, MetadataRecordType.

MetadataRecord = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | NoOpRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | ClearElrRecord
    | RegistryRecord
)


# --------------------------------------------------------------------------------------------------
# SCRAM credentials: alteration and description
#
# The server stores two derived keys, never the password.
# Source: KIP-554, KIP-900, RFC 5802, org.apache.kafka.controller.ScramControlManager.

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
