"""The page of settings: the meaning of each, the releases with it, and whether it has an effect in
kraftsim.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields

from kraftsim.metadata.rules_config_definitions import DYNAMIC_ONLY
from kraftsim.metadata.rules_config_releases import (
    BROKER_GONE,
    BROKER_ROWS,
    LINES,
    Rows,
    rows_until,
)
from kraftsim.server.config import NodeConfig
from kraftsim.server.config_keys import DEFAULT_KEY, NAME_KEY
from kraftsim.server.config_meanings import meaning_of
from kraftsim.server.settings_in_effect import keys_in_effect
from tools.docs.own_settings import MEANINGS, SINCE

OWN = "Settings of kraftsim"
OTHER = "Other"
DEFAULT_MAX = 60
"""The maximum length of a default or of valid values in the table."""
GROUPS = (
    (OWN, ("kraftsim.", "max.in.flight.sequence")),
    (
        "Brokers, controllers and the metadata log",
        (
            "process.",
            "node.",
            "broker.",
            "controlled.",
            "controller",
            "metadata.",
            "initial.broker",
            "reserved.broker",
            "unstable.",
            "server.",
        ),
    ),
    (
        "Listeners and connections",
        (
            "listener",
            "advertised.",
            "socket.",
            "connections.",
            "max.connection",
            "inter.broker.listener",
            "control.plane",
            "request.",
            "queued.",
            "num.network",
            "num.io",
            "host.name",
            "port",
        ),
    ),
    (
        "Security",
        (
            "sasl.",
            "ssl.",
            "security.",
            "authorizer.",
            "early.start",
            "principal.",
            "super.",
            "allow.",
            "delegation.",
            "password.",
            "connection.failed",
        ),
    ),
    ("ZooKeeper", ("zookeeper.", "inter.broker.protocol")),
    (
        "Replication",
        ("replica", "num.replica", "leader.", "follower.", "unclean.", "auto.leader", "eligible."),
    ),
    ("Producers and transactions", ("transaction", "producer.", "add.partitions")),
    ("Groups and offsets", ("group.", "offset", "share.", "errors.")),
    ("Tiered storage", ("remote.",)),
    (
        "Quotas, metrics and telemetry",
        (
            "quota.",
            "alter.log.dirs",
            "metric",
            "kafka.metrics",
            "client",
            "telemetry.",
            "auto.include",
        ),
    ),
    (
        "Topics and logs",
        (
            "log.",
            "message.",
            "compression.",
            "min.insync",
            "num.partitions",
            "default.",
            "auto.create",
            "delete.",
            "create.",
            "fetch.",
            "max.incremental",
            "max.request",
            "num.recovery",
            "background.",
            "cordoned.",
        ),
    ),
    (OTHER, ("",)),
)
"""Titles, and the name prefixes of each group; the first match counts."""
HEAD = """# Settings

Properties of a node, in a file for `kraftsim node FILE` or as `--set KEY=VALUE`. Names and defaults
are Kafka's; settings that begin with `kraftsim.` are kraftsim's own. Unknown keys stop the start
with an error that names all of them and the nearest known key; `--ignore-unknown` starts the node
all the same. Each value is checked by the definition of the node's release.

*Default*: where it differs between releases, each value has the first release that has it.
*Change*: `read-only` settings need a restart, `per-broker` ones can be changed on a running broker,
`cluster-wide` ones on one broker or on all of them. *Since*: the first release of Apache Kafka,
from 2.3 on, that knows the setting, and the last one if later releases do not. *Effect*: a setting
without it is accepted, so that a real file can be used, and changes nothing yet.
"""
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
SECURED = f"""## A sample with SASL and TLS

```properties
listeners=PLAINTEXT://127.0.0.1:9092,CLIENTS://127.0.0.1:9093
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_SSL
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.clients.scram-sha-512.sasl.jaas.config={SCRAM_LOGIN}
listener.name.clients.ssl.keystore.type=PEM
listener.name.clients.ssl.keystore.location=/etc/kraftsim/broker.pem
```

