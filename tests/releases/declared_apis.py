"""The API versions and listeners that the jars of a release declare, stored in declared_apis.json.

`python -m tests.releases.declared_apis JAR...` rewrites the file from jars of kafka-clients, which
contain their message definitions since 2.3.
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
    """`is_last_unstable`: the last version is advertised only if unstable versions are enabled.

    Up to 2.7 all APIs are for ZooKeeper-mode brokers.
    """

    name: str
    first: int
    last: int
    is_last_unstable: bool
    listeners: tuple[str, ...]

    @property
    def shown(self) -> tuple[int, int] | None:
        """The versions that a node advertises; None: it does not advertise the API."""
        last = self.last - 1 if self.is_last_unstable else self.last
        return (self.first, last) if self.first <= last else None


@cache
def declared() -> Mapping[str, Mapping[int, DeclaredApi]]:
    """Return patch release -> API key -> declaration in its jar."""
    return {
        release: {int(key): _row(row) for key, row in rows.items()}
        for release, rows in json.loads(FILE.read_text()).items()
    }


def _row(row: list[object]) -> DeclaredApi:
    name, first, last, is_last_unstable, listeners = row
    return DeclaredApi(
        name=str(name),
        first=int(str(first)),
        last=int(str(last)),
        is_last_unstable=bool(is_last_unstable),
        listeners=tuple(str(listeners).split()),
    )


def read(jar: Path) -> dict[str, list[object]]:
    """Return API key -> row of the file, from one jar."""
    found: dict[int, list[object]] = {}
    with zipfile.ZipFile(jar) as archive:
        for entry in archive.namelist():
            if not re.fullmatch(r"common/message/\w+Request\.json", entry):
                continue
            definition, _ = json.JSONDecoder().raw_decode(
                COMMENT.sub("", archive.read(entry).decode()).strip()
            )
            versions = definition["validVersions"]
            if versions == "none":  # 4.0 and later keep the key
                continue
            first, _, last = versions.partition("-")
            listeners = " ".join(sorted(definition.get("listeners", [ZOOKEEPER])))
            is_unstable = definition.get("latestVersionUnstable", False)
            found[definition["apiKey"]] = [
                definition["name"].removesuffix("Request"),
                int(first),
                int(last or first),
                is_unstable,
                listeners,
            ]
    return {str(key): found[key] for key in sorted(found)}


def main(jars: list[str]) -> None:
    """Write the file."""
    rows = {Path(jar).stem.removeprefix("kafka-clients-"): read(Path(jar)) for jar in jars}
    body = ",\n".join(
        f' "{release}": {{\n'
        + ",\n".join(f'  "{key}": {json.dumps(row)}' for key, row in rows[release].items())
        + "\n }"
        for release in sorted(rows, key=lambda release: [int(part) for part in release.split(".")])
    )
    FILE.write_text(f"{{\n{body}\n}}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
