"""The kinds of entries that `kraftsim list` prints, and the module of each kind's catalogue."""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kraftsim.catalogue import Catalogue, entry_name
from kraftsim.extensions import EXPORTS, Extension

KINDS = {
    "scenarios": "kraftsim.cluster.scenario:SCENARIOS",
    "bugs": "kraftsim.lab.bugs.bug:BUGS",
    "faults": "kraftsim.lab.faults.fault:FAULTS",
    "invariants": "kraftsim.invariants.invariant:INVARIANTS",
    "releases": "kraftsim.releases.release:RELEASES",
    "requirements": "kraftsim.conformance.requirement:SECTIONS",
}
"""Kinds with a catalogue of files: kind -> module:catalogue."""

EXTENSIBLE = tuple(f"{export.lower()}s" for export in EXPORTS)
"""Kinds that an extension may have entries of."""

TEXTS: dict[str, Callable[[Any], str | None]] = {
    "bugs": lambda bug: bug.about,
    "faults": lambda kind: kind.inject.__doc__,
    "invariants": lambda invariant: invariant.check.__doc__,
    "releases": lambda release: release.about,
    "scenarios": lambda scenario: scenario.summary,
}
"""Kind -> the text about an entry of a file with several; a file with one has it as docstring."""


def catalogue_of(kind: str) -> Catalogue[object]:
    """Import the catalogue of a kind."""
    module, _, attribute = KINDS[kind].partition(":")
    catalogue = getattr(importlib.import_module(module), attribute)
    assert isinstance(catalogue, Catalogue), f"{KINDS[kind]} is no catalogue"
    return catalogue


def require_valid(extension: Extension) -> None:
    """Raise ExtensionError if an extension exports something else than it should, or an entry by a
    name that is taken.
    """
    for kind in EXTENSIBLE:
        if extension.exports(kind.removesuffix("s").upper()):
            catalogue_of(kind).require_valid_extensions()


def places(kind: str) -> dict[str, str]:
    """Return the entries of a kind that are from extensions: name -> file or module."""
    if kind not in EXTENSIBLE:
        return {}
    catalogue = catalogue_of(kind)
    return {
        entry_name(entry, file): extension.place
        for file, entry in catalogue.with_files()
        if (extension := catalogue.extension(file)) is not None
    }


def with_places(kind: str, rows: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Return rows of a listing with where each is from: a file or module, None for a built-in."""
    if kind not in EXTENSIBLE:
        return list(rows)
    known = places(kind)
    return [{**row, "extension": known.get(str(row["name"]))} for row in rows]


def listing(kind: str) -> list[tuple[str, str]]:
    """Return the entries of a kind: name, and one sentence about it."""
    if kind in OTHERS:
        return OTHERS[kind]()
    catalogue = catalogue_of(kind)
    listed = []
    for file, entry in catalogue.with_files():
        is_alone = len(catalogue.entries(file)) == 1 and catalogue.extension(file) is None
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


def _own(table: str) -> Callable[[], list[tuple[str, str]]]:
    """Return a function that returns a table of `kraftsim.cli.own_tables`."""

    def rows() -> list[tuple[str, str]]:
        from kraftsim.cli.own_tables import TABLES

        return TABLES[table]()

    return rows


OTHERS: dict[str, Callable[[], list[tuple[str, str]]]] = {
    "environment": _own("environment"),
    "triggers": _own("triggers"),
    "parts": _own("parts"),
    "traits": _own("traits"),
    "rules": _rules,
    "events": _events,
    "messages": _messages,
}
"""Kinds without a catalogue of files, or whose entries have a sentence of their own."""

ALL_KINDS = (*KINDS, *OTHERS)
