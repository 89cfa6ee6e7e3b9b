"""Messages as JSON in the format of Kafka's tools and files: `quorum-state`, kafka-dump-log, the
request log.

Every field of the version has Kafka's name with a lower-case first letter, tagged ones only if they
differ from their default; bytes are base64, uuids as usual. Unknown tagged fields are left out.
Source: the JsonConverter classes that Kafka generates (JsonConverterGenerator).
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, NamedTuple, TypeAlias

from protocol.codec import store
from protocol.codec.declaration import (
    INTEGER_RANGES,
    Message,
    Primitive,
    UnknownVersion,
    declaration_of,
)
from protocol.codec.slow import RUNTIME
from protocol.malformed import MalformedMessage
from protocol.uuids import parse_uuid_text, uuid_text

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class JsonArray(NamedTuple):
    """A list."""

    element: "Primitive | JsonStructure"


class JsonField(NamedTuple):
    """A field that is in the version; `is_default` and `default` are those of its declaration."""

    name: str
    attribute: str
    kind: "Primitive | JsonArray | JsonStructure"
    nullable: bool
    is_tagged: bool
    is_default: Callable[[Message], bool]
    default: Callable[[], object]


class JsonStructure(NamedTuple):
    """A message or structure at one version, in the order of the declaration; `guarded` fields are
    not in the version and must have their default.
    """

    cls: type
    version: int
    fields: tuple[JsonField, ...]
    guarded: tuple[tuple[str, Callable[[Message], bool]], ...]


SCOPE: Final = {
    **RUNTIME,
    "JsonArray": JsonArray,
    "JsonField": JsonField,
    "JsonStructure": JsonStructure,
    "Primitive": Primitive,
}


def message_to_json(message: Message, version: int) -> dict[str, Json]:
    """Return what Kafka would print for a message at a declared version.

    Raises MalformedMessage for a value that it would lose.
    """
    return _structure_to_json(_json_structure(_class_of(message), version), message)


def message_from_json(cls: type, found: object, version: int) -> Message:
    """Return the message of `message_to_json`.

    Raises MalformedMessage with the path of a field that is missing, of another type, or out of
    range.
    """
    try:
        return _structure_from_json(_json_structure(cls, version), found, "")
    except _WrongJson as wrong:
        raise MalformedMessage(
            declaration_of(cls).api_key, version, wrong.path, wrong.reason
        ) from None


def _class_of(message: Message) -> type:
    cls: type = type(message)
    return cls


@cache
def _json_structure(cls: type, version: int) -> JsonStructure:
    """Return what the compiler wrote down of the construct tree for this purpose."""
    declaration = declaration_of(cls)
    if version not in declaration.versions:
        raise UnknownVersion(declaration.name, declaration.versions, version)

    def source() -> str:
        from protocol.codec.compiler import json_source

        return json_source(cls, version)

    found: JsonStructure = store.generated(cls, version, "json", source, {**SCOPE})["JSON"]
    return found


class _WrongJson(Exception):
    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason


def _structure_to_json(structure: JsonStructure, message: Message) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for name, is_default in structure.guarded:
        value = getattr(message, name)
        if not is_default(value):
            raise MalformedMessage(
                None, structure.version, name, f"{value!r} in a version that lacks the field"
            )
    for field in structure.fields:
        value = getattr(message, field.attribute)
        if not (field.is_tagged and field.is_default(value)):
            found[field.name] = _to_json(field.kind, value)
    return found


def _to_json(kind: Primitive | JsonArray | JsonStructure, value: Message) -> Json:
    if value is None:
        return None
    match kind:
        case JsonStructure():
            return _structure_to_json(kind, value)
        case JsonArray(element):
            return [_to_json(element, each) for each in value]
        case Primitive.UUID:
            return uuid_text(value)
        case Primitive.BYTES | Primitive.RECORDS:
            return base64.b64encode(value).decode()
    plain: bool | int | float | str = value
    return plain


def _structure_from_json(structure: JsonStructure, found: object, path: str) -> Message:
    if not isinstance(found, Mapping):
        raise _WrongJson(path, "no object")
    values: dict[str, object] = {}
    for field in structure.fields:
        where = f"{path}.{field.name}" if path else field.name
        if field.name in found:
            values[field.attribute] = _field_from_json(field, found[field.name], where)
        elif field.is_tagged:
            values[field.attribute] = field.default()
        else:
            raise _WrongJson(where, "missing")
    return structure.cls(**values)


def _field_from_json(field: JsonField, found: object, path: str) -> object:
    if found is None:
        if not field.nullable:
            raise _WrongJson(path, "null, but not nullable")
        return None
    return _from_json(field.kind, found, path)


def _from_json(kind: Primitive | JsonArray | JsonStructure, found: object, path: str) -> object:
    match kind:
        case JsonStructure():
            return _structure_from_json(kind, found, path)
        case JsonArray(element):
            if not isinstance(found, list):
                raise _WrongJson(path, "no list")
            return [
                _from_json(element, each, f"{path}[{number}]") for number, each in enumerate(found)
            ]
        case Primitive():
            return _primitive_from_json(kind, found, path)


def _primitive_from_json(primitive: Primitive, found: object, path: str) -> object:
    match primitive, found:
        case (Primitive.BOOLEAN, bool()) | (Primitive.STRING | Primitive.USTRING, str()):
            return found
        case Primitive.FLOAT64, int() | float() if not isinstance(found, bool):
            return float(found)
        case (
            (Primitive.UUID, str(text))
            | (Primitive.BYTES, str(text))
            | (Primitive.RECORDS, str(text))
        ):
            try:
                return (
                    parse_uuid_text(text)
                    if primitive is Primitive.UUID
                    else base64.b64decode(text, validate=True)
                )
            except (ValueError, binascii.Error) as failure:
                raise _WrongJson(path, str(failure)) from failure
        case _, int(number) if not isinstance(found, bool) and primitive in INTEGER_RANGES:
            lowest, highest = INTEGER_RANGES[primitive]
            if lowest <= number <= highest:
                return number
            raise _WrongJson(path, f"{number} is no {primitive.value}")
    raise _WrongJson(path, f"{found!r} is no {primitive.value}")
