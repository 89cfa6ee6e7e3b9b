"""A release line of Apache Kafka, as far as clients and other nodes can observe it.

Four kinds of versions are kept apart: the release of a binary (here), the level of the cluster
(metadata.version), the version of a request (negotiated per connection), and the version of a
record.
Source: KIP-584, KIP-778.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from kraftsim.catalogue import Catalogue
from kraftsim.releases.traits import Trait
from protocol.api_keys import ApiKey

VersionRange = tuple[int, int]
"""First and last version, both inclusive."""
RELEASE_NAME = re.compile(r"\d+(\.\d+)+(-\w[\w.-]*)?")
WITHOUT_NUMBER = -1
"""The number of a level that has only a name: metadata.version starts at 3.0-IV1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A profile is the last patch release of its line: historical bugs are enabled only by a
    switch.

    `about` says what the line brought, and where its profile comes from.

    `broker_apis` and `controller_apis` are Kafka's version ranges on that kind of listener in KRaft
    mode, `zookeeper_apis` those of a broker in ZooKeeper mode; a node advertises those that are
    implemented. If a table is empty, the release does not have that mode, or (KRaft, before 3.3)
    not for production. `metadata_version` is the level of a new cluster (-1: a level without a
    number), `metadata_version_name` is also the default of inter.broker.protocol.version;
    `supported_features` maps a feature to its (lowest, highest) level. Traits are in the order in
    which they were introduced.

    `comes_as` is empty for a released line. For one that is not released it is the number that it
    will have: its name need not begin with one, and only who asks for it by name gets it.
    """

    name: str
    patch: str
    about: str
    metadata_version: int
    metadata_version_name: str
    supported_features: Mapping[str, VersionRange]
    broker_apis: Mapping[ApiKey, VersionRange]
    controller_apis: Mapping[ApiKey, VersionRange]
    zookeeper_apis: Mapping[ApiKey, VersionRange]
    traits: tuple[Trait, ...]
    comes_as: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for a name by which releases cannot be put in order."""
        if not RELEASE_NAME.fullmatch(self.comes_as or self.name):
            raise ValueError(
                f"a release cannot be called {self.name!r}: give the number of its line, and a "
                "suffix if it is a variant, for example 3.9 or 3.9-mine"
            )

    @property
    def is_released(self) -> bool:
        """Whether Apache Kafka has released it."""
        return not self.comes_as

    @property
    def has_kraft(self) -> bool:
        """Whether the release supports KRaft mode."""
        return bool(self.controller_apis)

    @property
    def has_zookeeper_mode(self) -> bool:
        """Whether the release supports ZooKeeper mode."""
        return bool(self.zookeeper_apis)

    def has(self, trait: Trait) -> bool:
        """Return whether this release has a trait (a trait of a level: in a cluster at this
        release's own level).
        """
        return trait in self.traits

    def followed_by(
        self,
        *,
        name: str,
        patch: str,
        about: str,
        metadata_version: int,
        metadata_version_name: str,
        supported_features: Mapping[str, VersionRange],
        broker_apis: Mapping[ApiKey, VersionRange],
        controller_apis: Mapping[ApiKey, VersionRange],
        zookeeper_apis: Mapping[ApiKey, VersionRange] | None = None,
        lost_apis: Collection[ApiKey] = (),
        loses_zookeeper: bool = False,
        gained: Iterable[Trait],
        comes_as: str = "",
    ) -> "Release":
        """Return a later release: the arguments are new or changed, everything else is
        unchanged.
        """
        return replace(
            self,
            name=name,
            patch=patch,
            about=about,
            metadata_version=metadata_version,
            metadata_version_name=metadata_version_name,
            supported_features=dict(supported_features),
            broker_apis=_changed(self.broker_apis, broker_apis, lost_apis),
            controller_apis=_changed(self.controller_apis, controller_apis, lost_apis),
            zookeeper_apis={}
            if loses_zookeeper
            else _changed(self.zookeeper_apis, zookeeper_apis or {}, lost_apis),
            traits=(*self.traits, *gained),
            comes_as=comes_as,
        )


def _changed(
    before: Mapping[ApiKey, VersionRange],
    now: Mapping[ApiKey, VersionRange],
    lost: Collection[ApiKey],
) -> dict[ApiKey, VersionRange]:
    return {key: versions for key, versions in {**before, **now}.items() if key not in lost}


# --------------------------------------------------------------------------------------------------
# The releases, found by their files

RELEASES = Catalogue("kraftsim.releases", "RELEASE", Release, apart=("catalogue", "traits"))

DEFAULT_RELEASE = "3.9"


def release(name: str) -> Release:
    """Return the release of a line, for example "3.9".

    Raises KeyError that lists the known names.
    """
    return RELEASES.named(name)


def releases() -> tuple[Release, ...]:
    """Return every release of Apache Kafka, oldest first: what runs and tests choose from."""
    return tuple(known for known in known_releases() if known.is_released)


def known_releases() -> tuple[Release, ...]:
    """Return every release and what is not released yet, oldest first: what a user may ask for."""
    return tuple(sorted(RELEASES.all(), key=lambda known: _number(known.comes_as or known.name)))


def is_before(line: str, other: str) -> bool:
    """Return whether a release line, "3.9", or a level that it introduced, "3.9-IV0", is older than
    another line. Raises KeyError for a name without a number that no release has.
    """
    return _number_of(line) < _number_of(other)


def _number_of(line: str) -> tuple[int, ...]:
    return _number(line if line[:1].isdigit() else RELEASES.named(line).comes_as)


def _number(line: str) -> tuple[int, ...]:
    return tuple(int(part) for part in line.partition("-")[0].split("."))
