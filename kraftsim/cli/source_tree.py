"""Where each kind of source file lives: the one table that `kraftsim new` reads.

Paths are relative to the root of the source tree. `$stem`, `$name`, `$camel`, `$constant` and
`$number` stand for forms of the name that the user gives; see `kraftsim.cli.new`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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
    "trigger_module": "kraftsim.lab.faults.trigger",
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
