"""What decides how a run goes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kraftsim.cluster.scenario import Mode, Scenario
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.releases.catalogue import DEFAULT_RELEASE


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """Two equal requests in simulation give the same event log, byte for byte."""

    scenario: Scenario
    mode: Mode
    seed: int
    release: str = DEFAULT_RELEASE
    bugs: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    def spec(self, port: int) -> ClusterSpec:
        """Return the cluster that the scenario wants, with what the caller set on top."""
        return ClusterSpec(
            controllers=self.scenario.controllers,
            brokers=self.scenario.brokers,
            release=self.release,
            port=port,
            seed=self.seed,
            run=f"{self.scenario.name}-{self.seed}",
            bugs=self.bugs,
            settings={**self.scenario.settings, **self.settings},
        )
