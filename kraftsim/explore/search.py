"""What a seed decides about a run before it begins: its faults and its settings, from the story's own bias and from the swarm's.

The story knows where its bugs hide and aims at them; the swarm knows nothing and tries what nobody thought of. A seed takes one of the two or both.
All of it is keyed by the seed and a purpose, so that no draw shifts another one.
"""

from collections.abc import Mapping

from kraftsim.cluster.scenario import Mode, Scenario
from kraftsim.faults.fault import Fault, fault_kind
from kraftsim.faults.swarm import draw_settings, draw_swarm
from kraftsim.world.chance import stream

STORY_SHARE = 0.4
"""How many seeds play the story's own schedule alone."""
BOTH_SHARE = 0.2
"""How many play it among faults of the swarm; the others play the swarm's alone."""
HARNESS = "harness"


def faults_of(scenario: Scenario, seed: int, mode: Mode) -> tuple[Fault, ...]:
    """Return the schedule that a seed draws: over sockets the story's, in simulation that, a swarm's, or both."""
    story = scenario.faults(stream(seed, HARNESS, 1, "faults"), mode)
    if mode is not Mode.SIM or scenario.terrain is None:
        return story
    place = stream(seed, HARNESS, 1, "search").random()
    if place < STORY_SHARE:
        return story
    swarm = draw_swarm(stream(seed, HARNESS, 1, "swarm"), scenario.terrain)
    return (*story, *swarm) if place < STORY_SHARE + BOTH_SHARE else swarm


def settings_of(scenario: Scenario, seed: int, mode: Mode) -> Mapping[str, str]:
    """Return the settings that a seed draws: in simulation those of the terrain and of the faults, and those that the scenario draws itself."""
    drawn: dict[str, str] = {}
    if mode is Mode.SIM and scenario.terrain is not None:
        drawn.update(draw_settings(stream(seed, HARNESS, 1, "terrain settings"), scenario.terrain))
        for kind in sorted({fault.kind for fault in faults_of(scenario, seed, mode)}):
            drawn.update({key: value for key, value in fault_kind(kind).settings.items() if key in scenario.terrain.settings})
    if scenario.swarm is not None:
        drawn.update(scenario.swarm(stream(seed, HARNESS, 1, "settings")))
    return drawn


def controllers_of(scenario: Scenario, seed: int, mode: Mode) -> int:
    """Return how many controllers a run has: over sockets as many as the scenario wants, in simulation as many as the seed draws of its choices."""
    if mode is not Mode.SIM or not scenario.controllers_drawn:
        return scenario.controllers
    return stream(seed, HARNESS, 1, "controllers").choice(scenario.controllers_drawn)
