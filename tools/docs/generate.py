"""Generates the reference pages from code and data, and the source of the documentation site.

`make docs` builds the site. `python -m tools.docs.generate` writes only its source, to
build/site-src; git ignores both. tests/house/test_docs.py renders every page and checks links and
tables.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from kraftsim.catalogue import Catalogue
from kraftsim.cli.kind_tables import all_facts, families
from kraftsim.cli.kinds import listing
from kraftsim.cli.main import VERBS, command_of, kraftsim
from kraftsim.conformance.requirement import all_requirements, sections
from kraftsim.events.catalogue import MODULES
from kraftsim.events.catalogue import family as event_family
from kraftsim.events.event import ENVELOPE_FIELDS, Event
from kraftsim.lab.faults.state_tracker import STATES
from kraftsim.releases.release import releases
from kraftsim.server.call import Handler
from kraftsim.server.forwarding import broker_handlers
from protocol.api_keys import ApiKey
from protocol.messages.registry import declared_api_keys, versions_of
from tools.audit_corpus.results import audit_corpus_page
from tools.docs.audit_rules_page import audit_rules_page
from tools.docs.audit_tables_page import audit_tables_page
from tools.docs.bugs_page import bugs_page, bugs_plot
from tools.docs.claims_page import claims_page
from tools.docs.clients_page import clients_page
from tools.docs.log_lines_page import log_lines_page
from tools.docs.mutants_page import mutants_page
from tools.docs.probes_page import probes_page
from tools.docs.protocol_pages import pages as protocol_pages
from tools.docs.releases_page import releases_page
from tools.docs.search_coverage_page import search_coverage_page
from tools.docs.search_trial_page import search_trial_page
from tools.docs.settings_page import settings_page
from tools.docs.tasks_page import tasks_page
from tools.docs.tiered_window_page import tiered_window_page, tiered_window_plot

REFERENCE = "reference"
"""Folder of the generated pages in the site."""
SOURCE = Path(__file__).parents[2] / "build" / "site-src"
LISTS = (
    ("scenarios", "Scenarios"),
    ("invariants", "Invariants"),
    ("faults", "Faults"),
    ("bugs", "Historical bugs"),
    ("releases", "Releases"),
)


def coverage() -> str:
    """Return the page of APIs: the declared versions, and those that brokers and controllers
    support.
    """
    served = {
        "broker": {handler.key for handler in broker_handlers()},
        "controller": {
            handler.key
            for handler in Catalogue("kraftsim.*.controller_handlers", "HANDLER", Handler).all()
        },
    }
    lines = [
        "# Coverage\n",
        (
            "Which APIs of Apache Kafka exist in kraftsim. *Declared*: versions that `protocol` "
            "reads and writes. *Broker*, *controller*: which"
        ),
        (
            "node supports it. *Versions since*: the versions of Apache Kafka, each with the first "
            "release that supports them; a dash: none.\n"
        ),
        (
            "A node advertises its release's versions of the APIs that it supports; any other "
            "request closes the connection, as in Kafka.\n"
        ),
        "| key | API | declared | broker | controller | versions since |",
        "|---|---|---|---|---|---|",
    ]
    declared = set(declared_api_keys())
    for key in ApiKey:
        own = _range(versions_of(key)) if key in declared else ""
        marks = ["yes" if key in served[role] else "" for role in ("broker", "controller")]
        lines.append(
            f"| {int(key)} | {_camel(key.name)} | {own} | {marks[0]} | {marks[1]} | {_since(key)} |"
        )
    missing = len(ApiKey) - len(declared)
    lines.append(
        f"\n{len(declared)} of {len(ApiKey)} APIs are declared, {missing} are not yet. Intended "
        "differences: [deviations](../deviations.md)."
    )
    return "\n".join(lines) + "\n"


def events() -> str:
    """Return the page of events with their fields: the columns of the event log."""
    lines = [
        "# Events\n",
        (
            "The events that nodes, clients and the harness emit, one JSON line each, in "
            "`RUN/events/NODE.INCARNATION.jsonl`."
        ),
        (
            f"Each line begins with {', '.join(f'`{name}`' for name in ENVELOPE_FIELDS)}; then "
            "come the fields of its kind.\n"
        ),
    ]
    for module in MODULES:
        lines.append(
            f"## {event_family(module.__name__).replace('_', ' ').capitalize()}\n\n"
            f"{_paragraph(module.__doc__)}\n"
        )
        lines += ["| kind | fields | what happened |", "|---|---|---|"]
        for name, kind in vars(module).items():
            if (
                isinstance(kind, type)
                and issubclass(kind, Event)
                and kind.__module__ == module.__name__
            ):
                names = ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(kind))
                lines.append(f"| {name} | {names} | {_paragraph(kind.__doc__)} |")
        lines.append("")
    return "\n".join(lines)


SEED_NOTE = """\
`kraftsim.seed` (`kraftsim up --seed`): with 0 a node draws ids and nonces from the operating
system's entropy. With another number it draws them from generators that the number seeds, so that a
run can be repeated: a client can then predict the ids of fetch sessions, group members, topics and
access rules, and the nonces of SCRAM. Set a seed only if all clients are trusted. Authorization
does not depend on such ids: with an authorizer each Fetch of a session is checked."""


def settings() -> str:
    """Return the page of all properties of a node."""
    return settings_page(SEED_NOTE)


def requirements() -> str:
    """Return the page of all requirements that `kraftsim conformance` checks."""
    count = len(all_requirements(release=""))
    lines = [
        "# Requirements\n",
        (
            "The requirements that [`kraftsim conformance`](../conformance.md) checks on a running "
            f"node: {count} apply to the newest release."
        ),
        (
            "Apache Kafka meets all of them. Numbers are permanent; a removed one is not reused. "
            "Without a release: all since 3.3.\n"
        ),
    ]
    for section in sections():
        lines += [
            f"## {section.label} {section.title}\n",
            "| number | requirement | source | release |",
            "|---|---|---|---|",
        ]
        for each in section.entries:
            words = (_escaped(each.sentence), _escaped(each.source), each.releases())
            lines.append(f"| {each.label} | {' | '.join(words)} |".replace("|  |", "| |"))
        lines.append("")
    return "\n".join(lines)


def catalogue() -> str:
    """Return the page of scenarios, invariants, faults, bugs and releases."""
    lines = [
        "# Catalogue\n",
        (
            "All scenarios, invariants, faults, bugs and releases; `kraftsim list KIND` prints the "
            "same.\n"
        ),
    ]
    for kind, title in LISTS:
        if kind == "faults":
            lines += [f"## {title}\n", *_faults()]
            continue
        if kind == "scenarios":
            lines += [f"## {title}\n", *_scenarios()]
            continue
        lines += [
            f"## {title}\n",
            "| name | what |",
            "|---|---|",
            *(f"| `{name}` | {about} |" for name, about in listing(kind)),
            "",
        ]
    return "\n".join(lines)


def _scenarios() -> list[str]:
    """Return the scenarios as a table."""
    lines = [
        (
            "The starting release is the value of `--release`, else the scenario's own, which its "
            "seed may choose. A scenario refuses releases"
        ),
        (
            "that it does not support. Where an older release did not yet guarantee a property, "
            "the scenario reports the violation. The number"
        ),
        (
            "of nodes is that of `--controllers` and `--brokers`, else the scenario's own (the "
            "seed may choose the number of controllers)."
        ),
        "`kraftsim scenario NAME --help` explains the parameters.\n",
        "| name | what | releases | controllers + brokers | at least | parameters |",
        "|---|---|---|---|---|---|",
    ]
    for facts in all_facts():
        _, release_range, nodes, least, parameters = facts.columns()
        code = f"`{parameters}`" if parameters else ""
        lines.append(
            f"| `{facts.name}` | {facts.about} | {release_range} | {nodes} | {least} | "
            f"{code} |".replace("|  |", "| |")
        )
    return [*lines, ""]


def _faults() -> list[str]:
    """Return the kinds of faults as a table for each family."""
    lines = [
        (
            "The target of a fault is a host, a group of hosts (`controller-*`, `a,b`), or "
            "`leader`; of links, `a>b` is one"
        ),
        (
            "direction, `a<>b` both, `a` all of them. A fault is injected at a time, at the nth "
            "disk operation, frame or event, or when a node enters"
        ),
        (
            "a state. Parameters are shown with their default and, in brackets, with the values "
            "that a search draws from.\n"
        ),
    ]
    for family, kinds in families().items():
        lines += [
            f"### {family.value.capitalize()} ({len(kinds)})\n",
            "| name | what | target | trigger | modes | parameters |",
            "|---|---|---|---|---|---|",
        ]
        for kind in kinds:
            words = (
                _escaped(kind.about),
                kind.aim,
                ", ".join(kind.triggers_on),
                ", ".join(kind.modes),
                "<br>".join(f"`{param}`" for param in kind.params),
            )
            lines.append(f"| `{kind.name}` | {' | '.join(words)} |".replace("|  |", "| |"))
        lines.append("")
    states = [f"| `{name}` | {state.about} |" for name, state in STATES.items()]
    return [
        *lines,
        "### States\n",
        "The states of a node that a trigger can wait for; several can be combined.\n",
        "| name | the node |",
        "|---|---|",
        *states,
        "",
    ]


def command_line() -> str:
    """Return the page with the help of every command."""
    import click

    lines = ["# Command line\n", "The output of `kraftsim VERB --help`.\n"]
    group = click.Context(kraftsim, info_name="kraftsim", help_option_names=["-h", "--help"])
    for verb in VERBS:
        command = command_of(verb)
        context = click.Context(
            command, info_name=verb, parent=group, terminal_width=110, max_content_width=110
        )
        text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
        lines += [f"## {verb}\n", f"```text\n{text}\n```\n"]
    assert set(VERBS) == set(kraftsim.list_commands(click.Context(kraftsim)))
    return "\n".join(lines)


GENERATED: Mapping[str, Callable[[], str]] = {
    "audit-rules.md": audit_rules_page,
    "coverage.md": coverage,
    "events.md": events,
    "settings.md": settings,
    "requirements.md": requirements,
    "catalogue.md": catalogue,
    "command-line.md": command_line,
    "client-matrix.md": clients_page,
    "mutants.md": mutants_page,
    "search-coverage.md": search_coverage_page,
    "search-trial.md": search_trial_page,
    "audit-corpus.md": audit_corpus_page,
    "personas.md": releases_page,
    "log-lines.md": log_lines_page,
    "probes.md": probes_page,
    "producer-per-task.md": tasks_page,
    "tiered-storage-window.md": tiered_window_page,
    "tiered-storage-window.svg": tiered_window_plot,
    "bugs.md": bugs_page,
    "bugs.svg": bugs_plot,
    "claims.md": claims_page,
    "audit-tables.md": audit_tables_page,
    **protocol_pages(),
}


def text_of(page: str) -> str:
    """Return a generated page."""
    return GENERATED[page]().rstrip() + "\n"


def main() -> None:
    """Write the source of the site."""
    from tools.docs.site import assemble

    print(f"{assemble(SOURCE)} files written to {SOURCE.relative_to(Path.cwd())}")


def _since(key: ApiKey) -> str:
    """Return the offered versions of an API, each range with the first release that has it."""
    found: list[str] = []
    before = ""
    for release in releases():
        offered = (
            release.broker_apis.get(key)
            or release.controller_apis.get(key)
            or release.zookeeper_apis.get(key)
        )
        versions = _range(offered) or ("-" if found else "")
        if versions and versions != before:
            found.append(f"{release.name}: {versions}")
            before = versions
    return "; ".join(found)


def _range(versions: tuple[int, int] | None) -> str:
    return (
        ""
        if versions is None
        else f"{versions[0]}"
        if versions[0] == versions[1]
        else f"{versions[0]}-{versions[1]}"
    )


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _paragraph(text: str | None) -> str:
    return " ".join((text or "").partition("Source:")[0].split()).replace("|", "\\|")


if __name__ == "__main__":
    main()
