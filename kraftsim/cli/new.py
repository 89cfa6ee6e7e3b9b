"""`kraftsim new`: writes a template for a new API, scenario, invariant, fault, bug or release.

Outside the source tree it writes the file of an extension, and its test
(`kraftsim.cli.own_files`). In the source tree, what remains to be written is marked `FILL IN`; a
test rejects that mark there.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

import click

from kraftsim.cli.failure import Failure, fail
from kraftsim.cli.options import DIRECTORY
from kraftsim.cli.own_files import OwnFileError, own_advice, write_own

# --------------------------------------------------------------------------------------------------
# Where each kind of source file lives: the one table that `kraftsim new` reads
#
# Paths are relative to the root of the source tree. `$stem`, `$name`, `$camel`, `$constant` and
# `$number` stand for forms of the name that the user gives; see `kraftsim.cli.new`.

API_KEYS: Final = "protocol/api_keys.py"
"""Declares `class ApiKey`; a new API becomes its last member."""

MODULES: Final[Mapping[str, str]] = {
    "broker_module": "kraftsim.server.serving_broker",
    "bug_module": "kraftsim.lab.bugs.bug",
    "call_module": "kraftsim.server.call",
    "event_module": "kraftsim.events.event",
    "fault_module": "kraftsim.lab.faults.fault",
    "invariant_module": "kraftsim.invariants.invariant",
    "workload_module": "kraftsim.lab.workloads.replication_workload",
    "phases_module": "kraftsim.lab.workloads.phases",
    "producer_id_events_module": "kraftsim.producer_ids.events",
    "scenario_module": "kraftsim.cluster.scenario",
    "injection_module": "kraftsim.lab.faults.injection",
    "transaction_rules_module": "kraftsim.transactions.rules_coordinator",
    "verdict_module": "kraftsim.invariants.verdict",
}
"""Placeholder in a template -> the module that it imports from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """`files`: path -> template. `next_steps`: what to do; `tests`: which tests cover it."""

    files: Mapping[str, str]
    next_steps: Sequence[str]
    tests: Sequence[str]


CHANGELOG: Final = "Add a fragment in changelog.d (see its README)."

