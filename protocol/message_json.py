"""Messages as JSON in the format of Kafka's tools and files: `quorum-state`, kafka-dump-log, the
request log.

Every field of the version has Kafka's name with a lower-case first letter, tagged ones only if they
differ from their default; bytes are base64, uuids as usual. Unknown tagged fields are left out.
Source: the JsonConverter classes that Kafka generates (JsonConverterGenerator).
"""

import base64
import binascii
from collections.abc import Mapping
from typing import TypeAlias

from protocol.declaration import INTEGER_RANGES, Primitive
from protocol.malformed import MalformedMessage
from protocol.resolve import (
    ArrayLayout,
    PresentField,
    StructureLayout,
    default_of,
    is_default,
    layout_of,
)
from protocol.schema import Message, declaration_of
from protocol.uuids import parse_uuid_text, uuid_text

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


def message_to_json(message: Message, version: int) -> dict[str, Json]:
    """Return what Kafka would print for a message at a declared version.

    Raises MalformedMessage for a value that it would lose.
    """
    cls: type = type(message)
    return _structure_to_json(layout_of(cls, version), message)


def message_from_json(cls: type, found: object, version: int) -> Message:
    """Return the message of `message_to_json`.

    Raises MalformedMessage with the path of a field that is missing, of another type, or out of
    range.
    """
    try:
        return _structure_from_json(layout_of(cls, version), found, "")
    except _WrongJson as wrong:
        raise MalformedMessage(
            declaration_of(cls).api_key, version, wrong.path, wrong.reason
        ) from None


class _WrongJson(Exception):
    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason


def _present_fields(layout: StructureLayout) -> list[tuple[str, PresentField, bool]]:
    """Return name, field, and whether it is tagged, in the order of the declaration."""
    present = {field.name: (field, False) for field in layout.fields} | {
        field.name: (field, True) for field in layout.tags
    }
    names = [field.name for field in declaration_of(layout.cls).fields if field.name in present]
    return [(_json_name(present[name][0]), *present[name]) for name in names]


def _json_name(field: PresentField) -> str:
    name = field.declared.kafka_name
    return name[:1].lower() + name[1:]


def _structure_to_json(layout: StructureLayout, structure: Message) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for absent in layout.guarded:
        if not is_default(absent, getattr(structure, absent.name)):
            raise MalformedMessage(
                None,
                layout.version,
                absent.name,
                f"{getattr(structure, absent.name)!r} in a version that lacks the field",
            )
    for name, field, is_tagged in _present_fields(layout):
        value = getattr(structure, field.name)
        if not (is_tagged and is_default(field.declared, value)):
            found[name] = _to_json(field.type, value)
    return found


def _to_json(shape: Primitive | ArrayLayout | StructureLayout, value: Message) -> Json:
    if value is None:
        return None
    match shape:
        case StructureLayout():
            return _structure_to_json(shape, value)
        case ArrayLayout(element):
            return [_to_json(element, each) for each in value]
        case Primitive.UUID:
            return uuid_text(value)
        case Primitive.BYTES | Primitive.RECORDS:
            return base64.b64encode(value).decode()
    plain: bool | int | float | str = value
    return plain


def _structure_from_json(layout: StructureLayout, found: object, path: str) -> Message:
    if not isinstance(found, Mapping):
        raise _WrongJson(path, "no object")
    values: dict[str, object] = {}
    for name, field, is_tagged in _present_fields(layout):
        where = f"{path}.{name}" if path else name
        if name in found:
            values[field.name] = _field_from_json(field, found[name], where)
        elif is_tagged:
            values[field.name] = default_of(field.declared)
        else:
            raise _WrongJson(where, "missing")
    return layout.cls(**values)


def _field_from_json(field: PresentField, found: object, path: str) -> object:
    if found is None:
        if not field.nullable:
            raise _WrongJson(path, "null, but not nullable")
        return None
    return _from_json(field.type, found, path)


def _from_json(
    shape: Primitive | ArrayLayout | StructureLayout, found: object, path: str
) -> object:
    match shape:
        case StructureLayout():
            return _structure_from_json(shape, found, path)
        case ArrayLayout(element):
            if not isinstance(found, list):
                raise _WrongJson(path, "no list")
            return [
                _from_json(element, each, f"{path}[{number}]") for number, each in enumerate(found)
            ]
        case Primitive():
            return _primitive_from_json(shape, found, path)
    raise AssertionError(f"{path} has no wire type")


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
