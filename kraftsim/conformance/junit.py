"""Results as JUnit XML for CI systems: a suite per section, a case per requirement.

Source: the elements and attributes that the schema of Jenkins' xUnit plug-in (junit-10.xsd) and the
readers of GitHub and GitLab share.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from xml.etree import ElementTree

from kraftsim.conformance.runner import RequirementFinding, RequirementVerdict

NAME = "kraftsim conformance"
NOT_FOR_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(
    findings: Sequence[RequirementFinding],
    properties: Mapping[str, str],
    started_at: str,
    lost: str = "",
) -> bytes:
    """Return the document.

    `properties` are in every suite; `started_at` is a time like 2026-01-31T12:00:00.

    `lost` is the reason why the node was not checked, or not completely: then an additional suite
    has one error, because an empty one would pass.
    """
    root = ElementTree.Element(
        "testsuites", {"name": NAME, **_counts(findings, with_skipped=False)}
    )
    for label, group in groupby(findings, key=lambda finding: finding.requirement.section.label):
        root.append(_suite(label, list(group), properties, started_at))
    if lost:
        root.append(_error(properties, started_at, lost))
        root.set("tests", str(len(findings) + 1))
        root.set("errors", "1")
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _suite(
    label: str, findings: list[RequirementFinding], properties: Mapping[str, str], started_at: str
) -> ElementTree.Element:
    title = findings[0].requirement.section.title
    suite = ElementTree.Element(
        "testsuite",
        {
            "name": f"{label} {title}",
            "timestamp": started_at,
            **_counts(findings, with_skipped=True),
        },
    )
    _add_properties(suite, properties)
    for finding in findings:
        suite.append(_case(finding))
    return suite


def _error(properties: Mapping[str, str], started_at: str, lost: str) -> ElementTree.Element:
    counts = {"tests": "1", "failures": "0", "errors": "1", "time": "0.000", "skipped": "0"}
    suite = ElementTree.Element("testsuite", {"name": "node", "timestamp": started_at, **counts})
    _add_properties(suite, properties)
    case = ElementTree.SubElement(
        suite,
        "testcase",
        {"name": "the node answers", "classname": "conformance.node", "time": "0.000"},
    )
    ElementTree.SubElement(
        case, "error", {"message": _clean(lost), "type": "NodeLost"}
    ).text = _clean(lost)
    return suite


def _add_properties(suite: ElementTree.Element, properties: Mapping[str, str]) -> None:
    rows = ElementTree.SubElement(suite, "properties")
    for name, value in properties.items():
        ElementTree.SubElement(rows, "property", {"name": name, "value": _clean(value)})


def _case(finding: RequirementFinding) -> ElementTree.Element:
    of = finding.requirement
    class_name = f"conformance.{of.section.chapter}.{of.section.section}"
    case = ElementTree.Element(
        "testcase",
        {
            "name": _clean(f"{of.label} {of.sentence}"),
            "classname": class_name,
            "time": f"{finding.seconds:.3f}",
        },
    )
    if finding.verdict is RequirementVerdict.SKIPPED:
        ElementTree.SubElement(case, "skipped", {"message": _clean(finding.why)})
    if finding.verdict is RequirementVerdict.UNMET:
        failure = ElementTree.SubElement(
            case, "failure", {"message": _clean(finding.why), "type": "Unmet"}
        )
        halves = (
            [f"expected: {finding.expected}", f"came: {finding.came}"]
            if finding.expected or finding.came
            else []
        )
        failure.text = _clean("\n".join([f"source: {of.source}", *halves, *finding.transcript]))
    return case


def _counts(findings: Sequence[RequirementFinding], *, with_skipped: bool) -> dict[str, str]:
    counts = {
        "tests": str(len(findings)),
        "failures": str(sum(finding.verdict is RequirementVerdict.UNMET for finding in findings)),
        "errors": "0",
        "time": f"{sum(finding.seconds for finding in findings):.3f}",
    }
    if with_skipped:
        counts["skipped"] = str(
            sum(finding.verdict is RequirementVerdict.SKIPPED for finding in findings)
        )
    return counts


def _clean(text: str) -> str:
    return NOT_FOR_XML.sub("\ufffd", text)
