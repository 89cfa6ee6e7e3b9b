"""Quotas, SCRAM credentials, and cluster membership: results of Apache Kafka 3.9.1 and 4.4.0."""

import hashlib
import hmac

import pytest

from kraftsim.core.decision import Decision, Refusal
from kraftsim.metadata.events import BrokerUnregistered
from kraftsim.metadata.rules_client_quotas import decide_alter_quotas, describe_quotas
from kraftsim.metadata.rules_registrations import decide_register_controller
from kraftsim.metadata.rules_registries import (
    DescribedCredentials,
    decide_alter_credentials,
    describe_credentials,
)
from kraftsim.metadata.rules_versions import MetadataLevel
from protocol.errors import ErrorCode
from protocol.messages import k48_describe_client_quotas as k48
from protocol.messages import k50_describe_user_scram_credentials as k50
from protocol.messages import k51_alter_user_scram_credentials as k51
from protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    QuotaAlteration,
)
from protocol.messages.k70_controller_registration import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from protocol.metadata.security import UserScramCredentialRecord
from protocol.metadata.topics import PartitionChangeRecord
from tests.core.registries import Cluster

INVALID = ErrorCode.INVALID_REQUEST
Entity = tuple[tuple[str, str | None], ...]
Operation = tuple[str, float, bool]
RATE = "producer_byte_rate"


def quotas(
    *entries: tuple[Entity, tuple[Operation, ...]], validate_only: bool = False
) -> AlterClientQuotasRequest:
    """Request (entity, operations)."""
    rows = [
        QuotaAlteration(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[OpData(key=key, value=value, remove=remove) for key, value, remove in operations],
        )
        for entity, operations in entries
    ]
    return AlterClientQuotasRequest(entries=rows, validate_only=validate_only)


