"""What the files of extensions, and their tests, import: `from kraftsim.extend import Scenario`.

The names are the same in a source tree and in an installed wheel, which has `protocol` and
`scenarios` inside `kraftsim`. Everything else that a file needs (a part that a bug replaces, a kind
of event) is imported from its own module of `kraftsim`. See docs/extensions.md.

Each name is imported when it is used: a node that loads a bug needs no scenario.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final

from kraftsim.catalogue import sibling
from kraftsim.extensions import ExtensionError as ExtensionError
from kraftsim.extensions import load as load

if TYPE_CHECKING:
    from kraftsim.analysis.analyze import analyze_run
    from kraftsim.cluster.scenario import (
        LivenessLost,
        Mode,
        Scenario,
        ScenarioEnvironment,
        ScenarioFailed,
        within,
    )
    from kraftsim.events.event import Event
    from kraftsim.invariants.invariant import Envelope, Findings, Invariant
    from kraftsim.invariants.verdict import Outcome, Verdict, Violation
    from kraftsim.lab.bugs.bug import Bug, bug
    from kraftsim.lab.explore.run import run_scenario
    from kraftsim.lab.faults.fault import (
        AT_THE_TRIGGER,
        Aim,
        AtTime,
        Between,
        DataLoss,
        Family,
        Fault,
        FaultKind,
        OnContact,
        OnDisk,
        OneOf,
        OnEvent,
        OnFrame,
        OnState,
    )
    from kraftsim.lab.faults.fault_space import FaultSpace, cluster_fault_space
    from kraftsim.lab.faults.field import Condition, SocketInjection
    from kraftsim.lab.faults.injection import Injection
    from kraftsim.lab.faults.kinds.request_faults import of_requests
    from kraftsim.lab.workloads.phases import replicas_settle, transactions_settle, under_faults
    from kraftsim.lab.workloads.replication_workload import ReplicationWorkload
    from kraftsim.releases.release import Release, release
    from kraftsim.releases.traits import Trait
    from kraftsim.server.parts import Parts
    from kraftsim.testing.histories import check_events, write_events
    from protocol.api_keys import ApiKey
    from protocol.errors import ErrorCode
    from protocol.records.batches import RecordBatch

_MODULES: Final = {
    "kraftsim.analysis.analyze": ("analyze_run",),
    "kraftsim.cluster.scenario": (
        *("LivenessLost", "Mode", "Scenario", "ScenarioEnvironment", "ScenarioFailed", "within"),
    ),
    "kraftsim.events.event": ("Event",),
    "kraftsim.invariants.invariant": ("Envelope", "Findings", "Invariant"),
    "kraftsim.invariants.verdict": ("Outcome", "Verdict", "Violation"),
    "kraftsim.lab.bugs.bug": ("Bug", "bug"),
    "kraftsim.lab.explore.run": ("run_scenario",),
    "kraftsim.lab.faults.fault": (
        *("AT_THE_TRIGGER", "Aim", "AtTime", "Between", "DataLoss", "Family", "Fault"),
        *("FaultKind", "OnContact", "OnDisk", "OnEvent", "OnFrame", "OnState", "OneOf"),
    ),
    "kraftsim.lab.faults.fault_space": ("FaultSpace", "cluster_fault_space"),
    "kraftsim.lab.faults.field": ("Condition", "SocketInjection"),
    "kraftsim.lab.faults.injection": ("Injection",),
    "kraftsim.lab.faults.kinds.request_faults": ("of_requests",),
    "kraftsim.lab.workloads.phases": ("replicas_settle", "transactions_settle", "under_faults"),
    "kraftsim.lab.workloads.replication_workload": ("ReplicationWorkload",),
    "kraftsim.releases.release": ("Release", "release"),
    "kraftsim.releases.traits": ("Trait",),
    "kraftsim.server.parts": ("Parts",),
    "kraftsim.testing.histories": ("check_events", "write_events"),
    f"{sibling('protocol')}.api_keys": ("ApiKey",),
    f"{sibling('protocol')}.errors": ("ErrorCode",),
    f"{sibling('protocol')}.records.batches": ("RecordBatch",),
}
_HOMES: Final = {name: module for module, names in _MODULES.items() for name in names}

__all__ = (  # noqa: RUF022  (by subject)
    "Scenario",
    "ScenarioEnvironment",
    "ScenarioFailed",
    "LivenessLost",
    "Mode",
    "within",
    "ReplicationWorkload",
    "under_faults",
    "replicas_settle",
    "transactions_settle",
    "FaultSpace",
    "cluster_fault_space",
    "run_scenario",
    "Fault",
    "FaultKind",
    "Family",
    "Aim",
    "Between",
    "OneOf",
    "DataLoss",
    "AT_THE_TRIGGER",
    "AtTime",
    "OnDisk",
    "OnFrame",
    "OnEvent",
    "OnState",
    "OnContact",
    "of_requests",
    "Injection",
    "SocketInjection",
    "Condition",
    "Invariant",
    "Findings",
    "Envelope",
    "Event",
    "Verdict",
    "Violation",
    "Outcome",
    "check_events",
    "write_events",
    "analyze_run",
    "Bug",
    "bug",
    "Parts",
    "Release",
    "release",
    "Trait",
    "ApiKey",
    "ErrorCode",
    "RecordBatch",
    "ExtensionError",
    "load",
    "protocol_module",
)


def __getattr__(name: str) -> object:
    """Import a name on use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def protocol_module(name: str) -> ModuleType:
    """Return a module of the package `protocol`, for example "messages.k00_produce": the wheel has
    that package inside `kraftsim`, a source tree beside it.
    """
    return import_module(f"{sibling('protocol')}.{name}")
