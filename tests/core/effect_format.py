"""How scripts show the effects of a core: the name of the effect, and the fields that differ from
their defaults.

Effects are plain values everywhere, so one format serves all scripts; a script driver formats the
exceptions itself.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from enum import Enum

import msgspec

from kraftsim.clients.rules_producer_steps import ProducerIdentity, TopicPartition


def spelt(value: object) -> str:
    """Return a value as a script shows it: `Name field=value`, `topic-partition`, `producer
    id/epoch`, names of errors and states.
    """
    match value:
        case TopicPartition():
            return f"{value.topic}-{value.partition}"
        case ProducerIdentity():
            return f"{value.producer_id}/{value.producer_epoch}"
        case Enum():
            return value.name
        case bytes():
            return value.decode(errors="backslashreplace")
        case Mapping():
            return f"{{{', '.join(f'{spelt(key)}: {spelt(each)}' for key, each in value.items())}}}"
        case frozenset():
            return f"{{{', '.join(sorted(map(spelt, value)))}}}"
        case tuple() | list():
            return f"[{', '.join(map(spelt, value))}]"
        case _ if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
            return " ".join(
                [
                    type(value).__name__,
                    *(f"{name}={_inside(field)}" for name, field in _fields(value)),
                ]
            )
        case _:
            return str(value)


def _inside(value: object) -> str:
    """A value within another one: in parentheses if it has fields of its own."""
    has_fields = isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value)
    return f"({spelt(value)})" if has_fields else spelt(value)


def _fields(value: object) -> Iterator[tuple[str, object]]:
    """Yield the fields that differ from their defaults."""
    if isinstance(value, msgspec.Struct):
        for each in msgspec.structs.fields(value):
            if getattr(value, each.name) != each.default:
                yield each.name, getattr(value, each.name)
        return
    assert dataclasses.is_dataclass(value), "a struct or a dataclass"
    for field in dataclasses.fields(value):
        default = (
            field.default_factory()
            if field.default_factory is not dataclasses.MISSING
            else field.default
        )
        if getattr(value, field.name) != default:
            yield field.name, getattr(value, field.name)