@pytest.mark.parametrize(
    ("entity", "operations", "why"),
    [
        ((("user", "u"),), ((RATE, 1000.0, False),), None),
        ((("user", None), ("client-id", "c")), (("request_percentage", 1.5, False),), None),
        ((("ip", None),), (("connection_creation_rate", 5.0, False),), None),
        ((("ip", "::1"),), (("connection_creation_rate", 5.0, False),), None),
        ((("user", "u"), ("user", "v")), ((RATE, 5.0, False),), None),
        ((("user", "u"),), (("bogus", 5.0, True),), None),
        ((("user", "u"),), (), None),
        ((), ((RATE, 5.0, False),), "Invalid empty client quota entity"),
        ((("bogus", "u"),), ((RATE, 5.0, False),), "Unhandled client quota entity type: bogus"),
        ((("user", ""),), ((RATE, 5.0, False),), "Empty user not supported"),
        (
            (("ip", "not a host!"),),
            (("connection_creation_rate", 5.0, False),),
            "not a host! is not a valid IP or resolvable host.",
        ),
        (
            (("ip", "127.0.0.1"), ("user", "u")),
            (),
            (
                "Invalid quota entity combination, IP entity shouldnot be combined with User or "
                "ClientId"
            ),
        ),
        (
            (("ip", "127.0.0.1"),),
            ((RATE, 5.0, False),),
            "Invalid configuration key producer_byte_rate",
        ),
        (
            (("user", "u"),),
            (("connection_creation_rate", 5.0, False),),
            "Invalid configuration key connection_creation_rate",
        ),
        (
            (("user", "u"),),
            ((RATE, 0.0, False),),
            "Quota producer_byte_rate must be greater than 0",
        ),
        (
            (("user", "u"),),
            ((RATE, 1.5, False),),
            "producer_byte_rate cannot be a fractional value.",
        ),
        (
            (("user", "u"),),
            ((RATE, 1e30, False),),
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (
            (("ip", "1.1.1.1"),),
            (("connection_creation_rate", 5e12, False),),
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        (
            (("user", "u"),),
            ((RATE, 5.0, False), (RATE, 6.0, False)),
            "Ignoring duplicate entity ClientQuotaEntity(entries={user=u})",
        ),
    ],
)
def test_quota_validation_messages(
    entity: Entity, operations: tuple[Operation, ...], why: str | None
) -> None:
    """ClientQuotaControlManager, including Kafka's own typing error."""
    decided = decide_alter_quotas(Cluster().state.registries, quotas((entity, operations)))
    refusal = decided.result[0][1]
    assert (None if refusal is None else (refusal.error, refusal.why)) == (
        None if why is None else (INVALID, why)
    )
    assert refusal is None or not decided.records


def test_entity_named_twice_is_rejected_though_its_first_change_applies() -> None:
    """ClientQuotaControlManager.alterClientQuotas overwrites the first result with the error, not
    its records.
    """
    cluster = Cluster()
    first, second = (
        ((("user", "u"),), ((RATE, 5.0, False),)),
        ((("user", "u"),), ((RATE, 6.0, False),)),
    )
    results = cluster.carry_out(
        decide_alter_quotas(cluster.state.registries, quotas(first, second))
    )
    assert results == [((("user", "u"),), Refusal(INVALID))]
    assert [record.value for record in cluster.state.registries.quotas.records()] == [5.0]


def test_only_changes_are_written() -> None:
    """A quota that is unchanged, or that is removed and was not set, causes no record."""
    cluster = Cluster()
    entry = ((("user", "u"),), ((RATE, 5.0, False),))
    for _ in range(2):
        cluster.carry_out(decide_alter_quotas(cluster.state.registries, quotas(entry)))
    cluster.carry_out(
        decide_alter_quotas(
            cluster.state.registries, quotas(((("user", "v"),), ((RATE, 5.0, True),)))
        )
    )
    assert len(cluster.log) == 2
    cluster.carry_out(
        decide_alter_quotas(
            cluster.state.registries, quotas(((("user", "u"),), ((RATE, 0.0, True),)))
        )
    )
    assert cluster.state.registries.quotas.records() == []


def described(*components: tuple[str, int, str | None], strict: bool = False) -> list[Entity] | str:
    """Describe the quotas of a small cluster; return the entities, or the error."""
    cluster = Cluster()
    for entity in ((("user", "u"),), (("user", None),), (("client-id", "c"), ("user", "u"))):
        cluster.carry_out(
            decide_alter_quotas(cluster.state.registries, quotas((entity, ((RATE, 5.0, False),))))
        )
    cluster.carry_out(
        decide_alter_quotas(
            cluster.state.registries,
            quotas(((("ip", "1.1.1.1"),), (("connection_creation_rate", 5.0, False),))),
        )
    )
    rows = [
        k48.ComponentData(entity_type=kind, match_type=match_type, match=match)
        for kind, match_type, match in components
    ]
    found = describe_quotas(
        cluster.state.registries, k48.DescribeClientQuotasRequest(components=rows, strict=strict)
    )
    return (
        found.why
        if isinstance(found, Refusal)
        else sorted((quota.entity for quota in found), key=repr)
    )


U, BOTH, DEFAULT, IP = (
    (("user", "u"),),
    (("client-id", "c"), ("user", "u")),
    (("user", None),),
    (("ip", "1.1.1.1"),),
)


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ((), False, [BOTH, IP, U, DEFAULT]),
        ((), True, []),
        ((("user", k48.ANY_NAME, None),), False, [BOTH, U, DEFAULT]),
        ((("user", k48.ANY_NAME, None),), True, [U, DEFAULT]),
        ((("user", k48.EXACT_NAME, "u"),), False, [BOTH, U]),
        ((("user", k48.DEFAULT_ENTITY, None),), False, [DEFAULT]),
        ((("user", k48.EXACT_NAME, "u"), ("client-id", k48.ANY_NAME, None)), True, [BOTH]),
        ((("ip", k48.ANY_NAME, None),), False, [IP]),
        ((("user", k48.EXACT_NAME, None),), False,
         "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ((("user", k48.DEFAULT_ENTITY, "x"),), False,
         "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ((("user", k48.ANY_NAME, "x"),), False,
         "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        ((("user", 5, None),), False, "Unknown match type 5"),
        ((("bogus", k48.ANY_NAME, None),), False, "Unsupported entity type bogus"),
        ((("", k48.ANY_NAME, None),), False, "Invalid empty entity type."),
        ((("user", k48.ANY_NAME, None), ("user", k48.EXACT_NAME, "u")), False,
         "Entity type user cannot appear more than once in the filter."),
        ((("user", k48.ANY_NAME, None), ("ip", k48.ANY_NAME, None)), False,
         "Invalid entity filter component combination. IP filter component should "
         "not be used with user or clientId filter component."),
    ],
)  # fmt: skip
def test_quotas_are_described_by_filter(
    components: tuple[tuple[str, int, str | None], ...], strict: bool, expected: list[Entity] | str
) -> None:
    """ClientQuotasImage.describe."""
    assert described(*components, strict=strict) == (
        sorted(expected, key=repr) if isinstance(expected, list) else expected
    )


# Credentials
# --------------------------------------------------------------------------------------------------


def credentials(
    deleted: tuple[tuple[str, int], ...], given: tuple[tuple[str, int, int], ...]
) -> k51.AlterUserScramCredentialsRequest:
    """Request to delete (user, mechanism) and to set (user, mechanism, iterations)."""
    return k51.AlterUserScramCredentialsRequest(
        deletions=[
            k51.ScramCredentialDeletion(name=name, mechanism=mechanism)
            for name, mechanism in deleted
        ],
        upsertions=[
            k51.ScramCredentialUpsertion(
                name=name,
                mechanism=mechanism,
                iterations=iterations,
                salt=b"salt",
                salted_password=b"salted",
            )
            for name, mechanism, iterations in given
        ],
    )


NEVER, TWICE = (
    "Attempt to delete a user credential that does not exist",
    "A user credential cannot be altered twice in the same request",
)


@pytest.mark.parametrize(
    ("deleted", "given", "expected"),
    [
        ((), (("a", 1, 4096), ("b", 2, 16384)), [("a", 0, ""), ("b", 0, "")]),
        ((("x", 1),), (), [("x", 0, "")]),
        ((), (("a", 1, 4095),), [("a", 93, "Too few iterations")]),
        ((), (("a", 1, 16385),), [("a", 93, "Too many iterations")]),
        ((), (("a", 3, 4096),), [("a", 33, "Unknown SCRAM mechanism")]),
        ((), (("", 0, 1),), [("", 93, "Username must not be empty")]),
        ((("z", 1),), (), [("z", 91, NEVER)]),
        ((("x", 2),), (), [("x", 91, NEVER)]),
        ((("x", 9),), (), [("x", 33, "Unknown SCRAM mechanism")]),
        ((("x", 1),), (("x", 1, 4096),), [("x", 92, TWICE)]),
        ((), (("a", 1, 4096), ("a", 2, 4096), ("a", 1, 4096)), [("a", 92, TWICE)]),
        ((), (("a", 1, 1), ("a", 1, 4096)), [("a", 93, "Too few iterations")]),
        (
            (("x", 1),),
            (("c", 1, 4096), ("d", 1, 1)),
            [("x", 0, ""), ("c", 0, ""), ("d", 93, "Too few iterations")],
        ),
    ],
)
def test_credential_validation_messages(
    deleted: tuple[tuple[str, int], ...],
    given: tuple[tuple[str, int, int], ...],
    expected: list[tuple[str, int, str]],
) -> None:
    """ScramControlManager."""
    cluster = Cluster()
    cluster.write(UserScramCredentialRecord(name="x", mechanism=1, iterations=4096))
    decided = decide_alter_credentials(
        cluster.state.registries, MetadataLevel(11), credentials(deleted, given)
    )
    assert [
        (user, refusal.error if refusal else 0, refusal.why if refusal else "")
        for user, refusal in decided.result
    ] == expected
    assert len(decided.records) == len(decided.facts) == sum(code == 0 for _, code, _ in expected)


def test_no_credentials_before_3_5_iv2() -> None:
    """KIP-900."""
    decided = decide_alter_credentials(
        Cluster().state.registries, MetadataLevel(10), credentials((), (("a", 1, 4096),))
    )
    assert decided.result == [("a", Refusal(ErrorCode.UNSUPPORTED_VERSION))] and not decided.records


@pytest.mark.parametrize(("mechanism", "hash_name"), [(1, "sha256"), (2, "sha512")])
def test_client_with_the_password_authenticates_against_the_stored_keys(
    mechanism: int, hash_name: str
) -> None:
    """RFC 5802, the client's side: ClientKey = HMAC(SaltedPassword, "Client Key"), StoredKey =
    H(ClientKey).
    """
    decided = decide_alter_credentials(
        Cluster().state.registries, MetadataLevel(21), credentials((), (("a", mechanism, 4096),))
    )
    record = decided.records[0]
    assert isinstance(record, UserScramCredentialRecord)
    assert (
        record.stored_key
        == hashlib.new(hash_name, hmac.digest(b"salted", b"Client Key", hash_name)).digest()
    )
    assert (record.server_key, record.salt) == (
        hmac.digest(b"salted", b"Server Key", hash_name),
        b"salt",
    )


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, [("a", ((1, 4096), (2, 8192))), ("b", ((1, 5000),))]),
        ((), [("a", ((1, 4096), (2, 8192))), ("b", ((1, 5000),))]),
        (("b",), [("b", ((1, 5000),))]),
        (
            ("z", "b"),
            [
                ("z", "Attempt to describe a user credential that does not exist: z"),
                ("b", ((1, 5000),)),
            ],
        ),
        (
            ("b", "b"),
            [
                (
                    "b",
                    (
                        "Cannot describe SCRAM credentials for the same user twice in a single "
                        "request: b"
                    ),
                )
            ],
        ),
    ],
)
def test_credentials_are_described(
    asked: tuple[str, ...] | None, expected: list[tuple[str, tuple[tuple[int, int], ...] | str]]
) -> None:
    """ScramImage.describe."""
    cluster = Cluster()
    for name, mechanism, iterations in (("b", 1, 5000), ("a", 1, 4096), ("a", 2, 8192)):
        cluster.write(
            UserScramCredentialRecord(name=name, mechanism=mechanism, iterations=iterations)
        )
    users = None if asked is None else [k50.UserName(name=name) for name in asked]
    found = describe_credentials(
        cluster.state.registries, k50.DescribeUserScramCredentialsRequest(users=users)
    )
    assert [
        (row.user, row.credentials)
        if isinstance(row, DescribedCredentials)
        else (row[0], row[1].why)
        for row in found
    ] == expected


