"""What `--on` names: a release of Apache Kafka (`apache:4.1.0`), of Maven or an installation."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kraftsim.cluster.apache_kafka.jars import (
    ApacheKafkaMissing,
    KafkaJars,
    jars_from_maven,
    jars_of_home,
    java,
)
from kraftsim.releases.release import Release, release, releases

PREFIX: Final = "apache"
VERSION: Final = re.compile(r"(\d+\.\d+)(\.\d+)?(-\w+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApacheTarget:
    """A release of Apache Kafka to run a scenario on.

    `version` is the whole one (4.1.0), `line` that of the release profile that kraftsim's clients
    and readers use for it (4.1). `home` is an installation; None: the jars come from Maven.
    """

    version: str
    line: str
    home: Path | None = None

    def __str__(self) -> str:
        return f"{PREFIX}:{self.version}"

    def jars(self) -> KafkaJars:
        """Return its jars, downloaded if necessary. Raises ApacheKafkaMissing."""
        java()
        return jars_from_maven(self.version) if self.home is None else jars_of_home(self.home)

    def jars_of_line(self, line: str) -> KafkaJars:
        """Return the jars of a release line to which a scenario upgrades a node: of its last patch
        release, or of this version if it is its line.

        Raises ApacheKafkaMissing.
        """
        return self.jars() if line == self.line else jars_from_maven(release(line).patch)


def apache_target(text: str, home: Path | None = None) -> ApacheTarget:
    """Return the target for `apache:VERSION`; with `home` also for `apache`.

    Without a patch number it is the last patch release that kraftsim knows. Raises ValueError for
    any other text and for a release without KRaft mode, ApacheKafkaMissing for a home that is no
    installation or of another version.
    """
    prefix, colon, version = text.partition(":")
    if prefix != PREFIX or (colon and not version) or (not version and home is None):
        raise ValueError(f"--on {text}: name a release of Apache Kafka, such as apache:4.1.2")
    if home is not None:
        installed = jars_of_home(home).release
        if version and not _is_of(installed, version):
            raise ApacheKafkaMissing(f"{home} is Apache Kafka {installed}, not {version}")
        version = installed
    found = VERSION.fullmatch(version)
    if found is None:
        raise ValueError(f"--on {text}: {version} is no version, such as 4.1.2")
    profile = _profile(found[1])
    return ApacheTarget(
        version=version if found[2] else profile.patch, line=profile.name, home=home
    )


def _is_of(installed: str, version: str) -> bool:
    return installed == version or installed.startswith(f"{version}.")


def _profile(line: str) -> Release:
    supported = [each.name for each in releases() if each.has_kraft]
    if line not in supported:
        raise ValueError(
            f"kraftsim runs scenarios on Apache Kafka {supported[0]} to {supported[-1]} in KRaft "
            f"mode, not on {line}"
        )
    return release(line)
