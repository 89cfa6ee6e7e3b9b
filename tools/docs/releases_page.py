"""The page of releases: the APIs and features of each release profile, and its differences from the
previous one.

Generated from the release profiles.   Source: kraftsim/releases.
"""

import ast
import inspect
from collections.abc import Iterator, Sequence
from itertools import pairwise

from kraftsim.metadata.rules_versions import METADATA_VERSIONS, default_levels
from kraftsim.releases import traits
from kraftsim.releases.release import (
    DEFAULT_RELEASE,
    Release,
    known_releases,
    releases,
)
from kraftsim.releases.traits import Trait
from protocol.api_keys import ApiKey

METADATA_VERSION = "metadata.version"


def releases_page() -> str:
    """Return the page."""
    lines = [
        "# Releases\n",
        (
            "`--release LINE` lets nodes emulate a release line of Apache Kafka, each as its last "
            f"patch release; the default is {DEFAULT_RELEASE}."
        ),
        (
            "The property `kraftsim.release` sets it per node, so nodes of one cluster may differ. "
            "The API versions of each release are in"
        ),
        "[coverage](coverage.md).\n",
        (
            "What is merged for the next release has a name too, and is no release: "
            f"{', '.join(f'`{each.name}`' for each in known_releases() if not each.is_released)}. "
            "No scenario, upgrade or search chooses it; who asks for it by name gets it.\n"
        ),
        "## Modes and levels\n",
        (
            "| line | patch | modes | newest inter.broker.protocol.version | APIs: ZooKeeper, "
            "broker, controller | metadata.version |"
        ),
        "|---|---|---|---|---|---|",
        *(_row(release) for release in releases()),
        (
            "\nA release without KRaft requires `zookeeper.connect`, one without ZooKeeper "
            "`process.roles`; anything else is"
        ),
        (
            "rejected at startup. KRaft of 2.8 to 3.2 was a preview without metadata.version, "
            "and is not supported. In ZooKeeper mode a broker uses"
        ),
        (
            "its inter.broker.protocol.version for other brokers, by default the newest of its "
            "release; what depends on it has *since level* below.\n"
        ),
        "## Features\n",
        "| line | of a new cluster | supported |",
        "|---|---|---|",
        *(_features(release) for release in releases() if len(release.supported_features) > 1),
        (
            "\nA new cluster starts with these levels; `kafka-features` changes them while it "
            "runs. kraft.version is 1 where voters are dynamic.\n"
        ),
        "## What changed with each\n",
    ]
    docstrings = _docstrings()
    known: tuple[Trait, ...] = ()
    for release in known_releases():
        gained = [trait for trait in release.traits if trait not in known]
        known = release.traits
        rows = [
            f"- **{trait.name}** ({_why(trait)}): {docstrings[trait.name]}" for trait in gained
        ] or ["Only API versions and features."]
        notes = [] if release.is_released else [f"{' '.join(release.about.split())}\n"]
        lines += [f"### {release.name}\n", *notes, *rows, ""]
    lines += [
        "## APIs in ZooKeeper mode\n",
        *_offers([known for known in releases() if known.has_zookeeper_mode], ("zookeeper_apis",)),
    ]
    lines += [
        "",
        "## APIs in KRaft mode\n",
        "Of brokers; of controllers *in italics*, if brokers do not support the API.\n",
    ]
    lines += [
        *_offers(
            [known for known in releases() if known.has_kraft], ("broker_apis", "controller_apis")
        ),
        "",
    ]
    return "\n".join(lines)


def _row(release: Release) -> str:
    modes = [
        name
        for name, has in (("ZooKeeper", release.has_zookeeper_mode), ("KRaft", release.has_kraft))
        if has
    ]
    levels = ""
    if METADATA_VERSION in release.supported_features:
        lowest, highest = release.supported_features[METADATA_VERSION]
        levels = (
            f"{METADATA_VERSIONS[lowest].name} to {METADATA_VERSIONS[highest].name} "
            f"({lowest}-{highest})"
        )
    counts = ", ".join(
        str(len(apis) or "-")
        for apis in (release.zookeeper_apis, release.broker_apis, release.controller_apis)
    )
    newest = release.metadata_version_name if release.has_zookeeper_mode else ""
    return (
        f"| {release.name} | {release.patch} | {' and '.join(modes)} | {newest} | {counts} | "
        f"{levels} |"
    )


def _features(release: Release) -> str:
    begins = ", ".join(
        f"{name} {level}"
        for name, level in default_levels(
            release.metadata_version, release.supported_features
        ).items()
    )
    others = ", ".join(
        f"{name} {first}-{last}"
        for name, (first, last) in release.supported_features.items()
        if name != METADATA_VERSION
    )
    return f"| {release.name} | {begins} | {others} |"


def _why(trait: Trait) -> str:
    return (
        trait.why if trait.since_level is None else f"{trait.why}; since level {trait.since_level}"
    )


def _offers(known: Sequence[Release], listeners: Sequence[str]) -> Iterator[str]:
    """Yield a table of API versions, each range with the first release that supports it.

    An API that the first of the listeners does not support is shown with the versions of the
    others, in italics.
    """
    yield "| key | API | versions since |"
    yield "|---|---|---|"
    for key in ApiKey:
        cells: list[str] = []
        before = ""
        for release in known:
            found = [
                (name, getattr(release, name)[key])
                for name in listeners
                if key in getattr(release, name)
            ]
            text = (
                _range(*found[0][1], is_first=found[0][0] == listeners[0])
                if found
                else "-"
                if cells
                else ""
            )
            if text and text != before:
                cells.append(f"{release.name}: {text}")
                before = text
        if cells:
            yield (
                f"| {int(key)} | {''.join(word.capitalize() for word in key.name.split('_'))} | "
                f"{'; '.join(cells)} |"
            )


def _range(first: int, last: int, *, is_first: bool) -> str:
    text = str(first) if first == last else f"{first}-{last}"
    return text if is_first else f"*{text}*"


def _docstrings() -> dict[str, str]:
    """Return the docstring of each trait, by its name."""
    body = ast.parse(inspect.getsource(traits)).body
    found = {}
    for definition, words in pairwise(body):
        if (
            isinstance(definition, ast.Assign)
            and isinstance(words, ast.Expr)
            and isinstance(words.value, ast.Constant)
        ):
            target = definition.targets[0]
            assert isinstance(target, ast.Name), "a trait has a name"
            trait = getattr(traits, target.id)
            found[trait.name] = " ".join(str(words.value.value).split())
    return found
