"""The descriptions of fault kinds and of releases, for `kraftsim list` and for the catalogue in the
documentation.
"""

from dataclasses import dataclass

from kraftsim.cli.kinds import first_sentence, listing
from kraftsim.lab.faults.fault import FAULTS, Aim, Between, Family, FaultKind, OneOf, Value
from kraftsim.releases.release import Release
from protocol.api_keys import ApiKey

AIMS = {Aim.HOST: "a host", Aim.LINK: "links", Aim.ALL: "the whole cluster"}


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultLine:
    """One kind.

    `params` describes the default of each parameter and the values that a search draws from.
    """

    name: str
    about: str
    family: str
    aim: str
    modes: tuple[str, ...]
    triggers_on: tuple[str, ...]
    params: tuple[str, ...]

    def columns(self) -> tuple[str, ...]:
        """Return the cells of a terminal row, column by column."""
        params = f" [{'; '.join(self.params)}]" if self.params else ""
        return self.name, self.family, self.aim, ", ".join(self.modes), self.about + params

    def as_json(self) -> dict[str, object]:
        """Return it as data."""
        return {
            "name": self.name,
            "about": self.about,
            "family": self.family,
            "aim": self.aim,
            "modes": list(self.modes),
            "triggers_on": list(self.triggers_on),
            "params": list(self.params),
        }


def families() -> dict[Family, list[FaultLine]]:
    """Return every kind by its family, both in display order."""
    about = dict(listing("faults"))
    found: dict[Family, list[FaultLine]] = {family: [] for family in Family}
    for kind in sorted(FAULTS.all(), key=lambda kind: kind.name):
        found[kind.family].append(_line(kind, about[kind.name]))
    return found


def _line(kind: FaultKind, about: str) -> FaultLine:
    return FaultLine(
        name=kind.name,
        about=about,
        family=kind.family.value,
        aim=AIMS[kind.aim],
        modes=kind.modes,
        triggers_on=kind.triggers_on,
        params=tuple(
            _param(name, usual, kind.draws.get(name)) for name, usual in kind.params.items()
        ),
    )


def _param(name: str, usual: Value, draw: Between | OneOf | None) -> str:
    text = f"{name} {_text(usual)}"
    match draw:
        case Between(low=low, high=high):
            return f"{text} ({low} to {high})"
        case OneOf(values=values):
            return f"{text} ({', '.join(_text(value) for value in dict.fromkeys(values))})"
    return text


def _text(value: Value) -> str:
    return "any" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def release_columns(release: Release) -> tuple[str, ...]:
    """Return line, patch, modes, newest level, and summary."""
    modes = [
        name
        for name, has in (("zookeeper", release.has_zookeeper_mode), ("kraft", release.has_kraft))
        if has
    ]
    about = first_sentence(release.about)
    return release.name, release.patch, ",".join(modes), release.metadata_version_name, about


def release_as_json(release: Release) -> dict[str, object]:
    """Return everything: `apis` by listener, each API with its first and last version."""
    listeners = {
        "zkBroker": release.zookeeper_apis,
        "broker": release.broker_apis,
        "controller": release.controller_apis,
    }
    return {
        "name": release.name,
        "about": release_columns(release)[-1],
        "patch": release.patch,
        "newest_level": release.metadata_version_name,
        "features": {name: list(levels) for name, levels in release.supported_features.items()},
        "traits": [
            {
                "name": trait.name,
                "why": trait.why,
                "since": trait.since_release or trait.since_level,
            }
            for trait in release.traits
        ],
        "apis": {
            listener: {_name(key): list(versions) for key, versions in apis.items()}
            for listener, apis in listeners.items()
            if apis
        },
    }


def _name(key: ApiKey) -> str:
    return "".join(word.capitalize() for word in key.name.split("_"))
