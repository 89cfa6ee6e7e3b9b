"""Compares the declarations here with Apache Kafka's definitions, version by version and field by
field.

For every version that both sides have, the layout must be the same: names, types, order,
nullability, tags, compactness. Defaults and which fields may be dropped silently are compared with
the newest release that has the field. `exceptions` lists the intended differences.
"""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import protocol
from protocol.codec.declaration import ArrayOf, Declaration, StructureOf
from protocol.codec.tree import Field, fields_of
from protocol.schema import declaration_of
from tools.drift.definitions import TOP, Definition
from tools.drift.exceptions import (
    ALLOWED,
    NOT_COMPARED,
    NOT_DECLARED,
    RENAMED,
    VERSIONS_LEFT_OUT,
    present_name,
)
from tools.drift.facts import Facts, Shape
from tools.drift.former_names import FORMER_NAMES, in_current_names, under_present_names
from tools.drift.layouts import declared_layout, defined_layout

# --------------------------------------------------------------------------------------------------
# Every message class that is declared in `protocol`, found by importing all of its modules, so
# that a new one cannot be missed.
#
# Source: none of Kafka's; the completeness makes "no drift in either direction" meaningful.

NEVER_BUILT = "protocol.lease_pid."


@cache
def declared_messages() -> tuple[type, ...]:
    """Return the classes in the order of their modules' names; nested structures are not among
    them.
    """
    found: list[type] = []
    for name in sorted(
        module.name for module in pkgutil.walk_packages(protocol.__path__, "protocol.")
    ):
        if not name.endswith("__main__"):
            for value in vars(importlib.import_module(name)).values():
                is_declared_here = (
                    isinstance(value, type)
                    and value.__module__ == name
                    and hasattr(value, "__declaration__")
                )
                if is_declared_here and declaration_of(value).kind != "structure":
                    found.append(value)
    return tuple(found)


def kafkas_messages() -> tuple[type, ...]:
    """Return those that Apache Kafka defines: not ZooKeeper's, which have no definition files, nor
    those of a design that was never built.
    """
    return tuple(
        cls
        for cls in declared_messages()
        if declaration_of(cls).kind != "zookeeper" and not cls.__module__.startswith(NEVER_BUILT)
    )


def drifts(facts: Facts) -> list[str]:
    """Return one line per difference, and per exception that hides none; empty if the declarations
    match Kafka's.
    """
    declarations = [declaration_of(cls) for cls in kafkas_messages()]
    found: list[str] = []
    present_facts = under_present_names(facts)
    for declaration in declarations:
        shapes = present_facts.get(declaration.name)
        found += (
            _drifts_of_message(declaration, shapes)
            if shapes
            else [f"{declaration.name}: the file of facts does not have it"]
        )
    names = {declaration.name for declaration in declarations}
    found += [
        f"{name}: an exception for a message that is not declared"
        for name in (*VERSIONS_LEFT_OUT, *RENAMED, *ALLOWED)
        if name not in names
    ]
    return found


def undeclared(facts: Facts) -> list[str]:
    """Return one line per message of Kafka that is neither declared nor excepted, and per exception
    without a message.
    """
    declared = {declaration_of(cls).name for cls in kafkas_messages()}
    found = [
        f"{name}: Kafka defines it, and it is not declared"
        for name in under_present_names(facts)
        if name not in {*declared, *NOT_DECLARED}
    ]
    found += [
        f"{name}: it is declared, in spite of an exception"
        for name in NOT_DECLARED
        if name in declared
    ]
    found += [
        f"{name}: no release defines what an exception is for"
        for name in (*NOT_DECLARED, *FORMER_NAMES)
        if name not in facts
    ]
    return found


def _drifts_of_message(declaration: Declaration, shapes: Sequence[Shape]) -> Iterator[str]:
    name = declaration.name
    compared = [
        Shape(shape.releases, in_current_names(shape.definition, declaration))
        for shape in shapes
        if not _is_left_out(declaration, shape)
    ]
    yield from (f"{name}: {line}" for line in _drifts_of_versions(declaration, compared))
    allowed = ALLOWED.get(name, {})
    hidden: list[str] = []
    seen: set[str] = set()
    for shape in reversed(compared):
        lines = [
            *_drifts_of_shape(declaration, shape.definition, is_newest=shape is compared[-1]),
            *_drifts_of_names(declaration, fields_of(declaration), shape.definition, TOP, "", seen),
        ]
        for line in lines:
            reasons = [start for start in allowed if line.startswith(start)]
            hidden += reasons
            if not reasons:
                yield f"{name} ({shape.releases[-1]}): {line}"
    yield from (
        f"{name}: nothing begins with {start!r} any more"
        for start in allowed
        if start not in hidden
    )
    fields = {
        (structure, field.name)
        for shape in compared
        for structure, fields in shape.definition.structures.items()
        for field in fields
    }
    their_names = {
        spelling for structure, field in fields for spelling in (field, f"{structure}.{field}")
    }
    yield from (
        f"{name}: nothing is called {word} any more"
        for word in RENAMED.get(name, {})
        if word not in their_names
    )


