"""The pages of docs/protocol/: one for every API, and for Kafka's log and file formats.

The descriptions are the declarations and docstrings of the messages; the versions of each Kafka
release were extracted from its jars (tests/wire/definitions.json).
"""

import importlib
import io
import tokenize
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Final

from protocol.api_keys import ApiKey
from protocol.codec.declaration import Declaration, pascal_case
from protocol.coordinator.registry import CoordinatorTopic, declared_types, record_classes
from protocol.errors import ErrorCode
from protocol.messages.registry import declared_api_keys, request_class, response_class
from protocol.metadata.registry import declared_records
from protocol.records import control_records
from protocol.records.control_records import ControlType
from protocol.remote_log.records import declared_records as declared_remote_log_records
from protocol.requests import (
    RequestHeader,
    ResponseHeader,
    request_header_version,
    response_header_version,
)
from protocol.schema import declaration_of
from protocol.storage.indexes import AbortedTransaction
from protocol.storage.producer_snapshot import ProducerSnapshot
from protocol.storage.quorum_state import QuorumState
from protocol.version_prefixed import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    DefaultPrincipalData,
)
from tools.docs.protocol_fields import changes, field_table
from tools.drift.facts import Facts, load_facts
from tools.drift.former_names import under_present_names

FACTS: Final = Path(__file__).parents[2] / "tests" / "wire" / "definitions.json"
FOLDER: Final = "protocol"
LISTENERS: Final = {
    "broker": "brokers",
    "controller": "controllers",
    "zkBroker": "brokers of ZooKeeper clusters",
}
BATCH_FIELDS: Final = (
    ("base_offset", "int64", "of its first record"),
    ("batch_length", "int32", "of what follows"),
    ("partition_leader_epoch", "int32", "of the leader that appended it"),
    ("magic", "int8", "2"),
    ("crc", "uint32", "CRC-32C of what follows"),
    (
        "attributes",
        "int16",
        (
            "bits 0 to 2: codec (none, gzip, snappy, lz4, zstd); 3: log append time; 4: "
            "transactional; 5: control; 6: delete horizon"
        ),
    ),
    ("last_offset_delta", "int32", "from the base offset to that of its last record"),
    ("base_timestamp", "int64", "of its first record, or the delete horizon"),
    ("max_timestamp", "int64", "the largest, or when it was appended"),
    ("producer_id", "int64", "-1 without one"),
    ("producer_epoch", "int16", "-1 without one"),
    ("base_sequence", "int32", "of its first record, -1 without one"),
    ("record_count", "int32", ""),
    ("records", "", "compressed as one block, if they are"),
)
"""Header of a record batch; DefaultRecordBatch of Kafka."""


def page_of(key: ApiKey) -> str:
    """Return the name of an API's page."""
    module = request_class(key).__module__.rpartition(".")[2]
    return f"{FOLDER}/{module.replace('_', '-')}.md"


def api_page(key: ApiKey) -> str:
    """Return the page of one API."""
    request, response = request_class(key), response_class(key)
    module = importlib.import_module(request.__module__)
    summary, rest, source = _paragraphs(module.__doc__)
    summary = _without_name(summary)
    declaration = declaration_of(request)
    lines = [
        f"# {_name(key)} ({int(key)})\n",
        f"{summary}\n",
        *([f"{rest}\n"] if rest else []),
        f"*{source}*\n" if source else "",
    ]
    lines += [
        f"- Supported by {_listeners(key)}.",
        f"- Versions {declaration.versions}"
        + (
            f", flexible from {max(declaration.flexible.first, declaration.versions.first)} on"
            if declaration.flexible
            else ", none of them flexible"
        )
        + (", the last one unstable." if declaration.latest_unstable else "."),
        f"- Headers: {_headers(key, declaration)}.",
        f"- Declared in `{'/'.join(request.__module__.split('.'))}.py`; [all APIs](index.md).\n",
        *_releases(declaration.name),
        *_message(request, "Request"),
        *_message(response, "Response"),
        *_errors(module.__file__ or "", getattr(module, "ERRORS", ())),
    ]
    return "\n".join(lines)


def index() -> str:
    """Return the index of all APIs, with links to the pages of records and files."""
    lines = [
        "# The protocol\n",
        (
            "Every message of Apache Kafka, with its versions from the oldest of 2.1 to the newest "
            "of 4.x. Numbers are big-endian; strings,"
        ),
        (
            "bytes and arrays follow their length; in flexible versions lengths are varints of "
            "length + 1, and structures end with tagged fields"
        ),
        "(KIP-482).",
        "The APIs that kraftsim nodes support are in [coverage](../coverage.md).\n",
        (
            "Besides the APIs: [records of the metadata log](metadata-records.md), [records of the "
            "coordinators](coordinator-records.md),"
        ),
        "[record batches and control records](batches.md), [files of a log directory](files.md).\n",
        "| key | API | versions | flexible | supported by | purpose |",
        "|---|---|---|---|---|---|",
    ]
    for key in declared_api_keys():
        declaration = declaration_of(request_class(key))
        summary = _without_name(
            _paragraphs(importlib.import_module(request_class(key).__module__).__doc__)[0]
        )
        flexible = (
            f"{max(declaration.flexible.first, declaration.versions.first)}+"
            if declaration.flexible
            else ""
        )
        page = page_of(key).rpartition("/")[2]
        lines.append(
            f"| {int(key)} | [{_name(key)}]({page}) | {declaration.versions} | {flexible} | "
            f"{_listeners(key, short=True)} | {summary} |"
        )
    lines += [
        "\n## Headers\n",
        *_plain_message(RequestHeader),
        *_plain_message(ResponseHeader),
        "## Errors\n",
        *_error_table(),
    ]
    return "\n".join(lines)


