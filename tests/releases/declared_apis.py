"""Which versions of which API the jars of a release declare, and on which listeners: facts kept in declared_apis.json.

`python -m tests.releases.declared_apis JAR...` writes the file anew from jars of kafka-clients, which hold their message definitions since 2.3.
"""

import json
import re
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).parent / "declared_apis.json"
ZOOKEEPER, BROKER, CONTROLLER = "zkBroker", "broker", "controller"
COMMENT = re.compile(r"(?m)^\s*//.*$|\s//[^\"\n]*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredApi:
    """`is_last_unstable`: the last version is shown only if unstable ones are asked for. Up to 2.7 all is for brokers, which had ZooKeeper only."""

    name: str
    first: int
    last: int
    is_last_unstable: bool
    listeners: tuple[str, ...]

    @property
    def shown(self) -> tuple[int, int] | None:
        """The versions that a node shows; None: it shows none."""
        last = self.last - 1 if self.is_last_unstable else self.last
        return (self.first, last) if self.first <= last else None


@cache
def declared() -> Mapping[str, Mapping[int, DeclaredApi]]:
    """Return patch release -> API key -> what its jar declares."""
    return {release: {int(key): _row(row) for key, row in rows.items()} for release, rows in json.loads(FILE.read_text()).items()}


def _row(row: list[object]) -> DeclaredApi:
    name, first, last, is_last_unstable, listeners = row
    return DeclaredApi(
        name=str(name), first=int(str(first)), last=int(str(last)), is_last_unstable=bool(is_last_unstable), listeners=tuple(str(listeners).split())
    )


def read(jar: Path) -> dict[str, list[object]]:
    """Return API key -> row of the file, from one jar."""
    found: dict[int, list[object]] = {}
    with zipfile.ZipFile(jar) as archive:
        for entry in archive.namelist():
            if not re.fullmatch(r"common/message/\w+Request\.json", entry):
                continue
            definition, _ = json.JSONDecoder().raw_decode(COMMENT.sub("", archive.read(entry).decode()).strip())
            versions = definition["validVersions"]
            if versions == "none":  # 4.0 and later keep the key
                continue
            first, _, last = versions.partition("-")
            listeners = " ".join(sorted(definition.get("listeners", [ZOOKEEPER])))
            is_unstable = definition.get("latestVersionUnstable", False)
            found[definition["apiKey"]] = [definition["name"].removesuffix("Request"), int(first), int(last or first), is_unstable, listeners]
    return {str(key): found[key] for key in sorted(found)}


def main(jars: list[str]) -> None:
    """Write the file."""
    rows = {Path(jar).stem.removeprefix("kafka-clients-"): read(Path(jar)) for jar in jars}
    body = ",\n".join(
        f' "{release}": {{\n' + ",\n".join(f'  "{key}": {json.dumps(row)}' for key, row in rows[release].items()) + "\n }"
        for release in sorted(rows, key=lambda release: [int(part) for part in release.split(".")])
    )
    FILE.write_text(f"{{\n{body}\n}}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
