"""The facts file: the definitions in Apache Kafka's jars, one entry per message and shape.

Names, types, versions, nullability, defaults and tags; none of Kafka's prose. Releases that define
a message alike share an entry.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.drift.definitions import Definition, Json
from tools.drift.jars import RELEASES, definitions_of


class Shape(NamedTuple):
    """A definition and the releases that ship it, oldest first."""

    releases: tuple[str, ...]
    definition: Definition


Facts = Mapping[str, Sequence[Shape]]


def extract_facts() -> Facts:
    """Read the jars of all releases; each must be in the local Maven repository."""
    by_release = {release: definitions_of(release) for release in RELEASES}
    found: dict[str, list[Shape]] = {}
    for name in sorted({name for definitions in by_release.values() for name in definitions}):
        shapes: list[Shape] = []
        for release, definitions in by_release.items():
            definition = definitions.get(name)
            if definition is None:
                continue
            if shapes and shapes[-1].definition == definition:
                shapes[-1] = Shape((*shapes[-1].releases, release), definition)
            else:
                shapes.append(Shape((release,), definition))
        found[name] = shapes
    return found


def write_facts(file: Path) -> None:
    """Return the facts of the jars as text."""
    file.write_text(facts_text(extract_facts()))


def facts_text(facts: Facts) -> str:
    """Return the file as it is committed."""
    messages: dict[str, Json] = {
        name: [{"releases": list(shape.releases), **shape.definition.facts()} for shape in shapes]
        for name, shapes in facts.items()
    }
    about = (
        "Facts about Apache Kafka's message definitions. Made by: python -m tools.drift "
        "extract tests/wire/definitions.json"
    )
    return json.dumps({"about": about, "messages": messages}, indent=1) + "\n"


def load_facts(file: Path) -> Facts:
    """Read what `write_facts` wrote."""
    return {
        name: [
            Shape(tuple(shape["releases"]), Definition.from_facts(name, shape)) for shape in shapes
        ]
        for name, shapes in json.loads(file.read_text())["messages"].items()
    }