KINDS: Final[Mapping[str, Kind]] = {
    "api": Kind(
        files={
            "protocol/messages/$stem.py": "message.txt",
            "kraftsim/metadata/broker_handlers/$stem.py": "handler.txt",
        },
        next_steps=(
            "Set the listeners of ApiKey.$constant in protocol/api_keys.py.",
            "Declare fields, versions and errors as Kafka's ${camel}Request.json has them.",
            "Add the API to the releases that offer it (kraftsim/releases).",
            (
                "Name what the handler uses of its node (kraftsim/server/serving_broker.py), and "
                "add it to tests/node/test_handler_types.py."
            ),
            (
                "Move the handler to the folder of its concern, and there to controller_handlers "
                "if controllers serve the API."
            ),
            (
                "Add requirements in kraftsim/conformance that Apache Kafka passes first (make "
                "oracle)."
            ),
            CHANGELOG,
        ),
        tests=(
            "tests/wire: bytes of each version against kio and Apache Kafka",
            "tests/node/test_handler_types.py: its node has what the handler uses",
            "tests/node/test_authorizer_checks.py: the ACL check of each request",
            "tests/node/test_error_responses.py: an error response for each request",
            "tests/rights: the same ACL answers as Apache Kafka",
        ),
    ),
    "scenario": Kind(
        files={"scenarios/$stem.py": "scenario.txt"},
        next_steps=(
            "Run it: kraftsim scenario $stem --seed 1 --out build/$stem",
            "Run many seeds: kraftsim sweep $stem --seeds 200",
            "Set since and until to the releases that it supports.",
            (
                "Give each new workload parameter a meaning in "
                "kraftsim/lab/workloads/workload_parameters.py."
            ),
            CHANGELOG,
        ),
        tests=(
            "tests/simulate/test_scenarios.py: no violation with the first seed",
            "tests/simulate/test_scenario_releases.py: starting releases that it supports",
            "tests/simulate/test_scenario_sizes.py: more and fewer nodes",
            "tests/house/test_scenario_listing.py: meanings of its parameters",
        ),
    ),
    "invariant": Kind(
        files={"kraftsim/metadata/invariants/$stem.py": "invariant.txt"},
        next_steps=(
            "Move the file to the folder of its concern.",
            "Name it in must_exercise of the scenarios that must reach it.",
            (
                "Add rows that hold, that violate it and that are vacuous to the cases of "
                "tests/analysis."
            ),
            "Add a mutant that it catches (mutants/), or name it in caught_by of a bug.",
            CHANGELOG,
        ),
        tests=(
            "tests/analysis/test_invariants.py: the check and the SQL agree",
            "tests/simulate/test_scenarios.py: no scenario violates it",
        ),
    ),
    "fault": Kind(
        files={"kraftsim/lab/faults/kinds/$stem.py": "fault.txt"},
        next_steps=(
            "Set family, aim, modes, triggers_on and data_loss.",
            "Add a row to the table of tests/simulate/test_FAMILY_faults.py.",
            "Write over_sockets if real processes can have it too.",
            CHANGELOG,
        ),
        tests=(
            "tests/simulate/test_process_faults.py: an effect for each kind of its family",
            "tests/simulate/test_triggers.py: each kind is armed and takes effect",
            "tests/cluster/test_faults_over_sockets.py: the same over sockets",
        ),
    ),
    "bug": Kind(
        files={"kraftsim/lab/bugs/$stem.py": "bug.txt"},
        next_steps=(
            "Find it: kraftsim sweep SCENARIO --bug $name --seeds 200",
            'Measure how soon: make bench ARGS="bugs --write --bug $name"',
            CHANGELOG,
        ),
        tests=(
            (
                "tests/house/test_bugs.py: scenario and invariants exist, docs/bugs.json has the "
                "figures"
            ),
            "tests/simulate/test_*_bugs.py: its scenario finds it",
        ),
    ),
}


TEMPLATES: Final = Path(__file__).parent / "templates"
NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*([_-][A-Za-z0-9]+)*")
TICKET: Final = re.compile(r"[A-Z]+-\d+(?=-|$)")
MEMBER: Final = re.compile(r"^    ([A-Z_]+) = (\d+), [A-Z_]+", re.MULTILINE)


class ScaffoldError(ValueError):
    """The file cannot be written; the message says why."""


def words_of(name: str) -> list[str]:
    """Split a name in any spelling: `DescribeThing`, `describe_thing`, `describe-thing`."""
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").split("_")
    return [part.lower() for part in parts]


def write(kind: str, name: str, root: Path) -> list[Path]:
    """Write the files of one entry below `root` and return their paths.

    Raises ScaffoldError for a bad name, a file that exists, or a directory without the sources.
    """
    require_name(name)
    if not (root / API_KEYS).is_file():
        raise ScaffoldError(f"{root} has no {API_KEYS}: run this in the source tree, or use --root")
    values = _values(kind, name, root)
    texts = {
        root / Template(path).substitute(values): _rendered(template, values)
        for path, template in KINDS[kind].files.items()
    }
    existing = [path for path in texts if path.exists()]
    if existing:
        raise ScaffoldError(f"{existing[0]} exists: choose another name")
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    written = list(texts)
    if kind == "api" and _add_api_key(root / API_KEYS, values):
        written.append(root / API_KEYS)
    return written


def require_name(name: str) -> None:
    """Raise ScaffoldError unless a name has only words."""
    if not NAME.fullmatch(name):
        raise ScaffoldError(f"{name!r} is no name: use letters, digits, and - or _ between words")