def metadata_records() -> str:
    """Return the page of all records of the metadata log."""
    lines = [
        "# Records of the metadata log\n",
        (
            "The value of a record of `__cluster_metadata`: a frame version (1), the number of the "
            "record and its version, each an unsigned varint,"
        ),
        (
            "then its fields; the key is null (KIP-631). Records of `__remote_log_metadata` have "
            "the same frame, and their own numbers."
        ),
        "[All APIs](index.md).\n",
    ]
    for title, classes in (
        ("Metadata", declared_records()),
        ("Remote log metadata", declared_remote_log_records()),
    ):
        lines.append(f"## {title}\n")
        for cls in classes:
            lines += [
                f"### {declaration_of(cls).name} ({declaration_of(cls).api_key})\n",
                *_body(cls),
            ]
    return "\n".join(lines)


def coordinator_records() -> str:
    """Return the page of all records of the coordinators' topics, and of the data exchanged by
    members of classic groups.
    """
    lines = [
        "# Records of the coordinators\n",
        (
            "A key begins with the type of the record, a value with its version, two bytes each; a "
            "null value is a tombstone. [All APIs](index.md).\n"
        ),
    ]
    for topic in CoordinatorTopic:
        lines.append(f"## {topic.value}\n")
        for number in declared_types(topic):
            classes = record_classes(topic, number)
            lines += [
                f"### {declaration_of(classes.key).name.removesuffix('Key')} ({number})\n",
                "Key:\n",
                *_body(classes.key),
                "Value:\n",
                *_body(classes.value),
            ]
    lines.append("## Members of a classic group\n")
    lines += ["Bytes in JoinGroup, SyncGroup and GroupMetadata, after a version of two bytes.\n"]
    for cls in (ConsumerProtocolSubscription, ConsumerProtocolAssignment):
        lines += [f"### {declaration_of(cls).name}\n", *_body(cls)]
    return "\n".join(lines)


def batches() -> str:
    """Return the page of record batches and control records."""
    lines = [
        "# Record batches\n",
        (
            "Built by producers, stored by brokers and read by consumers, unchanged except for the "
            "first sixteen bytes (KIP-98). [All APIs](index.md).\n"
        ),
        "| field | type | what |",
        "|---|---|---|",
        *(f"| `{name}` | {kind} | {what} |" for name, kind, what in BATCH_FIELDS),
        (
            "\nA record: length, attributes (none yet), timestamp and offset as differences from "
            "those of the batch, key, value, headers; all lengths"
        ),
        "and differences are zigzag varints, -1 is null. Batches before 0.11 were message sets, "
        "of formats 0 and 1: `protocol/records/message_sets.py`.\n",
        "## Control records\n",
        (
            "Records in a batch with the control bit, written by brokers and voters. The key is a "
            "version (0) and the type, two bytes each.\n"
        ),
    ]
    for kind in ControlType:
        lines += [f"### {kind.name} ({kind.value})\n", *_body(control_records.MESSAGES[kind])]
    lines += [
        "## In an Envelope\n",
        "The principal of a forwarded request, after a version of two bytes.\n",
        *_body(DefaultPrincipalData),
    ]
    return "\n".join(lines)


def files() -> str:
    """Return the page of the files of a log directory."""
    lines = ["# Files of a log directory\n", "`kraftsim dump` prints them. [All APIs](index.md).\n"]
    folder = Path(importlib.import_module("protocol.storage").__file__ or "").parent
    for file in sorted(folder.glob("*.py")):
        if file.stem in ("__init__", "java_integers"):
            continue
        summary, rest, source = _paragraphs(
            importlib.import_module(f"protocol.storage.{file.stem}").__doc__
        )
        lines += [
            f"## {file.stem.replace('_', ' ').capitalize()}\n",
            f"{summary}\n",
            *([f"{rest}\n"] if rest else []),
            *([f"*{source}*\n"] if source else []),
        ]
        for cls in {
            "producer_snapshot": (ProducerSnapshot,),
            "quorum_state": (QuorumState,),
            "transaction_index": (AbortedTransaction,),
        }.get(file.stem, ()):
            lines += [f"### {declaration_of(cls).name}\n", *_body(cls)]
    return "\n".join(lines)


