"""The kinds of entries that `kraftsim list` prints, and the module of each kind's catalogue."""

import importlib
import sys
from collections.abc import Callable

from kraftsim.catalogue import Catalogue, entry_name

KINDS = {
    "scenarios": "kraftsim.cluster.scenario:SCENARIOS",
    "bugs": "kraftsim.lab.bugs.bug:BUGS",
    "faults": "kraftsim.lab.faults.fault:FAULTS",
    "invariants": "kraftsim.invariants.invariant:INVARIANTS",
    "releases": "kraftsim.releases.catalogue:RELEASES",
    "requirements": "kraftsim.conformance.requirement:SECTIONS",
}
"""Kinds with one file per entry: kind -> module:catalogue."""


def catalogue_of(kind: str) -> Catalogue[object]:
    """Import the catalogue of a kind."""
    module, _, attribute = KINDS[kind].partition(":")
    catalogue = getattr(importlib.import_module(module), attribute)
    assert isinstance(catalogue, Catalogue), f"{KINDS[kind]} is no catalogue"
    return catalogue


def listing(kind: str) -> list[tuple[str, str]]:
    """Return the entries of a kind: name, and one sentence about it."""
    if kind in OTHERS:
        return OTHERS[kind]()
    catalogue = catalogue_of(kind)
    return [
        (entry_name(catalogue.load(file), file), first_sentence(catalogue.module(file)))
        for file in catalogue.files()
    ]


def first_sentence(module: str) -> str:
    """Return the first line of a loaded module's docstring, without what cites its source."""
    text = (sys.modules[module].__doc__ or "").strip().split("\n\n")[0]
    return " ".join(text.split()).partition(" Source:")[0].rstrip()


def _events() -> list[tuple[str, str]]:
    from kraftsim.events.catalogue import KINDS as EVENT_KINDS

    return [
        (name, " ".join((kind.__doc__ or "").split("\n\n")[0].split()))
        for name, kind in EVENT_KINDS.items()
    ]


def _messages() -> list[tuple[str, str]]:
    from protocol.api_keys import ApiKey
    from protocol.messages.registry import versions_of

    rows = []
    for api_key in ApiKey:
        try:
            first, last = versions_of(api_key)
        except KeyError:
            continue
        rows.append((api_key.name, f"key {int(api_key)}, versions {first} to {last}"))
    return rows


OTHERS: dict[str, Callable[[], list[tuple[str, str]]]] = {"events": _events, "messages": _messages}
"""Kinds without a catalogue of files."""

ALL_KINDS = (*KINDS, *OTHERS)
