"""Client quotas of users, client ids and IPs: alteration and description.

Source: KIP-546, KIP-612, org.apache.kafka.controller.ClientQuotaControlManager,
org.apache.kafka.image.ClientQuotasImage.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from kraftsim.core.decision import Decision, Refusal
from kraftsim.metadata.events import ClientQuotaChanged
from kraftsim.metadata.rules_registries import QuotaEntity, Registries
from protocol.config_resources import ConfigType
from protocol.errors import ErrorCode
from protocol.messages.k48_describe_client_quotas import (
    ANY_NAME,
    DEFAULT_ENTITY,
    EXACT_NAME,
    ComponentData,
    DescribeClientQuotasRequest,
)
from protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    QuotaAlteration,
)
from protocol.metadata.settings import ClientQuotaRecord, EntityData

USER, CLIENT_ID, IP = "user", "client-id", "ip"
TYPES: Final = (USER, CLIENT_ID, IP)
QUOTAS: Final[Mapping[str, ConfigType]] = {
    "producer_byte_rate": ConfigType.LONG,
    "consumer_byte_rate": ConfigType.LONG,
    "request_percentage": ConfigType.DOUBLE,
    "controller_mutation_rate": ConfigType.DOUBLE,
}
"""Quotas of users and client ids."""
IP_QUOTAS: Final[Mapping[str, ConfigType]] = {"connection_creation_rate": ConfigType.INT}
HIGHEST: Final = {ConfigType.INT: 2**31 - 1, ConfigType.LONG: 2**63 - 1}
FRACTION_MAX: Final = 1e-6
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")

Results: TypeAlias = list[tuple[QuotaEntity, Refusal | None]]


@dataclass(frozen=True, slots=True)
class DescribedQuotas:
    """The quotas of one entity, by name."""

    entity: QuotaEntity
    values: tuple[tuple[str, float], ...]


def decide_alter_quotas(
    registries: Registries, request: AlterClientQuotasRequest
) -> Decision[Results]:
    """Alter quotas; each entity succeeds or fails by itself, one result per entity."""
    results: dict[QuotaEntity, Refusal | None] = {}
    records: dict[QuotaEntity, list[ClientQuotaRecord]] = {}
    for alteration in request.entries:
        entity = _entity_of(alteration)
        if (
            len({operation.key for operation in alteration.ops}) < len(alteration.ops)
            or entity in results
        ):
            results[entity] = Refusal(
                ErrorCode.INVALID_REQUEST,
                f"Ignoring duplicate entity ClientQuotaEntity(entries={_as_map(entity)})",
            )
            continue
        changed = _refuse_entity(entity) or _changed(registries, entity, alteration.ops)
        results[entity] = changed if isinstance(changed, Refusal) else None
        records[entity] = [] if isinstance(changed, Refusal) else changed
    proposed = [record for entity in records for record in records[entity]]
    if request.validate_only:
        return Decision([], list(results.items()))
    return Decision(proposed, list(results.items()), tuple(map(_fact, proposed)))


def describe_quotas(
    registries: Registries, request: DescribeClientQuotasRequest
) -> list[DescribedQuotas] | Refusal:
    """Return the quotas that match all components.

    Fails with INVALID_REQUEST, or UNSUPPORTED_VERSION for an unknown entity type.
    """
    exact: dict[str, str | None] = {}
    any_name: dict[str, None] = {}
    for component in request.components:
        refusal = _refuse_component(component, {*exact, *any_name})
        if refusal is not None:
            return refusal
        if component.match_type == ANY_NAME:
            any_name[component.entity_type] = None
        else:
            exact[component.entity_type] = component.match
    asked = {*exact, *any_name}
    if IP in asked and len(asked) > 1:
        why = (
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
        return Refusal(ErrorCode.INVALID_REQUEST, why)
    return [
        DescribedQuotas(entity, values)
        for entity, values in _by_entity(registries)
        if _meets(dict(entity), exact, any_name)
        and (not request.strict or len(entity) == len(asked))
    ]


def _entity_of(alteration: QuotaAlteration) -> QuotaEntity:
    """Return the entity of an alteration; of duplicate types the last name wins."""
    parts = {part.entity_type: part.entity_name for part in alteration.entity}
    return tuple(sorted(parts.items()))


def _refuse_entity(entity: QuotaEntity) -> Refusal | None:
    if not entity:
        return Refusal(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in TYPES:
            return Refusal(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if name == "":
            return Refusal(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
    names = dict(entity)
    if IP not in names:
        return None
    if len(names) > 1:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            "Invalid quota entity combination, IP entity shouldnot be combined with User or "
            "ClientId",
        )
    address = names[IP]
    return (
        None
        if address is None or _may_be_host(address)
        else Refusal(ErrorCode.INVALID_REQUEST, f"{address} is not a valid IP or resolvable host.")
    )


def _may_be_host(text: str) -> bool:
    """Return whether a text is an address, or a well-formed host name; without a name lookup."""
    try:
        ipaddress.ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return _HOST_NAME.fullmatch(text) is not None
    return True


def _changed(
    registries: Registries, entity: QuotaEntity, operations: Sequence[OpData]
) -> list[ClientQuotaRecord] | Refusal:
    known = IP_QUOTAS if IP in dict(entity) else QUOTAS
    records = []
    for operation in operations:
        present = registries.quotas.get((entity, operation.key))
        if operation.remove:
            if present is not None:
                records.append(
                    ClientQuotaRecord(entity=_parts(entity), key=operation.key, remove=True)
                )
            continue
        refusal = _refuse_quota(known, operation.key, operation.value)
        if refusal is not None:
            return refusal
        if present is None or present.value != operation.value:
            records.append(
                ClientQuotaRecord(entity=_parts(entity), key=operation.key, value=operation.value)
            )
    return records


def _refuse_quota(known: Mapping[str, ConfigType], key: str, value: float) -> Refusal | None:
    kind = known.get(key)
    if kind is None:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}")
    if value <= 0:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Quota {key} must be greater than 0")
    if kind is ConfigType.DOUBLE:
        return None
    if value > HIGHEST[kind]:
        article = "an" if kind is ConfigType.INT else "a"
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Proposed value for {key} is too large for {article} {kind.name}.",
        )
    if value % 1 > FRACTION_MAX:
        return Refusal(ErrorCode.INVALID_REQUEST, f"{key} cannot be a fractional value.")
    return None


def _refuse_component(component: ComponentData, seen: set[str]) -> Refusal | None:
    kind, match = component.entity_type, component.match
    if not kind:
        return Refusal(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
    if kind in seen:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Entity type {kind} cannot appear more than once in the filter.",
        )
    if kind not in TYPES:
        return Refusal(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
    if component.match_type == EXACT_NAME:
        return (
            None
            if match is not None
            else Refusal(
                ErrorCode.INVALID_REQUEST,
                "Request specified MATCH_TYPE_EXACT, but set match string to null.",
            )
        )
    if component.match_type not in (DEFAULT_ENTITY, ANY_NAME):
        return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
    match_type = (
        "MATCH_TYPE_DEFAULT" if component.match_type == DEFAULT_ENTITY else "MATCH_TYPE_SPECIFIED"
    )
    return (
        None
        if match is None
        else Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Request specified {match_type}, but also specified a match string.",
        )
    )


def _meets(
    names: Mapping[str, str | None], exact: Mapping[str, str | None], any_name: Mapping[str, None]
) -> bool:
    return all(kind in names and names[kind] == name for kind, name in exact.items()) and all(
        kind in names for kind in any_name
    )


def _by_entity(
    registries: Registries,
) -> Iterator[tuple[QuotaEntity, tuple[tuple[str, float], ...]]]:
    """Yield entities with their quotas, in an order independent of their insertion."""
    found: dict[QuotaEntity, list[tuple[str, float]]] = {}
    for record in registries.quotas.records():
        entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
        found.setdefault(entity, []).append((record.key, record.value))
    return ((entity, tuple(values)) for entity, values in found.items())


def _parts(entity: QuotaEntity) -> list[EntityData]:
    return [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]


def _as_map(entity: QuotaEntity) -> str:
    """Return an entity in the format of a printed Java map."""
    return (
        "{" + ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity) + "}"
    )


def _fact(record: ClientQuotaRecord) -> ClientQuotaChanged:
    entity = ",".join(
        sorted(f"{part.entity_type}={part.entity_name or ''}" for part in record.entity)
    )
    return ClientQuotaChanged(
        entity=entity,
        key=record.key,
        value=None if record.remove else repr(record.value),
        is_removed=record.remove,
    )
