"""A message definition of Apache Kafka: read from the JSON in its jars, or from one line per field
in the facts file.

Source: clients/src/main/resources/common/message/README.md (what each key of the JSON means).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from protocol.codec.declaration import NO_VERSIONS, Fresh, Primitive, Scalar, VersionRange

Json: TypeAlias = Any

TOP = ""
"""The name of a message's own fields among its structures."""

KINDS_WITH_VERSIONS = (
    "request",
    "response",
    "header",
    "data",
    "metadata",
    "coordinator-key",
    "coordinator-value",
)
_WHOLE_NUMBERS = ("int8", "int16", "uint16", "int32", "uint32", "int64")
_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*')


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinedField:
    """A field of Kafka's definition; `default` is Kafka's text, None if there is none."""

    name: str
    type: str
    versions: VersionRange
    nullable: VersionRange = NO_VERSIONS
    default: str | None = None
    tag: int | None = None
    tagged: VersionRange = NO_VERSIONS
    ignorable: bool = False
    flexible: VersionRange | None = None

    @property
    def element_type(self) -> str:
        """The type without the brackets of an array."""
        return self.type.removeprefix("[]")

    @property
    def default_value(self) -> Scalar | Fresh | None:
        """The default in the form of our declarations."""
        text = self.default
        if text == "null" or self.type == Primitive.RECORDS.value:
            return None
        if self.type.startswith("[]"):
            return Fresh.LIST
        match self.type:
            case "string":
                return text or ""
            case "bytes":
                return b""
            case "uuid":
                return bytes(16)
            case "bool":
                return text == "true"
            case "float64":
                return float(text or 0)
            case _ if self.type in _WHOLE_NUMBERS:
                return int(text or "0", 0)
        return Fresh.STRUCTURE

    def line(self) -> str:
        """Return the field as one line: name, type, versions, then what differs from the
        defaults.
        """
        words = [self.name, self.type, str(self.versions)]
        if self.nullable:
            words.append(f"nullable={self.nullable}")
        if self.tag is not None:
            words += (f"tag={self.tag}", f"tagged={self.tagged}")
        if self.flexible is not None:
            words.append(f"flexible={self.flexible}")
        if self.ignorable:
            words.append("ignorable")
        if self.default is not None:
            words.append(f"default={self.default}")
        return " ".join(words)

    @classmethod
    def from_line(cls, line: str) -> "DefinedField":
        """Decode a result of `line`."""
        name, wire_type, versions, *rest = line.split(" ")
        options = dict(word.partition("=")[::2] for word in rest)
        return cls(
            name=name,
            type=wire_type,
            versions=VersionRange.parse(versions),
            nullable=VersionRange.parse(options.get("nullable", "none")),
            default=options.get("default"),
            tag=int(options["tag"]) if "tag" in options else None,
            tagged=VersionRange.parse(options.get("tagged", "none")),
            ignorable="ignorable" in options,
            flexible=VersionRange.parse(options["flexible"]) if "flexible" in options else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A message; `structures` maps the name of each structure, and TOP, to its fields in wire
    order.
    """

    name: str
    kind: str
    api_key: int | None
    versions: VersionRange
    flexible: VersionRange
    latest_unstable: bool
    structures: Mapping[str, tuple[DefinedField, ...]]

    def facts(self) -> dict[str, Json]:
        """Return the definition as text for the facts file."""
        found: dict[str, Json] = {
            "kind": self.kind,
            "versions": str(self.versions),
            "flexible": str(self.flexible),
        }
        if self.api_key is not None:
            found["key"] = self.api_key
        if self.latest_unstable:
            found["latest_unstable"] = True
        found["fields"] = {
            name: [field.line() for field in fields] for name, fields in self.structures.items()
        }
        return found

    @classmethod
    def from_facts(cls, name: str, facts: Mapping[str, Json]) -> "Definition":
        """Decode a result of `facts`."""
        return cls(
            name=name,
            kind=facts["kind"],
            api_key=facts.get("key"),
            versions=VersionRange.parse(facts["versions"]),
            flexible=VersionRange.parse(facts["flexible"]),
            latest_unstable=facts.get("latest_unstable", False),
            structures={
                structure: tuple(map(DefinedField.from_line, lines))
                for structure, lines in facts["fields"].items()
            },
        )


def parse_definition(text: str) -> Definition | None:
    """Read one JSON file of Kafka's; None where it defines no message with versions, or one with no
    version left.
    """
    bare = _STRING_OR_COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else "", text)
    found = json.JSONDecoder().raw_decode(bare.lstrip())[
        0
    ]  # 2.8.2 has a file with words behind the object
    if found["type"] not in KINDS_WITH_VERSIONS or found["validVersions"] == "none":
        return None
    structures: dict[str, tuple[DefinedField, ...]] = {}
    top = _fields(found["fields"], structures)
    for structure in found.get("commonStructs", ()):
        structures[structure["name"]] = _fields(structure["fields"], structures)
    return Definition(
        name=found["name"],
        kind=found["type"],
        api_key=found.get("apiKey"),
        versions=VersionRange.parse(found["validVersions"]),
        flexible=VersionRange.parse(found.get("flexibleVersions", "none")),
        latest_unstable=bool(found.get("latestVersionUnstable", False)),
        structures={TOP: top, **structures},
    )


def _fields(
    found: list[Json], structures: dict[str, tuple[DefinedField, ...]]
) -> tuple[DefinedField, ...]:
    return tuple(_field(field, structures) for field in found)


def _field(found: Json, structures: dict[str, tuple[DefinedField, ...]]) -> DefinedField:
    if "fields" in found:
        structures[found["type"].removeprefix("[]")] = _fields(found["fields"], structures)
    default = found.get("default")
    return DefinedField(
        name=found["name"],
        type=found["type"],
        versions=VersionRange.parse(found.get("versions") or found["taggedVersions"]),
        nullable=VersionRange.parse(found.get("nullableVersions", "none")),
        default=None
        if default is None
        else str(default).lower()
        if isinstance(default, bool)
        else str(default),
        tag=None if found.get("tag") is None else int(found["tag"]),
        tagged=VersionRange.parse(found.get("taggedVersions", "none")),
        ignorable=bool(found.get("ignorable", False)),
        flexible=VersionRange.parse(found["flexibleVersions"])
        if "flexibleVersions" in found
        else None,
    )
