"""How the report colours events: each module of events has a family, each family a colour, and red
is reserved for faults and violations.
"""

import colorsys
import itertools
import re
from pathlib import Path

import pytest

from kraftsim.analysis import looks
from kraftsim.analysis.looks import FAMILIES, family_of
from kraftsim.events.catalogue import KINDS, MODULES, family

STYLE = (Path(looks.__file__).parent / "page" / "style.css").read_text()
SCHEMES = 3
"""Light, dark by system preference, dark by the reader's choice."""
RED_DEGREES = 25
SATURATED = 0.25
APART = 40.0
"""The minimum distance of two families in RGB; the maximum possible is 441."""


def colours() -> list[dict[str, tuple[int, int, int]]]:
    """The colours of the families, by scheme."""
    found = {name: re.findall(rf"--{name}: #([0-9a-f]{{6}});", STYLE) for name in FAMILIES}
    assert {name: len(values) for name, values in found.items()} == dict.fromkeys(FAMILIES, SCHEMES)
    return [
        {name: rgb(values[scheme]) for name, values in found.items()} for scheme in range(SCHEMES)
    ]


def rgb(digits: str) -> tuple[int, int, int]:
    """Three bytes as hexadecimal digits."""
    red, green, blue = bytes.fromhex(digits)
    return red, green, blue


def is_red(colour: tuple[int, int, int]) -> bool:
    hue, _, saturation = colorsys.rgb_to_hls(*(part / 255 for part in colour))
    degrees = hue * 360
    return saturation > SATURATED and min(degrees, 360 - degrees) < RED_DEGREES


def test_every_event_module_declares_a_style_family() -> None:
    named = {family(module.__name__) for module in MODULES}
    assert set(looks._FAMILY_OF_MODULE) == named
    assert {family_of(kind) for kind in KINDS} == set(FAMILIES), (
        "no family is empty, and every kind has a known one"
    )


def test_only_faults_and_violations_are_red() -> None:
    for scheme in colours():
        assert {name for name, colour in scheme.items() if is_red(colour)} == {"faults"}
    faults = {kind for kind in KINDS if family_of(kind) == "faults"}
    assert faults == {
        "FaultArmed",
        "FaultInjected",
        "FaultTookEffect",
        "FaultEnded",
        "InvariantViolated",
    }


@pytest.mark.parametrize("scheme", range(SCHEMES))
def test_style_families_are_distinguishable(scheme: int) -> None:
    chosen = colours()[scheme]
    for (one, first), (other, second) in itertools.combinations(chosen.items(), 2):
        assert sum((a - b) ** 2 for a, b in zip(first, second, strict=True)) ** 0.5 >= APART, (
            one,
            other,
        )


def test_an_unknown_event_kind_is_drawn_in_the_style_of_run_events() -> None:
    assert family_of("OfTheFuture") == "run"


def test_the_page_draws_nothing_else_in_red() -> None:
    """Refusals and similar events are diamonds with amber text."""
    drawn = {
        line.strip()
        for file in sorted((Path(looks.__file__).parent / "page").glob("*.js"))
        for line in file.read_text().splitlines()
        if re.search(r"colours\.(bad|fault|faults|ring)\b|colours\[\"fault", line)
    }
    allowed = re.compile(r"ring|fault|breach|colours\.bad;")
    assert all(allowed.search(line) for line in drawn), drawn
