"""`python -m kraftsim.conformance HOST:PORT`: judges a running node and says which requirements it does not meet."""

import argparse
import json
import sys
from pathlib import Path

from kraftsim.conformance.runner import Finding, all_requirements, judge_all
from kraftsim.conformance.target import Target

EXAMPLES = """examples:
  python -m kraftsim.conformance 127.0.0.1:9092
  python -m kraftsim.conformance 127.0.0.1:9092 --api produce --api fetch --json findings.json
  python -m kraftsim.conformance 127.0.0.1:9092 --release 3.5

exit codes: 0 every requirement is met, 1 some are not, 3 the node could not be judged"""
MET, UNMET, FAILED = 0, 1, 3


def main() -> int:
    """Read the command line, judge, report."""
    parser = argparse.ArgumentParser(
        prog="python -m kraftsim.conformance", description=main.__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.description = "Judge a running Kafka node by what it does on the wire."
    parser.add_argument("address", metavar="HOST:PORT", help="a broker of the cluster")
    parser.add_argument("--api", action="append", default=[], metavar="NAME", help="only the requirements of this file, for example produce")
    parser.add_argument("--release", default="", metavar="LINE", help="leave out what came after this release line, for example 3.5")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the findings as JSON")
    given = parser.parse_args()
    try:
        findings = list(judge_all(Target(given.address), all_requirements(given.api, given.release), _tell))
    except (OSError, ValueError, KeyError) as trouble:
        print(f"{given.address} could not be judged: {trouble}", file=sys.stderr)
        return FAILED
    unmet = sum(not finding.is_met for finding in findings)
    print(f"{len(findings) - unmet} requirements are met, {unmet} are not")
    if given.json:
        given.json.write_text(json.dumps([finding.as_row() for finding in findings], indent=2) + "\n")
    return UNMET if unmet else MET


def _tell(finding: Finding) -> None:
    mark = "met  " if finding.is_met else "UNMET"
    print(f"{mark} {finding.requirement.api}: {finding.requirement.sentence}  [{finding.requirement.source}]", flush=True)
    if not finding.is_met:
        print(f"      {finding.why}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
