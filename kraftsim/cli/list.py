"""`kraftsim list`: lists entries, one per line."""

from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import click

from kraftsim.cli.kept_lists import kept_text
from kraftsim.cli.kinds import ALL_KINDS
from kraftsim.cli.options import extension_option, json_option, write_json


@click.command(
    epilog="""\b
Examples:
  kraftsim list scenarios
  kraftsim list scenarios --long    # releases, node counts and workload parameters
  kraftsim list releases
  kraftsim list faults --long       # targets, triggers, parameters and what random faults draw
  kraftsim list environment         # what a scenario of your own can do
  kraftsim list scenarios --extension ./my_scenario.py
  kraftsim list rules --long        # of an audit: also what a defect means, and what to do
  kraftsim list bugs       # then: kraftsim sweep SCENARIO --bug NAME
  kraftsim list invariants --json invariants.json
  kraftsim list invariants --long   # which of them a run on Apache Kafka decides"""
)
@click.argument("kind", type=click.Choice(ALL_KINDS))
@click.option("--long", "is_long", is_flag=True, help="Show more.")
@extension_option
@json_option
def list(kind: str, is_long: bool, json_file: Path | None) -> None:
    """List all entries of a KIND with their names and a one-line description.

    With --long each scenario is shown with the releases that a cluster may start with, its number
    of controllers + brokers, the smallest numbers that it supports, and its workload parameters;
    each fault with its target, its modes and triggers, and its parameters; each invariant with its
    source and whether a run on Apache Kafka decides it; each event with its view in SQL and its
    fields; each rule of `kraftsim audit` with its source, what a defect means and
    what to do.

    `environment`, `triggers`, `parts` and `traits` are what a scenario, a fault, a bug and a
    release of your own can use (docs/extensions.md).
    """
    if is_long and kind not in LONG:
        raise click.BadParameter(
            f"only {', '.join(LONG)} have a long listing, not {kind}", param_hint="--long"
        )
    if json_file is not None:
        _print(kind, is_long, json_file)
        return

    def text() -> str:
        with redirect_stdout(StringIO()) as printed:
            _print(kind, is_long, None)
        return printed.getvalue()

    click.echo(kept_text(f"{kind}-long" if is_long else kind, text), nl=False)


def _print(kind: str, is_long: bool, json_file: Path | None) -> None:
    from kraftsim.cli.kinds import listing, places, with_places

    if is_long:
        LONG[kind](json_file)
        return
    if kind in OWN_TABLES:
        OWN_TABLES[kind](json_file)
        return
    rows = listing(kind)
    if str(json_file) != "-":
        _write_table([*rows], places(kind))
    write_json(
        json_file, with_places(kind, [{"name": name, "about": about} for name, about in rows])
    )


def _list_faults(json_file: Path | None) -> None:
    """Print every kind of fault with its family, its target, the modes that support it, and its
    parameters: default, and drawn values.
    """
    from kraftsim.cli.kind_tables import families
    from kraftsim.cli.kinds import places, with_places

    found = [line for lines in families().values() for line in lines]
    if str(json_file) != "-":
        _write_table([line.columns() for line in found], places("faults"))
    write_json(json_file, with_places("faults", [line.as_json() for line in found]))


def _list_long_faults(json_file: Path | None) -> None:
    """Print a paragraph for every kind of fault."""
    from kraftsim.cli.kinds import places, with_places
    from kraftsim.cli.own_tables import long_faults

    found, known = long_faults(), places("faults")
    if str(json_file) != "-":
        for number, fault in enumerate(found):
            if number:
                click.echo()
            for line in fault.lines(known.get(fault.name)):
                click.echo(line)
    write_json(json_file, with_places("faults", [fault.as_json() for fault in found]))


def _list_long_events(json_file: Path | None) -> None:
    """Print a paragraph for every kind of event: its view in SQL, and its fields."""
    from kraftsim.cli.own_tables import long_events

    found = long_events()
    if str(json_file) != "-":
        for number, event in enumerate(found):
            if number:
                click.echo()
            for line in event.lines():
                click.echo(line)
    write_json(json_file, [event.as_json() for event in found])


def _list_long_invariants(json_file: Path | None) -> None:
    """Print a paragraph for every invariant: its source, and whether a run on nodes of Apache
    Kafka decides it.
    """
    from kraftsim.cli.kinds import listing, places, with_places
    from kraftsim.invariants.invariant import INVARIANTS
    from kraftsim.invariants.without_nodes import reason_without_nodes

    about, known = dict(listing("invariants")), places("invariants")
    found = [(each, reason_without_nodes(each)) for each in INVARIANTS.all()]
    if str(json_file) != "-":
        for number, (each, reason) in enumerate(found):
            if number:
                click.echo()
            place = f"  [{known[each.name]}]" if each.name in known else ""
            click.echo(f"{each.name}{place}")
            click.echo(f"  {about[each.name]}")
            click.echo(f"  source: {each.source}")
            click.echo(f"  on Apache Kafka: {reason or 'decided by clients and disks'}")
    rows = [
        {
            "name": each.name,
            "about": about[each.name],
            "source": each.source,
            "without_nodes": not reason,
            "needs": reason,
        }
        for each, reason in found
    ]
    write_json(json_file, with_places("invariants", rows))


