"""AlterClientQuotas (49) and DescribeClientQuotas (48).

Source: KIP-546, KIP-612, org.apache.kafka.controller.ClientQuotaControlManager.
"""

from kraftsim.conformance.expect import expect_equal, expect_error, settled
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k48_describe_client_quotas import (
    ANY_NAME,
    DEFAULT_ENTITY,
    EXACT_NAME,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    QuotaAlteration,
    QuotaAlterationResult,
)

REQUIREMENTS = Requirements("quotas", 1, "Client quotas")
CONTROL = "ClientQuotaControlManager"
IMAGE = "org.apache.kafka.image.ClientQuotasImage.describe"
RATE, CREATION = "producer_byte_rate", "connection_creation_rate"
Entity = tuple[tuple[str, str | None], ...]


def _alter(
    target: Target,
    entity: Entity,
    *operations: OpData,
    version: int | None = None,
    validate_only: bool = False,
) -> QuotaAlterationResult:
    row = QuotaAlteration(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=list(operations),
    )
    chosen = target.newest(ApiKey.ALTER_CLIENT_QUOTAS) if version is None else version
    with target.peer() as peer:
        return peer.ask(
            AlterClientQuotasRequest(entries=[row], validate_only=validate_only),
            chosen,
            AlterClientQuotasResponse,
        ).entries[0]


def _altered(
    target: Target, entity: Entity, *operations: OpData, version: int | None = None
) -> None:
    row = _alter(target, entity, *operations, version=version)
    expect_error(row.error_code, ErrorCode.NONE, f"{entity}: {row.error_message}")


def _describe(
    target: Target,
    *components: tuple[str, int, str | None],
    strict: bool = False,
    version: int | None = None,
) -> DescribeClientQuotasResponse:
    rows = [
        ComponentData(entity_type=kind, match_type=match_type, match=match)
        for kind, match_type, match in components
    ]
    chosen = target.newest(ApiKey.DESCRIBE_CLIENT_QUOTAS) if version is None else version
    with target.peer() as peer:
        return peer.ask(
            DescribeClientQuotasRequest(components=rows, strict=strict),
            chosen,
            DescribeClientQuotasResponse,
        )


def _described(target: Target, user: str, version: int | None = None) -> dict[str, float]:
    """Return the quotas of exactly one user."""
    answer = _describe(target, ("user", EXACT_NAME, user), strict=True, version=version)
    return {value.key: value.value for entry in answer.entries or [] for value in entry.values}


def _set(key: str, value: float) -> OpData:
    return OpData(key=key, value=value, remove=False)


def _remove(key: str) -> OpData:
    return OpData(key=key, value=0.0, remove=True)


@REQUIREMENTS.that(
    1, "a quota that is set is returned, and absent once it is removed", source="KIP-546"
)
def set_and_remove(target: Target) -> None:
    for version in target.versions(ApiKey.ALTER_CLIENT_QUOTAS):
        _set_and_removed(target, target.fresh_name(), version)


def _set_and_removed(target: Target, user: str, version: int) -> None:
    expected = {RATE: 1000.0, "request_percentage": 1.5}
    _altered(
        target,
        (("user", user),),
        *(_set(key, value) for key, value in expected.items()),
        version=version,
    )
    settled(
        lambda: _described(target, user),
        lambda found: found == expected,
        f"version {version}: quotas",
    )
    _altered(target, (("user", user),), *map(_remove, expected), version=version)
    settled(
        lambda: _described(target, user), lambda found: found == {}, f"version {version}: no quotas"
    )


@REQUIREMENTS.that(
    2, "filter components match by name, by default, or any name, strictly or not", source=IMAGE
)
def conditions(target: Target) -> None:
    user, client = target.fresh_name(), target.fresh_name()
    both: Entity = (("client-id", client), ("user", user))
    _altered(target, (("user", user),), _set(RATE, 5.0))
    _altered(target, both, _set(RATE, 6.0))
    settled(
        lambda: len(_describe(target, ("user", EXACT_NAME, user)).entries or []),
        lambda count: count == 2,
        "two quotas of a user, one with a client id",
    )
    for version in target.versions(ApiKey.DESCRIBE_CLIENT_QUOTAS):
        expect_equal(
            _described(target, user, version), {RATE: 5.0}, f"version {version}: the user alone"
        )
        answer = _describe(
            target, ("user", EXACT_NAME, user), ("client-id", ANY_NAME, None), version=version
        )
        found = [
            sorted((part.entity_type, part.entity_name or "") for part in entry.entity)
            for entry in answer.entries or []
        ]
        expect_equal(
            found,
            [[("client-id", client), ("user", user)]],
            f"version {version}: the user with any client id",
        )
    for entity in ((("user", user),), both):
        _altered(target, entity, _remove(RATE))


