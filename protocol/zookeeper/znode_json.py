"""JSON in znodes: encoding of objects and decoding of their parts, with error messages.

Source: kafka.utils.Json, kafka.utils.json.DecodeJson.
"""

import json
from collections.abc import Mapping

from protocol.malformed import MalformedMessage
from protocol.message_json import Json


def json_text(value: Mapping[str, Json]) -> bytes:
    """Return an object as Kafka writes it: no spaces, keys in the given order."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def parse_object(data: bytes, place: str) -> dict[str, Json]:
    """Decode an object. Raises MalformedMessage."""
    try:
        found: Json = json.loads(data)
    except (ValueError, RecursionError) as failure:
        raise MalformedMessage(None, None, place, f"no JSON: {failure}") from failure
    if not isinstance(found, dict):
        raise MalformedMessage(None, None, place, "no object")
    return found


def integer_of(found: Mapping[str, Json], name: str) -> int:
    """Return a whole number. Raises MalformedMessage."""
    number = found.get(name)
    if not isinstance(number, int) or isinstance(number, bool):
        raise MalformedMessage(None, None, name, f"{number!r} is no whole number")
    return number


def decimal_of(found: Mapping[str, Json], name: str) -> int:
    """Return a number that is encoded as text. Raises MalformedMessage."""
    text = found.get(name)
    try:
        return int(str(text))
    except ValueError:
        raise MalformedMessage(None, None, name, f"{text!r} is no number") from None


def nullable_text_of(found: Mapping[str, Json], name: str) -> str | None:
    """Return a text, or None. Raises MalformedMessage."""
    text = found.get(name)
    if text is not None and not isinstance(text, str):
        raise MalformedMessage(None, None, name, f"{text!r} is no text")
    return text


def texts_of(found: Json, name: str) -> list[str]:
    """Return a list of texts. Raises MalformedMessage."""
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise MalformedMessage(None, None, name, f"{found!r} is no list of texts")
    return [str(each) for each in found]


def integers_of(found: Json, name: str) -> list[int]:
    """Return a list of whole numbers. Raises MalformedMessage."""
    if not isinstance(found, list):
        raise MalformedMessage(None, None, name, f"{found!r} is no list")
    return [integer_of({name: each}, name) for each in found]
