"""The catalogue finds the entries of a kind in files of one or several, and detects files that do
not export what they define.
"""

import sys
from pathlib import Path
from typing import Protocol

import pytest

from kraftsim.catalogue import Catalogue, CatalogueError
from kraftsim.cli.kinds import KINDS, catalogue_of, listing
from kraftsim.cluster.scenario import SCENARIOS

KIND = "class Shape:\n    def __init__(self, name):\n        self.name = name\n"
SEVERAL = (
    "from {package}.shape import Shape\nONE, TWO = Shape('KAFKA-30'), Shape('KAFKA-10')\n"
    "SHAPES = ({names})\n"
)
ENTRY = "from {package}.shape import Shape\nSHAPE = Shape({name!r})\n"


class Shape(Protocol):
    """An entry of the catalogue."""

    name: str


Shapes = tuple[Catalogue[Shape], Path]


@pytest.fixture
def shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Shapes:
    """A catalogue of two shapes in its own package, and the folder to add more."""
    package = f"shapes_{abs(hash(request.node.name))}"
    folder = tmp_path / package
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "shape.py").write_text(KIND)
    (folder / "kafka_2_square.py").write_text(ENTRY.format(package=package, name="KAFKA-2"))
    (folder / "kafka_1_circle.py").write_text(ENTRY.format(package=package, name="KAFKA-1"))
    monkeypatch.syspath_prepend(str(tmp_path))
    kind: type[Shape] = __import__(f"{package}.shape", fromlist=["Shape"]).Shape
    return Catalogue(package, "SHAPE", kind), folder


def test_catalogue_entries_are_in_file_order(shapes: Shapes) -> None:
    catalogue, _ = shapes
    assert catalogue.files() == ("kafka_1_circle", "kafka_2_square")
    assert catalogue.names() == ("KAFKA-1", "KAFKA-2")
    assert [shape.name for shape in catalogue.all()] == ["KAFKA-1", "KAFKA-2"]


def test_a_catalogue_entry_is_loaded_without_importing_the_others(shapes: Shapes) -> None:
    catalogue, _ = shapes
    assert catalogue.named("KAFKA-2").name == "KAFKA-2"
    assert f"{catalogue.package}.kafka_1_circle" not in sys.modules


def test_an_unknown_name_lists_known_names_nearest_first(shapes: Shapes) -> None:
    catalogue, _ = shapes
    with pytest.raises(
        KeyError, match=r"no shape is called KAFKA-22 \(there are: KAFKA-2, KAFKA-1\)"
    ):
        catalogue.named("KAFKA-22")


def test_an_unknown_name_among_many_suggests_the_nearest() -> None:
    """All of them would be one line of 1,800 characters."""
    with pytest.raises(KeyError) as unknown:
        SCENARIOS.named("quorum_under_fault")
    said = str(unknown.value.args[0])
    assert said.startswith(
        "no scenario is called quorum_under_fault; did you mean quorum_under_faults"
    )
    assert (
        said.endswith(f"? `kraftsim list scenarios` names all {len(SCENARIOS.names())}")
        and len(said) < 200
    )
    with pytest.raises(
        KeyError, match=r"no scenario is called xyz; `kraftsim list scenarios` names all \d+"
    ):
        SCENARIOS.named("xyz")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "must export one Shape as SHAPE"),
        ("SHAPE = 7\n", "must export one Shape as SHAPE"),
        (ENTRY + "SECOND = Shape('two')\n", "exports SECOND beside SHAPE"),
    ],
)
def test_a_file_that_does_not_export_exactly_one_entry_is_refused(
    shapes: Shapes, text: str, complaint: str
) -> None:
    catalogue, folder = shapes
    (folder / "other.py").write_text(text.format(package=catalogue.package, name="other"))
    with pytest.raises(CatalogueError, match=complaint):
        catalogue.all()


def test_an_entry_may_extend_another(shapes: Shapes) -> None:
    """A release is a delta of the one before."""
    catalogue, folder = shapes
    (folder / "later.py").write_text(
        f"from {catalogue.package}.kafka_1_circle import SHAPE as BEFORE\n"
        f"from {catalogue.package}.shape import Shape\nSHAPE = Shape(BEFORE.name + '.1')\n"
    )
    assert catalogue.named("later").name == "KAFKA-1.1"


def test_entries_that_share_a_file_are_sorted_by_their_own_names(shapes: Shapes) -> None:
    """The order of a kind does not depend on its files: random schedules draw from it."""
    catalogue, folder = shapes
    (folder / "kafka_others.py").write_text(
        SEVERAL.format(package=catalogue.package, names="ONE, TWO")
    )
    assert catalogue.names() == ("KAFKA-10", "KAFKA-1", "KAFKA-2", "KAFKA-30")
    assert [entry.name for entry in catalogue.entries("kafka_others")] == ["KAFKA-30", "KAFKA-10"]
    assert catalogue.named("kafka-30").name == "KAFKA-30"
    with pytest.raises(KeyError, match="no shape is called kafka_others"):
        catalogue.named("kafka_others")


def test_entry_that_its_file_does_not_name_is_refused(shapes: Shapes) -> None:
    catalogue, folder = shapes
    (folder / "others.py").write_text(SEVERAL.format(package=catalogue.package, names="ONE,"))
    with pytest.raises(CatalogueError, match="exports TWO beside SHAPE: name all in a tuple"):
        catalogue.all()


def test_entry_of_a_file_with_several_may_be_extended(shapes: Shapes) -> None:
    catalogue, folder = shapes
    package = catalogue.package
    (folder / "others.py").write_text(SEVERAL.format(package=package, names="ONE, TWO"))
    (folder / "later.py").write_text(
        f"from {package}.others import ONE\nfrom {package}.shape import Shape\n"
        "SHAPE = Shape(ONE.name + '.1')\n"
    )
    assert catalogue.named("KAFKA-30.1").name == "KAFKA-30.1"


@pytest.mark.parametrize("kind", KINDS)
def test_every_catalogue_entry_can_be_imported(kind: str) -> None:
    catalogue = catalogue_of(kind)
    entries = catalogue.all()
    assert entries, f"nothing is listed under {kind}"
    assert len(set(catalogue.names())) == len(entries)


@pytest.mark.parametrize("kind", KINDS)
def test_every_listed_entry_has_a_sentence_of_its_own(kind: str) -> None:
    rows = listing(kind)
    assert tuple(name for name, _ in rows) == catalogue_of(kind).names()
    if kind != "requirements":  # the sections of a chapter may share its text
        assert len({sentence for _, sentence in rows} - {""}) == len(rows)