def advice(kind: str, name: str, root: Path) -> Iterator[str]:
    """Lines that name what to fill in and which tests cover it."""
    values = _values(kind, name, root)
    yield "Next:"
    for step in KINDS[kind].next_steps:
        yield f"  - {Template(step).substitute(values)}"
    yield "Tests that check it:"
    for test in KINDS[kind].tests:
        yield f"  - {test}"


def _values(kind: str, name: str, root: Path) -> Mapping[str, str]:
    words = words_of(name)
    stem = "_".join(words)
    values = {
        "stem": stem,
        "name": stem.replace("_", "-"),
        "camel": "".join(word.capitalize() for word in words),
        "constant": stem.upper(),
        "number": "",
        **MODULES,
    }
    if kind == "scenario":
        values["name"] = stem
    if kind == "bug" and (ticket := TICKET.match(name.replace("_", "-").upper())):
        values["name"] = ticket[0]
    if kind == "api":
        known = {member: int(key) for member, key in _members(root / API_KEYS)}
        number = known.get(values["constant"], max(known.values()) + 1)
        values |= {"number": str(number), "stem": f"k{number:02}_{stem}"}
    return values


def _members(file: Path) -> list[tuple[str, str]]:
    members: list[tuple[str, str]] = MEMBER.findall(file.read_text())
    return members


def _rendered(template: str, values: Mapping[str, str]) -> str:
    return Template((TEMPLATES / template).read_text()).substitute(values)


def _add_api_key(file: Path, values: Mapping[str, str]) -> bool:
    """Append a member to `class ApiKey`; return whether it was missing."""
    text = file.read_text()
    found = list(MEMBER.finditer(text))
    if values["constant"] in {member[1] for member in found}:
        return False
    end = text.index("\n", found[-1].end()) + 1
    line = f"    {values['constant']} = {values['number']}, KRAFT_BROKER  # FILL IN: listeners\n"
    file.write_text(text[:end] + line + text[end:])
    return True


@click.command(
    epilog="""\b
Examples:
  kraftsim new scenario orders_during_failover        # ./orders_during_failover.py and its test
  kraftsim new invariant epochs-never-decrease --dir checks
  kraftsim new release acme                           # a release 3.9-acme
  kraftsim new fault slow-name-lookup
  kraftsim new bug KAFKA-12345-marker-written-twice
  kraftsim new api DescribeThing                      # in kraftsim's source tree"""
)
@click.argument("kind", type=click.Choice([*KINDS, "release"]))
@click.argument("name")
@click.option(
    "--dir",
    "directory",
    type=DIRECTORY,
    default=None,
    help="Write an extension of your own into this directory. Default: the current one, unless it "
    "is the root of kraftsim's source tree.",
)
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=None,
    help="Root of kraftsim's source tree, to write there.",
)
def new(kind: str, name: str, directory: Path | None, root: Path | None) -> None:
    """Write a template of a KIND, and print what to do next.

    Outside kraftsim's source tree: a scenario, an invariant, a fault, a bug or a release of your
    own, and its test for pytest, which both work as they are. In the source tree: files that pass
    the linter and the type checker; search for FILL IN in them.
    """
    if directory is not None and root is not None:
        raise Failure("give --dir for an extension of your own, or --root for the source tree")
    in_tree = root is not None or (directory is None and Path(API_KEYS).is_file())
    place = root if root is not None else directory if directory is not None else Path()
    try:
        if in_tree and kind not in KINDS:
            raise ScaffoldError(
                f"a {kind} of kraftsim is a delta in kraftsim/releases: use --dir for one of your "
                "own"
            )
        require_name(name)
        if in_tree:
            written, lines = write(kind, name, place), list(advice(kind, name, place))
        else:
            words = words_of(name)
            written, lines = write_own(kind, words, place), list(own_advice(kind, words, place))
    except (ScaffoldError, OwnFileError, OSError) as trouble:
        fail(trouble)
    for path in written:
        click.echo(f"wrote {path}")
    for line in lines:
        click.echo(line)