def _is_left_out(declaration: Declaration, shape: Shape) -> bool:
    return all(
        (declaration.kind, release) in NOT_COMPARED or (declaration.name, release) in NOT_COMPARED
        for release in shape.releases
    )


def _drifts_of_versions(declaration: Declaration, shapes: Sequence[Shape]) -> Iterator[str]:
    left_out = VERSIONS_LEFT_OUT.get(declaration.name, {})
    defined = sorted({version for shape in shapes for version in _versions(shape.definition)})
    declared = list(range(declaration.versions.first, declaration.versions.last + 1))
    wanted = [version for version in defined if version not in left_out]
    if declared != wanted:
        yield (
            f"versions {declared} are declared, Kafka has {wanted} besides those left out on "
            "purpose"
        )
    if not set(left_out) <= set(defined):
        yield f"versions {sorted(left_out)} are left out, Kafka has {defined}"


def _drifts_of_shape(
    declaration: Declaration, definition: Definition, *, is_newest: bool
) -> Iterator[str]:
    if (declaration.kind, declaration.api_key) != (definition.kind, definition.api_key):
        yield (
            f"it is {declaration.kind} {declaration.api_key}, Kafka says {definition.kind} "
            f"{definition.api_key}"
        )
    for version in _versions(definition):
        if version in declaration.versions:
            theirs = defined_layout(definition, version)
            ours = declared_layout(declaration, version)
            if not is_newest:
                # A later release may add tagged fields to a version that exists already (KIP-482).
                known = {slot.path for slot in theirs}
                ours = [slot for slot in ours if not slot.is_tagged or slot.path in known]
            different = next(
                (pair for pair in zip(ours, theirs, strict=False) if pair[0] != pair[1]), None
            )
            if different:
                yield f"v{version}: {different[0]}, Kafka has {different[1]}"
            elif len(ours) != len(theirs):
                yield (
                    f"v{version}: only on one side is "
                    f"{max(ours, theirs, key=len)[min(len(ours), len(theirs))]}"
                )
    is_unstable = (
        definition.latest_unstable and declaration.versions.last == definition.versions.last
    )
    if is_newest and declaration.latest_unstable != is_unstable:
        yield f"latest_unstable is {declaration.latest_unstable}"


def _drifts_of_names(
    declaration: Declaration,
    ours: Iterable[Field],
    definition: Definition,
    structure: str,
    path: str,
    seen: set[str],
) -> Iterator[str]:
    """Compare version-independent properties (names, defaults, which may be dropped silently) of
    fields that no newer release had in `seen`.
    """
    for their_field in definition.structures[structure]:
        their_name = present_name(definition.name, structure, their_field.name)
        our_field = next((field for field in ours if field.is_called(their_name)), None)
        where = f"{path}{their_name}"
        if our_field is None:
            if their_field.versions.intersection(declaration.versions):
                yield f"{where} is missing"
            continue
        is_structure = their_field.element_type in definition.structures
        if where not in seen:
            seen.add(where)
            if our_field.default != their_field.default_value or type(
                our_field.default
            ) is not type(their_field.default_value):
                yield (
                    f"{where}: default {our_field.default!r}, Kafka has "
                    f"{their_field.default_value!r}"
                )
            if our_field.ignorable != their_field.ignorable:
                yield f"{where}: ignorable is {our_field.ignorable}"
            if is_structure and our_field.kafka_type != their_field.type:
                yield f"{where}: it is a {our_field.kafka_type}, Kafka says {their_field.type}"
        element = our_field.type.element if isinstance(our_field.type, ArrayOf) else our_field.type
        if is_structure and isinstance(element, StructureOf):
            fields = fields_of(declaration_of(element.structure))
            yield from _drifts_of_names(
                declaration, fields, definition, their_field.element_type, f"{where}.", seen
            )


def _versions(definition: Definition) -> range:
    return range(definition.versions.first, definition.versions.last + 1)
