"""The facts about a scenario that `kraftsim list scenarios --long` and `kraftsim scenario NAME
--help` show.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kraftsim.cluster.scenario import Scenario
from kraftsim.lab.workloads.workload_parameters import MEANINGS
from kraftsim.releases.catalogue import releases

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
            {"name": name, "default": value, "about": MEANINGS[name]}
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
            yield f"{name}={value}", MEANINGS[name]


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
