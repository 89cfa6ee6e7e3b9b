"""The generated page of the rules of `kraftsim audit`: what each says, what a defect means, and
what to do.
"""

from kraftsim.audit.judging import RULES
from kraftsim.audit.report import SEVERITIES
from kraftsim.audit.rule import AuditRule

INTRODUCTION = """# Rules of an audit

What `kraftsim audit` checks in log directories, the most severe first.
[After an incident](../after-an-incident.md) explains how to run it and what stays undecided;
`kraftsim list rules --long` prints the same.
"""


def audit_rules_page() -> str:
    """Return the page, with a chapter per severity."""
    rules = sorted(RULES.all(), key=lambda rule: rule.name)
    parts = [INTRODUCTION]
    for severity, (name, about) in SEVERITIES.items():
        parts.append(f"## {name.capitalize()}: {about}\n")
        parts += [_rule(rule) for rule in rules if rule.severity is severity]
    return "\n".join(parts)


def _rule(rule: AuditRule) -> str:
    needs = ["`--records`"] if rule.needs_records else []
    if any(table.startswith("client_") for table in rule.reads):
        needs.append("`--acknowledged` or `--capture`")
    if "remote_files" in rule.reads:
        needs.append("`--remote-storage`")
    asked = f"Asked with {' and '.join(needs)}. " if needs else ""
    tables = ", ".join(f"`{table}`" for table in rule.reads)
    return (
        f"### {rule.name}\n\n{rule.statement} *Source: {rule.source}.*\n\n"
        f"- Means: {rule.meaning}\n- To do: {rule.remedy}\n- {asked}Reads {tables}.\n"
    )
