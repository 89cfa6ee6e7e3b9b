"""The page of releases: what each persona offers to clients and to clusters, and in which behaviour it differs from the one before.

Generated, so that it cannot say anything else than the personas do.   Source: kraftsim/releases.
"""

import ast
import inspect
from itertools import pairwise

from kraftsim.core.metadata.feature_levels import default_levels
from kraftsim.core.metadata.metadata_versions import METADATA_VERSIONS
from kraftsim.releases import traits
from kraftsim.releases.catalogue import DEFAULT_RELEASE, releases
from kraftsim.releases.release import Release
from kraftsim.releases.traits import Trait

METADATA_VERSION = "metadata.version"


def personas_page() -> str:
    """Return the page."""
    lines = [
        "# Releases\n",
        f"`--release LINE` lets nodes re-enact a release line of Apache Kafka, each as its last patch; {DEFAULT_RELEASE} goes without saying.",
        "A property file says `kraftsim.release`, so nodes of one cluster may differ. Which versions of which request each offers is in",
        "[coverage](coverage.md).\n",
        "| line | patch | APIs: broker, controller | metadata.version | features of a new cluster | features that can be had |",
        "|---|---|---|---|---|---|",
        *(_row(release) for release in releases()),
        "\nA new cluster begins with these levels; `kafka-features` changes them while it runs. kraft.version is 1 where voters are dynamic.\n",
        "## What changed with each\n",
    ]
    told = _told()
    known: tuple[Trait, ...] = ()
    for release in releases():
        gained = [trait for trait in release.traits if trait not in known]
        known = release.traits
        rows = [f"- **{trait.name}** ({trait.why}): {told[trait.name]}" for trait in gained] or ["Nothing but what it offers."]
        lines += [f"### {release.name}\n", *rows, ""]
    return "\n".join(lines)


def _row(release: Release) -> str:
    lowest, highest = release.supported_features[METADATA_VERSION]
    levels = f"{METADATA_VERSIONS[lowest].name} to {METADATA_VERSIONS[highest].name} ({lowest}-{highest})"
    begins = ", ".join(f"{name} {level}" for name, level in default_levels(release.metadata_version, release.supported_features).items())
    others = ", ".join(f"{name} {first}-{last}" for name, (first, last) in release.supported_features.items() if name != METADATA_VERSION)
    counts = f"{len(release.broker_apis)}, {len(release.controller_apis)}"
    return f"| {release.name} | {release.patch} | {counts} | {levels} | {begins} | {others} |"


def _told() -> dict[str, str]:
    """Return what stands below the definition of each trait, by the trait's name."""
    body = ast.parse(inspect.getsource(traits)).body
    found = {}
    for definition, words in pairwise(body):
        if isinstance(definition, ast.Assign) and isinstance(words, ast.Expr) and isinstance(words.value, ast.Constant):
            target = definition.targets[0]
            assert isinstance(target, ast.Name), "a trait has a name"
            trait = getattr(traits, target.id)
            found[trait.name] = " ".join(str(words.value.value).split())
    return found
