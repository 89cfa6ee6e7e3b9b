"""The descriptions of fault kinds, releases and scenarios, for `kraftsim list`, the help of a
scenario, and the catalogue in the documentation.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kraftsim.cli.kinds import first_sentence, listing
from kraftsim.cluster.scenario import Scenario
from kraftsim.lab.faults.fault import FAULTS, Aim, Between, Family, FaultKind, OneOf, Value
from kraftsim.lab.workloads.workload_parameters import MEANINGS
from kraftsim.releases.release import Release, releases
from protocol.api_keys import ApiKey

# --------------------------------------------------------------------------------------------------
# The descriptions of fault kinds and of releases, for `kraftsim list` and for the catalogue in the
# documentation

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


# --------------------------------------------------------------------------------------------------
# The facts about a scenario that `kraftsim list scenarios --long` and `kraftsim scenario NAME
# --help` show

OWN_MEANING = "a parameter of this scenario alone; its file says what it means"
"""Of a parameter of a scenario from an extension."""
HEADINGS = ("name", "releases", "nodes", "at least", "parameters")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFacts:
    """Releases a cluster may start with, node counts (controllers, brokers), workload
    parameters.
    """

    name: str
    about: str
    metadata: str
    releases: Sequence[str]
    controllers: Sequence[int]
    brokers: int
    controllers_min: int
    brokers_min: int
    parameters: Mapping[str, int]
    must_exercise: Sequence[str]
    settings: Mapping[str, str]

    @property
    def release_range(self) -> str:
        """First and last supported release. Scenarios support a range without gaps."""
        return f"{self.releases[0]} to {self.releases[-1]}"

    @property
    def nodes(self) -> str:
        """Controllers + brokers of a run without `--controllers` and `--brokers`."""
        return f"{' or '.join(map(str, self.controllers))} + {self.brokers}"

    @property
    def nodes_min(self) -> str:
        """The smallest values of `--controllers` and `--brokers`."""
        return f"{self.controllers_min} + {self.brokers_min}"

    def columns(self) -> tuple[str, ...]:
        """One row under `HEADINGS`."""
        parameters = " ".join(f"{name}={value}" for name, value in self.parameters.items())
        return self.name, self.release_range, self.nodes, self.nodes_min, parameters

    def as_json(self) -> dict[str, object]:
        """All facts, with the meaning of each parameter."""
        parameters = [
            {"name": name, "default": value, "about": MEANINGS.get(name, OWN_MEANING)}
            for name, value in self.parameters.items()
        ]
        return {
            "name": self.name,
            "about": self.about,
            "metadata": self.metadata,
            "releases": list(self.releases),
            "controllers": list(self.controllers),
            "brokers": self.brokers,
            "controllers_min": self.controllers_min,
            "brokers_min": self.brokers_min,
            "parameters": parameters,
            "must_exercise": list(self.must_exercise),
            "settings": dict(self.settings),
        }

    def help_rows(self) -> Iterator[tuple[str, str]]:
        """Rows of `kraftsim scenario NAME --help` above the parameters."""
        yield "releases", f"{self.release_range} (--release)"
        yield "metadata", self.metadata
        yield "nodes", f"{self.nodes} controllers + brokers; at least {self.nodes_min}"
        yield "checks", ", ".join(self.must_exercise)
        if self.settings:
            pairs = ", ".join(f"{name}={value}" for name, value in sorted(self.settings.items()))
            yield "settings", f"{pairs} (--set)"

    def parameter_rows(self) -> Iterator[tuple[str, str]]:
        """NAME=DEFAULT and the meaning of each workload parameter."""
        for name, value in self.parameters.items():
            yield f"{name}={value}", MEANINGS.get(name, OWN_MEANING)


def facts_of(scenario: Scenario, about: str) -> ScenarioFacts:
    """Collect what the listing shows; `about` is the first sentence of the scenario's module."""
    return ScenarioFacts(
        name=scenario.name,
        about=about,
        metadata="ZooKeeper" if scenario.zookeeper_mode else "KRaft",
        releases=[known.name for known in releases() if scenario.supports_release(known.name)],
        controllers=sorted({scenario.controllers, *scenario.controllers_drawn}),
        brokers=scenario.brokers,
        controllers_min=scenario.least_controllers,
        brokers_min=scenario.least_brokers,
        parameters=scenario.workload,
        must_exercise=scenario.must_exercise,
        settings=scenario.settings,
    )


def all_facts() -> list[ScenarioFacts]:
    """Every scenario, sorted by name."""
    from kraftsim.cli.kinds import listing
    from kraftsim.cluster.scenario import scenario

    return [facts_of(scenario(name), about) for name, about in listing("scenarios")]
