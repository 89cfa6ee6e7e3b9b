"""The kinds of entries that `kraftsim list` prints, and the module of each kind's catalogue."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

from kraftsim.catalogue import Catalogue, entry_name

KINDS = {
    "scenarios": "kraftsim.cluster.scenario:SCENARIOS",
    "bugs": "kraftsim.lab.bugs.bug:BUGS",
    "faults": "kraftsim.lab.faults.fault:FAULTS",
    "invariants": "kraftsim.invariants.invariant:INVARIANTS",
    "releases": "kraftsim.releases.catalogue:RELEASES",
    "requirements": "kraftsim.conformance.requirement:SECTIONS",
}
"""Kinds with a catalogue of files: kind -> module:catalogue."""

TEXTS: dict[str, Callable[[Any], str | None]] = {
    "bugs": lambda bug: bug.about,
    "faults": lambda kind: kind.inject.__doc__,
    "invariants": lambda invariant: invariant.check.__doc__,
    "releases": lambda release: release.about,
}
"""Kind -> the text about an entry of a file with several; a file with one has it as docstring."""


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
    listed = []
    for file, entry in catalogue.with_files():
        is_alone = len(catalogue.entries(file)) == 1
        text = sys.modules[catalogue.module(file)].__doc__ if is_alone else TEXTS[kind](entry)
        listed.append((entry_name(entry, file), first_sentence(text)))
    return listed


def first_sentence(text: str | None) -> str:
    """Return the first paragraph of a docstring, without what cites its source."""
    return " ".join((text or "").strip().split("\n\n")[0].split()).partition(" Source:")[0].rstrip()


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


def _rules() -> list[tuple[str, str]]:
    from kraftsim.audit.judging import RULES

    return [(rule.name, rule.statement) for rule in RULES.all()]


OTHERS: dict[str, Callable[[], list[tuple[str, str]]]] = {
    "rules": _rules,
    "events": _events,
    "messages": _messages,
}
"""Kinds without a catalogue of files, or whose entries have a sentence of their own."""

ALL_KINDS = (*KINDS, *OTHERS)
