"""Validation of configuration changes on the broker, before it forwards them to the controller.

A broker validates its own and the cluster-wide broker configurations, as the controller accepts any
value for them.
Source: kafka.server.ConfigAdminManager.preprocess, KIP-590.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from kraftsim.core.decision import Refusal
from kraftsim.core.metadata.config_definitions import java_split
from kraftsim.core.metadata.config_tables import ConfigTables
from kraftsim.core.metadata.dynamic_rules import ADVERTISED, complaint_about_change
from protocol.config_resources import ConfigResourceType
from protocol.disk.java_integers import parse_int32
from protocol.errors import ErrorCode
from protocol.messages.k33_alter_configs import AlterConfigsResource as ReplacedResource
from protocol.messages.k44_incremental_alter_configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    AlterableConfig,
    AlterConfigsResource,
)

AnyResource: TypeAlias = AlterConfigsResource | ReplacedResource
Holds: TypeAlias = Callable[[str], str | None]
TWICE: Final = Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
DUPLICATE_KEY: Final = Refusal(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def _nothing_holds(name: str) -> None:
    """Return None: no value is set."""


def count_resources(resources: Iterable[AnyResource]) -> Counter[tuple[int, str]]:
    """Return how often each (resource type, resource name) occurs in a request: counted once for
    all resources.
    """
    return Counter((each.resource_type, each.resource_name) for each in resources)


def refuse_common(times: Mapping[tuple[int, str], int], resource: AnyResource) -> Refusal | None:
    """Return the error of a duplicate or malformed resource, or None.

    `times` is the result of `count_resources`.
    """
    if times[resource.resource_type, resource.resource_name] > 1:
        return TWICE
    if len({config.name for config in resource.configs}) < len(resource.configs):
        return DUPLICATE_KEY
    without_value = [
        config.name
        for config in resource.configs
        if config.value is None and getattr(config, "config_operation", SET) != DELETE
    ]
    if without_value:
        return Refusal(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(without_value)}"
        )
    return None


def refuse_type(resource: AnyResource, allowed: frozenset[ConfigResourceType]) -> Refusal | None:
    """Return the error of an unsupported resource type, or None."""
    if resource.resource_type in allowed:
        return None
    return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def refuse_altered_broker(
    tables: ConfigTables,
    node_id: int,
    resource: AlterConfigsResource,
    present: Mapping[str, str],
    holds: Holds = _nothing_holds,
) -> Refusal | None:
    """Return the error of incremental broker changes, or None.

    `present` are the broker's values before the change, `holds` returns the effective value of a
    name.
    """
    refusal = _refuse_other_broker(node_id, resource.resource_name)
    if refusal is not None:
        return refusal
    values = dict(present)
    unknown = next(
        (
            each.config_operation
            for each in resource.configs
            if each.config_operation not in (SET, DELETE, APPEND, SUBTRACT)
        ),
        None,
    )
    if unknown is not None:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown operations type {unknown}")
    for operation in resource.configs:
        refusal = _apply(tables, values, operation)
        if refusal is not None:
            return refusal
    changed = [operation.name for operation in resource.configs]
    return _refuse_values(tables, values, resource.resource_name, changed, holds)


def refuse_replaced_broker(
    tables: ConfigTables, node_id: int, resource: ReplacedResource, holds: Holds = _nothing_holds
) -> Refusal | None:
    """Return the error of replaced broker configurations, or None. `holds` as above."""
    values = {config.name: config.value for config in resource.configs if config.value is not None}
    other = _refuse_other_broker(node_id, resource.resource_name)
    return other or _refuse_values(tables, values, resource.resource_name, list(values), holds)


def _refuse_other_broker(node_id: int, name: str) -> Refusal | None:
    if not name:
        return None
    try:
        is_own = parse_int32(name) == node_id
    except ValueError:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    return (
        None
        if is_own
        else Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {node_id}, but received {name}",
        )
    )


def _apply(
    tables: ConfigTables, values: dict[str, str], operation: AlterableConfig
) -> Refusal | None:
    """Apply one operation to the values, or return its error."""
    name, text = operation.name, operation.value
    if operation.config_operation == SET:
        assert text is not None, "a null value was rejected before"
        values[name] = text
    elif operation.config_operation == DELETE:
        values.pop(name, None)
    else:
        assert text is not None, "a null value was rejected before"
        config = tables.broker.get(name)
        if config is None:
            return Refusal(
                ErrorCode.UNKNOWN_SERVER_ERROR
            )  # an uncaught exception of the lookup (before 4.4)
        verb = "append" if operation.config_operation == APPEND else "subtract"
        if not config.is_list:
            return Refusal(
                ErrorCode.INVALID_CONFIG,
                f"Config value {verb} is not allowed for config key: {name}",
            )
        parts = [part for part in values.get(name, config.default or "").split(",") if part]
        changed = java_split(text)
        present = frozenset(parts)
        values[name] = ",".join(
            [*parts, *(part for part in changed if part not in present)]
            if verb == "append"
            else _without(parts, changed)
        )
    return None


def _without(parts: list[str], taken: Sequence[str]) -> list[str]:
    gone = frozenset(taken)
    return [part for part in parts if part not in gone]


def _refuse_values(
    tables: ConfigTables,
    values: Mapping[str, str],
    name: str,
    changed: Collection[str],
    holds: Holds,
) -> Refusal | None:
    complaint = tables.complaint_about_dynamic(values, is_for_all=not name)
    if complaint is None:
        definitions = {each: tables.definition_of(each) for each in changed if each in values}
        known = {
            each: values[each]
            for each, definition in definitions.items()
            if definition is not None and definition.is_dynamic
        }
        complaint = complaint_about_change(
            known, holds, is_advertised_dynamic=tables.is_dynamic(ADVERTISED)
        )
    return None if complaint is None else Refusal(ErrorCode.INVALID_REQUEST, complaint)
