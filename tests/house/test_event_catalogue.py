"""The event catalogue contains every event class of kraftsim, and derived tables are consistent."""

import ast
import subprocess
import sys
from pathlib import Path

import msgspec

from kraftsim.analysis.columns import event_schema
from kraftsim.events import catalogue
from kraftsim.events.catalogue import KINDS

PRODUCT = Path(catalogue.__file__).parents[1]


def test_every_event_class_is_in_the_catalogue() -> None:
    """Read from the sources, so that files that are never imported are found too."""
    written = {
        node.name: f"kraftsim.{file.parent.name}.{file.stem}"
        for file in sorted(PRODUCT.glob("*/*.py"))
        if "Event" in (text := file.read_text())  # the others need not be parsed
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "Event" for base in node.bases)
    }
    assert {kind: event.__module__ for kind, event in KINDS.items()} == written
    assert {
        "ZookeeperSessionBegan",
        "ZookeeperSessionEnded",
        "ZnodeChanged",
        "ZookeeperRecovered",
    } <= set(KINDS)


def test_an_event_field_name_has_one_type_in_all_events() -> None:
    """The event log of a run is one table: a column with text in one kind and numbers in another
    could not be read.
    """
    assert set(event_schema().names) > {"kind", "topic", "producer_id"}
    types: dict[str, set[str]] = {}
    for event in KINDS.values():
        for field in msgspec.structs.fields(event):
            types.setdefault(field.name, set()).add(str(field.type).replace(" | None", ""))
    assert not {
        name: found
        for name, found in types.items()
        if len({each.replace("<class '", "").replace("'>", "") for each in found}) > 1
    }


def test_the_event_catalogue_does_not_depend_on_import_order() -> None:
    program = (
        "import kraftsim.zookeeper.files; from kraftsim.events.catalogue import KINDS; "
        "print(*KINDS)"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert said == list(KINDS) == sorted(KINDS)


def test_nodes_do_not_import_the_event_catalogue() -> None:
    """The catalogue imports every kind of event; a node imports only those that it emits."""
    program = (
        "import sys; import kraftsim.cli.node, kraftsim.cluster.launch; "
        "print('kraftsim.events.catalogue' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "False"
    )
