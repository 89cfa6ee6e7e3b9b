"""What a broker refuses of changed configurations before it hands the rest on to the controller: what only it can know to be wrong.

A broker looks at settings of brokers, of itself and of all, because the controller takes any value for them.
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
from protocol.messages.k44_incremental_alter_configs import APPEND, DELETE, SET, SUBTRACT, AlterableConfig, AlterConfigsResource

AnyResource: TypeAlias = AlterConfigsResource | ReplacedResource
Holds: TypeAlias = Callable[[str], str | None]
TWICE: Final = Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
SAME_KEY_TWICE: Final = Refusal(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def _nothing_holds(name: str) -> None:
    """Return that nothing holds under a name."""


def count_resources(resources: Iterable[AnyResource]) -> Counter[tuple[int, str]]:
    """Return how often a request names each (resource type, resource name): counted once for all resources."""
    return Counter((each.resource_type, each.resource_name) for each in resources)


def refuse_common(times: Mapping[tuple[int, str], int], resource: AnyResource) -> Refusal | None:
    """Return what is wrong with a resource at a glance, or None. `times` is what `count_resources` counted."""
    if times[resource.resource_type, resource.resource_name] > 1:
        return TWICE
    if len({config.name for config in resource.configs}) < len(resource.configs):
        return SAME_KEY_TWICE
    without_value = [config.name for config in resource.configs if config.value is None and getattr(config, "config_operation", SET) != DELETE]
    if without_value:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(without_value)}")
    return None


def refuse_type(resource: AnyResource, allowed: frozenset[ConfigResourceType]) -> Refusal | None:
    """Return that a type of resource is unknown, or None."""
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
    """Return why settings of a broker cannot be changed so, or None.

    `present` is what was set on it before, `holds` returns what holds for it under a name.
    """
    refusal = _refuse_other_broker(node_id, resource.resource_name)
    if refusal is not None:
        return refusal
    values = dict(present)
    unknown = next((each.config_operation for each in resource.configs if each.config_operation not in (SET, DELETE, APPEND, SUBTRACT)), None)
    if unknown is not None:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown operations type {unknown}")
    for operation in resource.configs:
        refusal = _apply(tables, values, operation)
        if refusal is not None:
            return refusal
    changed = [operation.name for operation in resource.configs]
    return _refuse_values(tables, values, resource.resource_name, changed, holds)


def refuse_replaced_broker(tables: ConfigTables, node_id: int, resource: ReplacedResource, holds: Holds = _nothing_holds) -> Refusal | None:
    """Return why the settings of a broker cannot be these, or None. `holds` as above."""
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
    return None if is_own else Refusal(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}")


def _apply(tables: ConfigTables, values: dict[str, str], operation: AlterableConfig) -> Refusal | None:
    """Carry out one operation on the values, or say why it cannot be."""
    name, text = operation.name, operation.value
    if operation.config_operation == SET:
        assert text is not None, "a null value was refused before"
        values[name] = text
    elif operation.config_operation == DELETE:
        values.pop(name, None)
    else:
        assert text is not None, "a null value was refused before"
        config = tables.broker.get(name)
        if config is None:
            return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)  # a look-up that nobody catches (before 4.4)
        verb = "append" if operation.config_operation == APPEND else "subtract"
        if not config.is_list:
            return Refusal(ErrorCode.INVALID_CONFIG, f"Config value {verb} is not allowed for config key: {name}")
        parts = [part for part in values.get(name, config.default or "").split(",") if part]
        changed = java_split(text)
        present = frozenset(parts)
        values[name] = ",".join([*parts, *(part for part in changed if part not in present)] if verb == "append" else _without(parts, changed))
    return None


def _without(parts: list[str], taken: Sequence[str]) -> list[str]:
    gone = frozenset(taken)
    return [part for part in parts if part not in gone]


def _refuse_values(tables: ConfigTables, values: Mapping[str, str], name: str, changed: Collection[str], holds: Holds) -> Refusal | None:
    complaint = tables.complaint_about_dynamic(values, is_for_all=not name)
    if complaint is None:
        definitions = {each: tables.definition_of(each) for each in changed if each in values}
        known = {each: values[each] for each, definition in definitions.items() if definition is not None and definition.is_dynamic}
        complaint = complaint_about_change(known, holds, is_advertised_dynamic=tables.is_dynamic(ADVERTISED))
    return None if complaint is None else Refusal(ErrorCode.INVALID_REQUEST, complaint)
