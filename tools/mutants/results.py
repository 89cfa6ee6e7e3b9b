"""The results of mutation runs, in a file with one line per mutant, sorted by name."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tools.mutants.mutant import Mutant
from tools.mutants.mutation_run import Finding
from tools.mutants.patching import source_of

RESULTS = Path(__file__).parents[2] / "docs" / "mutants.json"
DIGEST_CHARACTERS = 12


def digest_of(mutant: Mutant) -> str:
    """Return a digest of the function's current source and the change."""
    text = "\0".join((mutant.place, source_of(mutant), mutant.old, mutant.new))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARACTERS]


def read(path: Path = RESULTS) -> dict[str, Finding]:
    """Return the stored results by name."""
    if not path.exists():
        return {}
    return {
        finding.name: finding
        for finding in msgspec.json.decode(path.read_bytes(), type=list[Finding])
    }


def write(findings: Iterable[Finding], path: Path = RESULTS) -> None:
    """Write all results; CPU time to a hundredth of a second."""
    rounded = [
        msgspec.structs.replace(finding, cpu_seconds=round(finding.cpu_seconds, 2))
        for finding in findings
    ]
    lines = ",\n".join(
        msgspec.json.encode(finding).decode()
        for finding in sorted(rounded, key=lambda each: each.name)
    )
    path.write_text(f"[\n{lines}\n]\n")