The listener `CLIENTS` requires SCRAM authentication over TLS; brokers and controllers do not use
it. The file has the key and the certificates.
[Clusters with SASL and TLS](../clusters.md#clusters-with-sasl-and-tls) has whole clusters, clients
and credentials.
"""
TABLE = (
    "| property | type | default | change | valid values | since | effect | meaning |\n"
    "|---|---|---|---|---|---|---|---|"
)


NAMES_OF_TYPES = {"bool": "boolean", "float": "double", "int": "long", "int | None": "long"}
"""Annotation of a field of `NodeConfig` -> Kafka's name of the type; a tuple is a list, anything
else a string.
"""


def _type_of(annotation: object) -> str:
    text = (
        annotation
        if isinstance(annotation, str)
        else getattr(annotation, "__name__", str(annotation))
    )
    return "list" if text.startswith("tuple") else NAMES_OF_TYPES.get(text, "string")


TYPES = {
    str(each.metadata[NAME_KEY]): _type_of(each.type)
    for each in fields(NodeConfig)
    if NAME_KEY in each.metadata
}
"""Property of a node -> its type."""


def settings_page(seed_note: str) -> str:
    """Return the page; `seed_note` explains the security of kraftsim.seed."""
    rows = {line: rows_until(BROKER_ROWS, BROKER_GONE, line) for line in LINES}
    own = {
        str(each.metadata[NAME_KEY]): each.metadata[DEFAULT_KEY]
        for each in fields(NodeConfig)
        if NAME_KEY in each.metadata
    }
    names = sorted({*own, *DYNAMIC_ONLY, *(name for each in rows.values() for name in each)})
    lines = [HEAD]
    for title, _ in GROUPS:
        members = [name for name in names if _group_of(name) == title]
        if members:
            lines += [f"## {title}\n", TABLE, *(_line(name, rows, own) for name in members), ""]
    return "\n".join([*lines, seed_note, "", SECURED])


def _group_of(name: str) -> str:
    return next(title for title, beginnings in GROUPS if name.startswith(beginnings))


def _line(name: str, rows: dict[str, Rows], own: dict[str, str | None]) -> str:
    known = [line for line in LINES if name in rows[line]]
    is_used = (
        name.startswith("kraftsim.") or name in keys_in_effect() or meaning_of(name) is not None
    )
    effect = "yes" if is_used else ""
    if known:
        row = (*rows[known[-1]][name], "", "", "")
        kind, mode, valid = str(row[1]).lower(), row[3] or "read-only", _code(row[4] or "")
        default = _default(name, known, rows)
    elif name in DYNAMIC_ONLY:
        kind, mode, valid, default = (
            "long",
            "cluster-wide",
            "`[0,...]`",
            _code(DYNAMIC_ONLY[name].default or ""),
        )
    else:
        mode, valid, default = (
            "read-only",
            "",
            "*required*" if own[name] is None else _code(str(own[name])),
        )
        kind = TYPES[name]
    since = SINCE if not known and name not in DYNAMIC_ONLY else _releases(known)
    meaning = MEANINGS.get(name) or meaning_of(name) or ""
    cells = (f"`{name}`", kind, default, mode, valid, since, effect, meaning)
    return f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def _default(name: str, known: Sequence[str], rows: dict[str, Rows]) -> str:
    found = list(_changes(name, known, rows))
    if len(found) == 1:
        return found[0][1]
    return "; ".join(f"{line}: {text or 'none'}" for line, text in found)


def _changes(name: str, known: Sequence[str], rows: dict[str, Rows]) -> Iterator[tuple[str, str]]:
    """Yield each release with which the default changes, and the default."""
    before: str | None = ""
    for index, line in enumerate(known):
        default = (*rows[line][name], None)[2]
        if not index or default != before:
            yield line, _code(default or "")
        before = default


def _releases(known: Sequence[str]) -> str:
    """Return the first release with a setting, and the last one unless it is the newest."""
    if not known:
        return LINES[0]
    return known[0] if known[-1] == LINES[-1] else f"{known[0]} to {known[-1]}"


def _code(text: str) -> str:
    """Return a text as code, shortened to fit into the table."""
    plain = " ".join(text.split()).replace("|", "\\|")
    return (
        f"`{plain if len(plain) <= DEFAULT_MAX else plain[:DEFAULT_MAX] + '...'}`" if plain else ""
    )