def pages() -> Mapping[str, Callable[[], str]]:
    """Return every page with its generator."""
    return {
        f"{FOLDER}/index.md": index,
        **{page_of(key): partial(api_page, key) for key in declared_api_keys()},
        f"{FOLDER}/metadata-records.md": metadata_records,
        f"{FOLDER}/coordinator-records.md": coordinator_records,
        f"{FOLDER}/batches.md": batches,
        f"{FOLDER}/files.md": files,
    }


def _message(cls: type, title: str) -> list[str]:
    return [f"## {title}\n", *_body(cls)]


def _plain_message(cls: type) -> list[str]:
    return [f"### {declaration_of(cls).name}\n", *_body(cls)]


def _body(cls: type) -> list[str]:
    """Return the description of a message, its fields, and the changes of its versions."""
    description = "\n\n".join(part for part in _paragraphs(cls.__doc__)[:2] if part)
    versions = declaration_of(cls).versions
    of = "Version" if versions.first == versions.last else "Versions"
    lines = [f"{description}\n" if description else "", f"{of} {versions}.\n", *field_table(cls)]
    lines += [f"- Version {version}: {', '.join(said)}." for version, said in changes(cls).items()]
    return [*lines, ""]


def _releases(name: str) -> list[str]:
    """Return the versions that each release of Kafka supports."""
    shapes = _facts().get(name, ())
    if not shapes:
        return []
    rows = [
        (release, str(shape.definition.versions)) for shape in shapes for release in shape.releases
    ]
    return [
        "| Kafka | " + " | ".join(release for release, _ in rows) + " |",
        "|---|" + "---|" * len(rows),
        "| versions | " + " | ".join(versions for _, versions in rows) + " |\n",
    ]


@cache
def _facts() -> Facts:
    return under_present_names(load_facts(FACTS))


def _errors(file: str, errors: Sequence[ErrorCode]) -> list[str]:
    if not errors:
        return ["## Errors\n", "None of its own.\n"]
    remarks = _remarks(file)
    lines = ["## Errors\n", "| code | error | retriable | when |", "|---|---|---|---|"]
    lines += [
        f"| {int(error)} | {error.name} | {_retriable(error)} | {remarks.get(error.name, '')} |"
        for error in errors
    ]
    return [*lines, ""]


def _error_table() -> Iterable[str]:
    yield "| code | error | retriable |"
    yield "|---|---|---|"
    for error in sorted(ErrorCode):
        yield f"| {int(error)} | {error.name} | {_retriable(error)} |"


def _retriable(error: ErrorCode) -> str:
    return (
        "after a refresh of the metadata"
        if error.refreshes_metadata
        else "yes"
        if error.retriable
        else ""
    )


def _remarks(file: str) -> dict[str, str]:
    """Return the comments beside the names in the tuple ERRORS of a module."""
    found: dict[str, str] = {}
    name, is_inside = "", False
    for token in tokenize.generate_tokens(io.StringIO(Path(file).read_text()).readline):
        if token.type == tokenize.NAME and token.string == "ERRORS" and token.start[1] == 0:
            is_inside = True
        elif is_inside and token.type == tokenize.NAME:
            name = token.string
        elif is_inside and token.type == tokenize.COMMENT and name:
            found[name] = _escaped(token.string.removeprefix("#").strip())
        elif (
            is_inside and token.type == tokenize.OP and token.string == ")" and token.start[1] == 0
        ):
            break
    return found


def _headers(key: ApiKey, declaration: Declaration) -> str:
    """Return the header version of each message version."""
    versions = range(declaration.versions.first, declaration.versions.last + 1)
    header_versions: dict[str, Callable[[int, bool], int]] = {
        "request": lambda version, flexible: request_header_version(
            key, version, flexible=flexible
        ),
        "response": lambda version, flexible: response_header_version(key, flexible=flexible),
    }
    said = []
    for what, version_of in header_versions.items():
        runs: list[tuple[int, int]] = []
        for version in versions:
            header = version_of(version, version in declaration.flexible)
            if not runs or runs[-1][1] != header:
                runs.append((version, header))
        said.append(
            f"{what} v"
            + ", v".join(
                f"{header}" + (f" from version {first} on" if first > versions.start else "")
                for first, header in runs
            )
        )
    return "; ".join(said)


def _paragraphs(docstring: str | None) -> tuple[str, str, str]:
    """Return the first paragraph of a docstring, the others, and the sources, each as one line."""
    text, _, source = (docstring or "").partition("Source:")
    first, *others = [" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n")]
    return (
        _escaped(first),
        "\n\n".join(_escaped(each) for each in others if each),
        _escaped(f"Source: {' '.join(source.split())}" if source else ""),
    )


def _without_name(summary: str) -> str:
    """Return the first sentence of a module without its prefix `InitProducerId (22): `,
    capitalised.
    """
    name, colon, rest = summary.partition("): ")
    description = rest if colon and name.rpartition("(")[2].isdecimal() else summary
    return description[:1].upper() + description[1:]


def _listeners(key: ApiKey, *, short: bool = False) -> str:
    names = [name for name in LISTENERS if name in key.listeners]
    return ", ".join(names if short else (LISTENERS[name] for name in names)) or "no node"


def _name(key: ApiKey) -> str:
    return pascal_case(key.name.lower())


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
