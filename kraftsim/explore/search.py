"""What a seed determines about a run before it begins: its faults and its settings, from the scenario's own schedule and from random faults.

The scenario's schedule targets the bugs that it is about; random faults explore everything else. A seed uses one of the two or both.
All draws are keyed by the seed and a purpose, so that they are independent.
"""

from collections.abc import Mapping

from kraftsim.cluster.scenario import Mode, Scenario
from kraftsim.faults.fault import Fault, fault_kind
from kraftsim.faults.random_faults import draw_faults, draw_settings
from kraftsim.world.random_streams import stream

OWN_SHARE = 0.4
"""The share of seeds with the scenario's own schedule alone."""
BOTH_SHARE = 0.2
"""The share of seeds with both; the others have random faults alone."""
HARNESS = "harness"


def faults_of(scenario: Scenario, seed: int, mode: Mode) -> tuple[Fault, ...]:
    """Return the schedule that a seed draws: over sockets the scenario's, in simulation that, random faults, or both."""
    own = scenario.faults(stream(seed, HARNESS, 1, "faults"), mode)
    if mode is not Mode.SIM or scenario.fault_space is None:
        return own
    place = stream(seed, HARNESS, 1, "search").random()
    if place < OWN_SHARE:
        return own
    random_faults = draw_faults(stream(seed, HARNESS, 1, "swarm"), scenario.fault_space)
    return (*own, *random_faults) if place < OWN_SHARE + BOTH_SHARE else random_faults


def settings_of(scenario: Scenario, seed: int, mode: Mode) -> Mapping[str, str]:
    """Return the settings that a seed draws: in simulation those of the fault space and of the faults, and those that the scenario draws itself."""
    drawn: dict[str, str] = {}
    if mode is Mode.SIM and scenario.fault_space is not None:
        drawn.update(draw_settings(stream(seed, HARNESS, 1, "terrain settings"), scenario.fault_space))
        for kind in sorted({fault.kind for fault in faults_of(scenario, seed, mode)}):
            drawn.update({key: value for key, value in fault_kind(kind).settings.items() if key in scenario.fault_space.settings})
    if scenario.draw_parameters is not None:
        drawn.update(scenario.draw_parameters(stream(seed, HARNESS, 1, "settings")))
    return drawn


def controllers_of(scenario: Scenario, seed: int, mode: Mode) -> int:
    """Return how many controllers a run has: over sockets the scenario's number, in simulation one of its choices, by seed."""
    if mode is not Mode.SIM or not scenario.controllers_drawn:
        return scenario.controllers
    return stream(seed, HARNESS, 1, "controllers").choice(scenario.controllers_drawn)
