"""Translates the definitions of earlier releases into the names of the newest, so that only real
differences remain.

Two things were renamed without changing the wire: messages, and coordinator records, which had no
kind of their own.
Source: KIP-704 (AlterIsr became AlterPartition), KIP-1142 (ListClientMetricsResources became
ListConfigResources), KAFKA-18301 (coordinator records).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from protocol.codec.declaration import ALL_VERSIONS, NO_VERSIONS, Declaration, VersionRange
from tools.drift.definitions import DefinedField, Definition
from tools.drift.facts import Facts, Shape

FORMER_NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "AlterIsrRequest": (
        "AlterPartitionRequest",
        "2.8's name; the RPC now changes more of a partition than its in-sync replicas",
    ),
    "AlterIsrResponse": (
        "AlterPartitionResponse",
        "2.8's name; the RPC now changes more of a partition than its in-sync replicas",
    ),
    "ListClientMetricsResourcesRequest": (
        "ListConfigResourcesRequest",
        "the name up to 4.0; v1 lists resources of any type",
    ),
    "ListClientMetricsResourcesResponse": (
        "ListConfigResourcesResponse",
        "the name up to 4.0; v1 lists resources of any type",
    ),
}
"""By former name of a message: its current name, and why."""


def under_present_names(facts: Facts) -> Facts:
    """Return the facts with every renamed message under its current name."""
    found = {name: list(shapes) for name, shapes in facts.items() if name not in FORMER_NAMES}
    for former, (present, _) in FORMER_NAMES.items():
        older = [
            Shape(shape.releases, replace(shape.definition, name=present))
            for shape in facts.get(former, ())
        ]
        found[present] = older + found.get(present, [])
    return found


def in_current_names(definition: Definition, declaration: Declaration) -> Definition:
    """Return the definition of a coordinator record as in 4.0 and later; any other definition
    unchanged.

    Up to 3.9 the records were kind "data" and had no type number: it was the last (or only) version
    of the key's message. Version N of a key is thus version 0 of key type N, and a value has the
    current versions. A key whose last version is not its type stays unchanged.
    """
    if definition.kind != "data" or not declaration.kind.startswith("coordinator-"):
        return definition
    if declaration.kind == "coordinator-value":
        return replace(definition, kind=declaration.kind, api_key=declaration.api_key)
    number = definition.versions.last
    if number != declaration.api_key:
        return definition
    structures = {
        name: tuple(_at_version_0(field, number) for field in fields)
        for name, fields in definition.structures.items()
    }
    return replace(
        definition,
        kind=declaration.kind,
        api_key=number,
        versions=VersionRange(0, 0),
        structures=structures,
    )


def _at_version_0(field: DefinedField, number: int) -> DefinedField:
    assert field.tag is None and field.flexible is None, "keys are not flexible"
    return replace(
        field,
        versions=_all_or_none(field.versions, number),
        nullable=_all_or_none(field.nullable, number),
    )


def _all_or_none(versions: VersionRange, number: int) -> VersionRange:
    return ALL_VERSIONS if number in versions else NO_VERSIONS