def _list_scenarios(json_file: Path | None) -> None:
    from kraftsim.cli.kind_tables import HEADINGS, all_facts
    from kraftsim.cli.kinds import places, with_places

    found = all_facts()
    if str(json_file) != "-":
        _write_table([HEADINGS, *(each.columns() for each in found)], places("scenarios"))
    write_json(json_file, with_places("scenarios", [each.as_json() for each in found]))


def _list_rules(json_file: Path | None) -> None:
    """Print every rule of an audit with its severity and statement."""
    from kraftsim.audit.judging import RULES

    rules = sorted(RULES.all(), key=lambda rule: rule.name)
    if str(json_file) != "-":
        _write_table([(each.name, each.severity.name.lower(), each.statement) for each in rules])
    _write_rules(json_file)


def _list_long_rules(json_file: Path | None) -> None:
    """Print a paragraph for every rule of an audit."""
    from kraftsim.audit.judging import RULES

    if str(json_file) != "-":
        for number, rule in enumerate(sorted(RULES.all(), key=lambda rule: rule.name)):
            needs = "  (needs --records)" if rule.needs_records else ""
            if number:
                click.echo()
            click.echo(f"{rule.name}  [{rule.severity.name.lower()}]{needs}")
            click.echo(f"  {rule.statement}")
            click.echo(f"  source: {rule.source}")
            click.echo(f"  means:  {rule.meaning}")
            click.echo(f"  to do:  {rule.remedy}")
    _write_rules(json_file)


def _write_rules(json_file: Path | None) -> None:
    from kraftsim.audit.judging import RULES

    write_json(
        json_file,
        [
            {
                "name": each.name,
                "about": each.statement,
                "severity": each.severity.name.lower(),
                "source": each.source,
                "meaning": each.meaning,
                "remedy": each.remedy,
                "reads": each.reads,
                "needs_records": each.needs_records,
                "must_decide": each.must_decide,
            }
            for each in sorted(RULES.all(), key=lambda rule: rule.name)
        ],
    )


def _list_bugs(json_file: Path | None) -> None:
    """Print every bug with the scenario that finds it soonest.

    As JSON with the invariants that catch it and the release that fixed it.
    """
    from kraftsim.cli.kinds import listing, places, with_places
    from kraftsim.lab.bugs.bug import bugs

    about = dict(listing("bugs"))
    if str(json_file) != "-":
        rows = [(each.name, each.scenario, about[each.name]) for each in bugs()]
        _write_table(rows, places("bugs"))
    listed = [
        {"scenario": each.scenario, "caught_by": each.caught_by, "fixed_in": each.fixed_in}
        for each in bugs()
    ]
    named = [
        {"name": each.name, "about": about[each.name], **more}
        for each, more in zip(bugs(), listed, strict=True)
    ]
    write_json(json_file, with_places("bugs", named))


def _list_releases(json_file: Path | None) -> None:
    """Print every release and what is merged for the next one, oldest first: line, patch, modes,
    newest level, what is new.

    As JSON with traits, features and versions.
    """
    from kraftsim.cli.kind_tables import release_as_json, release_columns
    from kraftsim.cli.kinds import places, with_places
    from kraftsim.releases.release import known_releases

    if str(json_file) != "-":
        _write_table([release_columns(release) for release in known_releases()], places("releases"))
    found = [release_as_json(release) for release in known_releases()]
    write_json(json_file, with_places("releases", found))


def _write_table(rows: Sequence[Sequence[str]], places: Mapping[str, str] | None = None) -> None:
    """Write rows in columns; those of extensions end with their place, in brackets."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    for *short, last in rows:
        place = (places or {}).get(short[0] if short else last)
        cells = [*(f"{text:<{width}}" for text, width in zip(short, widths, strict=True)), last]
        click.echo("  ".join([*cells, *([f"[{place}]"] if place else [])]).rstrip())


OWN_TABLES = {
    "bugs": _list_bugs,
    "faults": _list_faults,
    "releases": _list_releases,
    "rules": _list_rules,
}
"""Kinds with more columns than a name and a sentence."""
LONG = {
    "scenarios": _list_scenarios,
    "rules": _list_long_rules,
    "faults": _list_long_faults,
    "events": _list_long_events,
    "invariants": _list_long_invariants,
}
"""Kinds with a long listing."""