# Members
# --------------------------------------------------------------------------------------------------


def test_unregistered_broker_is_removed_from_every_isr_and_the_cluster() -> None:
    """Fenced or not; a second time it is unknown (KIP-631)."""
    cluster = Cluster().with_broker(1).with_broker(2).with_topic("t", 1, 2)
    registered = cluster.state.cluster.broker(1)
    assert registered is not None
    epoch = registered.broker_epoch
    decided = cluster.state.decide_unregister(1)
    assert (
        isinstance(decided, Decision)
        and BrokerUnregistered(broker_id=1, broker_epoch=epoch) in decided.facts
    )
    cluster.carry_out(decided)
    change = cluster.log[-2]
    assert isinstance(change, PartitionChangeRecord) and (change.isr, change.leader) == ([2], 2)
    assert [broker.broker_id for broker in cluster.state.cluster.brokers()] == [2]
    again = cluster.state.decide_unregister(1)
    assert again == Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED) and isinstance(again, Refusal)
    assert again.why == "Broker ID 1 is not currently registered"


@pytest.mark.parametrize(("level", "is_taken"), [(14, False), (15, True)])
def test_controllers_register_since_3_7_iv0(level: int, is_taken: bool) -> None:
    """KIP-919; the contents of their registrations are not validated."""
    cluster = Cluster(level)
    asked = ControllerRegistrationRequest(
        controller_id=102,
        incarnation_id=b"i" * 16,
        listeners=[Listener(name="C", host="h", port=9, security_protocol=0)],
        features=[
            Feature(name="metadata.version", min_supported_version=1, max_supported_version=21)
        ],
    )
    decided = decide_register_controller(cluster.state.features.metadata_level, asked)
    assert isinstance(decided, Decision) is is_taken
    if not isinstance(decided, Decision):
        assert decided == Refusal(ErrorCode.UNSUPPORTED_VERSION)
        return
    cluster.carry_out(decided)
    kept = cluster.state.registries.controllers.get(102)
    assert kept is not None and (
        kept.incarnation_id,
        kept.end_points[0].host,
        kept.features[0].max_supported_version,
    ) == (b"i" * 16, "h", 21)


def test_uncommitted_changes_are_reverted_in_all_registries() -> None:
    """A controller that loses its leadership reverts the records that it replayed early."""
    cluster = Cluster()
    cluster.carry_out(
        decide_alter_quotas(
            cluster.state.registries, quotas(((("user", "u"),), ((RATE, 5.0, False),)))
        )
    )
    cluster.carry_out(
        decide_alter_credentials(
            cluster.state.registries, MetadataLevel(21), credentials((), (("a", 1, 4096),))
        )
    )
    cluster.with_controller(102)
    cluster.state.revert_to(2)
    registries = cluster.state.registries
    assert [record.value for record in registries.quotas.records()] == [5.0]
    assert registries.scram_credentials.records() == [] and registries.controllers.records() == []
