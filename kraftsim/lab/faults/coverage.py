"""What a fault exercises, as labels: so that a campaign can count what it has drawn, what has
fired and what was effective, and a page can show what never was.

    fault KIND on TRIGGER             TRIGGER: time, disk, frame, event, state
    request API CLIENTS WAY           WAY: an action, as `drop=reply`, `duplicate`
    request API CLIENTS error=NAME    and `error=NAME done` after the work
    contact CLIENTS SERVICE API       at the first contact; API may be `any`

CLIENTS are those that ask: clients, brokers, controllers.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from kraftsim.lab.faults.fault import (
    REMOTE_STORE,
    AtTime,
    Fault,
    OnContact,
    OnDisk,
    OnEvent,
    OnFrame,
)
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.kinds.request_faults import KIND, TEXT
from kraftsim.lab.faults.request_fault_text import parse_request_fault
from kraftsim.lab.faults.rules_request_faults import (
    MEANT_FOR,
    RequestAction,
    RequestFault,
    api_name,
    error_name,
)

Exercised = Mapping[str, tuple[int, int, int]]
"""Label -> how often it was drawn, has fired, and was effective."""
FAULT, REQUEST, CONTACT, ANY = "fault", "request", "contact", "any"
ROLES: Final = ("clients", "brokers", "controllers")
SERVICES: Final = (*ROLES, "zookeeper")


def labels_of(fault: Fault) -> tuple[str, ...]:
    """Return what a fault exercises."""
    labels = (f"{FAULT} {fault.kind} on {trigger_type(fault)}", *_contact(fault))
    text = fault.params.get(TEXT) if fault.kind == KIND else None
    if not isinstance(text, str):
        return labels
    asked = parse_request_fault(text)
    api = ANY if asked.api is None else api_name(asked.api)
    return *labels, f"{REQUEST} {api} {role_of_sender(asked.sender)} {way_of(asked)}"


def trigger_type(fault: Fault) -> str:
    """Return the type of its trigger."""
    match fault.trigger:
        case AtTime():
            return "time"
        case OnDisk():
            return "disk"
        case OnFrame():
            return "frame"
        case OnEvent():
            return "event"
        case OnContact():
            return "contact"
    return "state"


def _contact(fault: Fault) -> tuple[str, ...]:
    """Return the label of the first contact that a fault waits for."""
    trigger = fault.trigger
    if not isinstance(trigger, OnContact):
        return ()
    client = ANY if trigger.client is None else _role_of_group(trigger.client)
    api = ANY if trigger.api_key is None else api_name(trigger.api_key)
    return (f"{CONTACT} {client} {_role_of_group(trigger.service)} {api}",)


def _role_of_group(group: str) -> str:
    """Return the role of the first host of a group; names of clients have no prefix."""
    if group == REMOTE_STORE:
        return group
    return next(
        (role for role in SERVICES if group.startswith(f"{role.removesuffix('s')}-")), ROLES[0]
    )


def role_of_sender(sender: str | None) -> str:
    """Return the role of a sender: of a host, a pattern, or any."""
    if sender is None:
        return ANY
    return next((role for role in ROLES if sender.startswith(role.removesuffix("s"))), sender)


def way_of(fault: RequestFault) -> str:
    """Return what becomes of the request, in the words of the text form."""
    action = fault.action
    if action is RequestAction.ERROR:
        return f"error={error_name(fault.error)}{' done' if fault.done else ''}"
    if action not in MEANT_FOR["done"]:
        return str(action.value)
    return f"{action.value}={'reply' if fault.is_of_replies else 'request'}"


def exercised_by(injections: Iterable[Injection]) -> dict[str, tuple[int, int, int]]:
    """Count the labels of armed faults, sorted."""
    counts: dict[str, tuple[int, int, int]] = {}
    for injection in injections:
        for label in labels_of(injection.fault):
            drawn, fired, effective = counts.get(label, (0, 0, 0))
            counts[label] = (
                drawn + 1,
                fired + injection.has_fired,
                effective + injection.is_effective,
            )
    return dict(sorted(counts.items()))


def coverage_lines(exercised: Exercised) -> list[str]:
    """Return three lines for people: how often triggers, APIs, and errors were drawn, have fired
    and were effective.
    """
    totals: dict[str, dict[str, tuple[int, int, int]]] = {}
    for label, counts in exercised.items():
        words = label.split()
        if words[0] == CONTACT:
            _add(totals.setdefault("first contacts", {}), f"{words[1]} with {words[2]}", counts)
            continue
        if words[0] == FAULT:
            _add(totals.setdefault("triggers", {}), words[-1], counts)
            continue
        _add(totals.setdefault("requests", {}), f"{words[1]} of {words[2]}", counts)
        if words[3].startswith("error="):
            name = " ".join(words[3:]).removeprefix("error=")
            _add(totals.setdefault("errors", {}), name, counts)
    return [
        f"  {title} (drawn/fired/effective): "
        + ", ".join(f"{name} {'/'.join(map(str, found[name]))}" for name in sorted(found))
        for title, found in totals.items()
    ]


def _add(totals: dict[str, tuple[int, int, int]], name: str, more: tuple[int, int, int]) -> None:
    drawn, fired, effective = totals.get(name, (0, 0, 0))
    totals[name] = (drawn + more[0], fired + more[1], effective + more[2])
