"""A trait that no code uses would be a row in docs/personas.md without an effect."""

import re
from collections.abc import Iterator

import pytest

from kraftsim.metadata.rules_versions import (
    LEVELS_BY_NAME,
    METADATA_VERSIONS,
    MetadataLevel,
    ProtocolVersion,
)
from kraftsim.releases import traits
from kraftsim.releases.release import known_releases
from kraftsim.releases.traits import Trait
from kraftsim.zookeeper.rules_control_requests import SINCE
from tools.concerns import concern_files

NODES = concern_files()
ALL = {name: value for name, value in vars(traits).items() if isinstance(value, Trait)}


def readers(word: str) -> list[str]:
    """Return the modules of nodes that use a name, without those that only define it."""
    named = re.compile(rf"(?<!def )\b{word}\b")
    return [
        path.name
        for path in NODES
        if any(
            named.search(line) and "import" not in line.split("#")[0]
            for line in path.read_text().splitlines()
        )
    ]


def switches(level: str) -> Iterator[str]:
    """Yield the properties of ProtocolVersion or MetadataLevel that change at a level."""
    names = list(LEVELS_BY_NAME)
    here, before = (
        ProtocolVersion(names.index(name), name) for name in (level, names[names.index(level) - 1])
    )
    yield from _changed(ProtocolVersion, before, here)
    numbers = [number for number, version in METADATA_VERSIONS.items() if version.name == level]
    for number in numbers:
        yield from _changed(MetadataLevel, MetadataLevel(number - 1), MetadataLevel(number))


def _changed(cls: type, before: object, here: object) -> Iterator[str]:
    properties = [name for name, value in vars(cls).items() if isinstance(value, property)]
    yield from (
        name
        for name in properties
        if getattr(before, name) is False and getattr(here, name) is True
    )


@pytest.mark.parametrize("name", [name for name, trait in ALL.items() if trait.since_release])
def test_every_release_trait_is_used_by_code(name: str) -> None:
    lines = [
        line
        for path in NODES
        for line in path.read_text().splitlines()
        if re.search(rf"\b{name}\b", line)
    ]
    used = [line for line in lines if "import" not in line and line.strip() != f"{name},"]
    assert used, f"{name} is not used, at most imported"


@pytest.mark.parametrize("name", [name for name, trait in ALL.items() if trait.since_level])
def test_every_level_trait_is_used_by_code(name: str) -> None:
    level = ALL[name].since_level
    assert level is not None
    thrown = list(switches(level))
    is_of_requests = any(since == level for rows in SINCE.values() for since, _ in rows)
    assert is_of_requests or any(readers(switch) for switch in thrown), (
        f"nothing in {thrown} is read"
    )


def test_every_trait_names_a_release() -> None:
    """No trait is defined but never set by a release."""
    assert sorted(trait.name for trait in known_releases()[-1].traits) == sorted(
        trait.name for trait in ALL.values()
    )
