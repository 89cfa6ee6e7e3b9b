"""A dissected frame as one JSON object: fields under their names, and the position of each of them.

Bytes are a string if they are printable text, else {"hex": "..."}; the meaning of a value is in
NAME_means.
"""

from typing import Final, TypeAlias

from kraftsim.inspect.parts import DecodeTrouble, Part, Scalar, Tree, Value, walk
from kraftsim.inspect.records import HEADER_KIND
from kraftsim.inspect.text import printable
from protocol.uuids import uuid_text

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
MEANS: Final = "_means"


def json_of_parts(parts: list[Part]) -> dict[str, Json]:
    """Return named parts as an object."""
    shown: dict[str, Json] = {}
    for part in parts:
        shown[part.name] = json_of(part)
        if (
            part.emit
            and part.kind != "records"
            and not part.emit.startswith("tag ")
            and part.parts is None
        ):
            shown[part.name + MEANS] = part.emit
    return shown


def json_of(part: Part) -> Json:
    """Return the content of a part."""
    if part.parts is None:
        return _json_of_value(part.value, part.kind)
    if part.kind == "headers":
        return [
            {"key": each.name, "value": _json_of_value(each.value, each.kind)}
            for each in part.parts
        ]
    if part.kind.startswith("[]") or part.kind in ("records", "messages"):
        return [json_of(each) for each in part.parts]
    shown = json_of_parts(part.parts)
    if part.emit and part.name in ("key", "value", "request_data", "response_data"):
        return {"is": part.emit, **shown}
    return shown


def json_of_spans(tree: Tree) -> dict[str, Json]:
    """Return [start, end) of every field by its path; fields of compressed records have no position
    in the frame and are left out.
    """
    return {
        path: [part.start, part.end]
        for path, part in walk(tree.parts)
        if not part.uncompressed and part.kind != HEADER_KIND
    }


def json_of_troubles(troubles: list[DecodeTrouble]) -> list[Json]:
    """Return the errors in the order of the bytes."""
    return [
        {
            "path": trouble.path,
            "position": trouble.position,
            "uncompressed": trouble.uncompressed,
            "reason": trouble.reason,
        }
        for trouble in troubles
    ]


def _json_of_value(value: Value, kind: str) -> Json:
    if isinstance(value, list):
        return [_json_of_scalar(each, kind) for each in value]
    return _json_of_scalar(value, kind)


def _json_of_scalar(value: Scalar, kind: str) -> Json:
    if not isinstance(value, bytes):
        return value
    if "uuid" in kind and len(value) == 16:
        return uuid_text(value)
    text = printable(value)
    return {"hex": value.hex()} if text is None else text