@REQUIREMENTS.that(
    3,
    "an invalid quota entity is rejected with INVALID_REQUEST and Kafka's error message",
    source=CONTROL,
)
def bad_entities(target: Target) -> None:
    bad: dict[Entity, str] = {
        (): "Invalid empty client quota entity",
        (("bogus", "u"),): "Unhandled client quota entity type: bogus",
        (("user", ""),): "Empty user not supported",
        (("ip", "not a host!"),): "not a host! is not a valid IP or resolvable host.",
    }
    for entity, why in bad.items():
        row = _alter(target, entity, _set(RATE, 5.0))
        expect_equal(
            (row.error_code, row.error_message),
            (int(ErrorCode.INVALID_REQUEST), why),
            f"entity {entity}",
        )


@REQUIREMENTS.that(
    4,
    "an invalid quota is rejected with INVALID_REQUEST and Kafka's error message",
    source=f"{CONTROL}.validateQuotaKeyValue",
    since="3.5",
)
def bad_values(target: Target) -> None:
    user: Entity = (("user", target.fresh_name()),)
    bad: list[tuple[Entity, str, float, str]] = [
        (user, "no.such", 5.0, "Invalid configuration key no.such"),
        (user, CREATION, 5.0, f"Invalid configuration key {CREATION}"),
        ((("ip", "127.0.0.9"),), RATE, 5.0, f"Invalid configuration key {RATE}"),
        (user, RATE, 0.0, f"Quota {RATE} must be greater than 0"),
        (user, RATE, 1.5, f"{RATE} cannot be a fractional value."),
        (user, RATE, 1e30, f"Proposed value for {RATE} is too large for a LONG."),
        (
            (("ip", "127.0.0.9"),),
            CREATION,
            5e12,
            f"Proposed value for {CREATION} is too large for an INT.",
        ),
    ]
    for entity, key, value, why in bad:
        row = _alter(target, entity, _set(key, value))
        expect_equal(
            (row.error_code, row.error_message),
            (int(ErrorCode.INVALID_REQUEST), why),
            f"{key}={value}",
        )


@REQUIREMENTS.that(5, "ambiguous filter components are rejected, without entries", source=IMAGE)
def bad_conditions(target: Target) -> None:
    bad: list[tuple[tuple[str, int, str | None], ErrorCode, str]] = [
        (
            ("user", EXACT_NAME, None),
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            ("user", DEFAULT_ENTITY, "x"),
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (("user", 5, None), ErrorCode.INVALID_REQUEST, "Unknown match type 5"),
        (("", ANY_NAME, None), ErrorCode.INVALID_REQUEST, "Invalid empty entity type."),
        (("bogus", ANY_NAME, None), ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type bogus"),
    ]
    for component, error, why in bad:
        answer = _describe(target, component)
        expect_equal(
            (answer.error_code, answer.error_message, answer.entries),
            (int(error), why, None),
            f"condition {component}",
        )


@REQUIREMENTS.that(
    6, "validate_only performs the checks of a change without changing anything", source="KIP-546"
)
def validate_only(target: Target) -> None:
    user = target.fresh_name()
    expect_error(
        _alter(target, (("user", user),), _set(RATE, 5.0), validate_only=True).error_code,
        ErrorCode.NONE,
        "a quota",
    )
    expect_error(
        _alter(target, (("user", user),), _set(RATE, -5.0), validate_only=True).error_code,
        ErrorCode.INVALID_REQUEST,
        "a bad quota",
    )
    _altered(target, (("user", user),), _set("consumer_byte_rate", 7.0))
    settled(
        lambda: _described(target, user),
        lambda found: found == {"consumer_byte_rate": 7.0},
        "the other quota alone",
    )
    _altered(target, (("user", user),), _remove("consumer_byte_rate"))
