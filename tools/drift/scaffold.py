"""Prints a declaration from a definition: the first draft of a message file, which is then
maintained manually.

What no definition contains (the purpose of the message, what a version changed, its errors) is left
as a gap to be filled.
"""

from collections.abc import Iterable

from protocol.codec.declaration import LAST_VERSION, Fresh, Primitive, snake_case
from tools.drift.definitions import TOP, DefinedField, Definition

FUNCTIONS = {primitive.value: primitive.value for primitive in Primitive} | {
    "bool": "boolean",
    "bytes": "byte_string",
}
PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "uuid": "bytes",
    "records": "bytes | memoryview",
}
GAP = '"""Say what it is for."""'


def scaffold(definition: Definition) -> str:
    """Return the declaration as Python source, inner structures first."""
    classes = [
        _class(name, _structure_decorator(), definition.structures[name])
        for name in _inner_first(definition)
    ]
    classes.append(
        _class(definition.name, _message_decorator(definition), definition.structures[TOP])
    )
    used = sorted(
        {
            function
            for name in definition.structures
            for field in definition.structures[name]
            for function in _functions(field)
        }
    )
    decorators = ["message", *(["structure"] if len(definition.structures) > 1 else [])]
    return (
        f"from protocol.schema import {', '.join(sorted([*used, *decorators]))}\n\n\n"
        + "\n\n\n".join(classes)
        + "\n"
    )


def _inner_first(definition: Definition) -> list[str]:
    """Return the names of the structures so that each precedes its first use."""
    ordered: list[str] = []

    def visit(name: str) -> None:
        for field in definition.structures[name]:
            if field.element_type in definition.structures:
                visit(field.element_type)
        if name not in (*ordered, TOP):
            ordered.append(name)

    visit(TOP)
    return ordered


def _message_decorator(definition: Definition) -> str:
    options = [] if definition.api_key is None else [f"key={definition.api_key}"]
    if definition.kind not in ("request", "response"):
        options.append(f'kind="{definition.kind}"')
    options += (f'versions="{definition.versions}"', f'flexible="{definition.flexible}"')
    if definition.latest_unstable:
        options.append("latest_unstable=True")
    return f"@message({', '.join(options)})"


def _structure_decorator() -> str:
    return "@structure"


def _class(name: str, decorator: str, fields: Iterable[DefinedField]) -> str:
    lines = [decorator, f"class {name}:", f"    {GAP}", ""]
    return "\n".join([*lines, *(f"    {_field(field)}" for field in fields)])


def _field(field: DefinedField) -> str:
    options = []
    function = FUNCTIONS.get(field.type)
    if function is None:
        is_array = field.type.startswith("[]")
        function = "array" if is_array else "struct"
        options.append(FUNCTIONS.get(field.element_type, field.element_type))
    options += _version_options(field)
    if field.nullable:
        options.append(f'nullable="{field.nullable}"')
    if field.default_value is None and field.type != "records":
        options.append("default=None")
    elif field.default_value not in (0, "", b"", bytes(16), None) and not isinstance(
        field.default_value, Fresh
    ):
        options.append(f"default={field.default_value!r}")
    if field.ignorable:
        options.append("ignorable=True")
    if field.flexible is not None:
        options.append(f'flexible="{field.flexible}"')
    return f"{snake_case(field.name)}: {_annotation(field)} = {function}({', '.join(options)})"


def _version_options(field: DefinedField) -> list[str]:
    options = []
    if field.tag is None or field.tagged != field.versions:
        if field.versions.first > 0:
            options.append(f"since={field.versions.first}")
        if field.versions.last != LAST_VERSION:
            options.append(f"until={field.versions.last}")
    if field.tag is not None:
        options += (f"tag={field.tag}", f'tagged="{field.tagged}"')
    return options


def _annotation(field: DefinedField) -> str:
    element = PYTHON_TYPES.get(
        field.element_type, "int" if field.element_type in FUNCTIONS else field.element_type
    )
    whole = f"list[{element}]" if field.type.startswith("[]") else element
    return f"{whole} | None" if field.nullable or field.type == "records" else whole


def _functions(field: DefinedField) -> list[str]:
    """Return the imports from protocol.schema that a field needs."""
    primitive = FUNCTIONS.get(field.element_type)
    if field.type.startswith("[]"):
        return ["array", *([primitive] if primitive else [])]
    return [primitive or "struct"]
