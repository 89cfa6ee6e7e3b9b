"""The declaration language: the generated class, refused declarations, and introspection."""

import copy

import pytest

from protocol.codec.declaration import (
    NO_VERSIONS,
    ArrayOf,
    Primitive,
    StructureOf,
    VersionRange,
    pascal_case,
    snake_case,
)
from protocol.schema import (
    array,
    boolean,
    byte_string,
    declaration_of,
    int16,
    int32,
    int64,
    message,
    records,
    string,
    struct,
    structure,
    uuid,
)


@structure
class Leader:
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@structure(kafka_name="PartitionData")
class Partition:
    index: int = int32()
    replicas: list[int] = array(int32)
    content: bytes | memoryview | None = records(nullable="0+")
    leader: Leader = struct(Leader, tag=0, tagged="2+", ignorable=True)


@message(key=99, versions="0-4", flexible="2+", latest_unstable=True)
class ThingsRequest:
    """Asks for things."""

    name: str | None = string(nullable="1+", kafka_name="thingNAME")
    timeout_ms: int = int32(until=2, default=60_000)
    producer_id: int = int64(since=3, default=-1)
    is_new: bool = boolean(versions="1-3", default=True, ignorable=True)
    topic_id: bytes = uuid()
    partitions: list[Partition] | None = array(Partition, nullable="0+", default=None)
    owner: Leader | None = struct(Leader, nullable="0+", default=None)
    first_leader: Leader = struct(Leader)
    token: bytes = byte_string(flexible="none")

    def is_forever(self) -> bool:
        return self.timeout_ms < 0


@pytest.mark.parametrize(
    ("text", "first", "last", "written"),
    [
        ("0-5", 0, 5, "0-5"),
        ("3+", 3, 32767, "3+"),
        ("4", 4, 4, "4"),
        ("4-4", 4, 4, "4"),
        ("none", 0, -1, "none"),
    ],
)
def test_version_ranges_are_written_as_kafka_writes_them(
    text: str, first: int, last: int, written: str
) -> None:
    versions = VersionRange.parse(text)
    assert (versions.first, versions.last, str(versions), bool(versions)) == (
        first,
        last,
        written,
        text != "none",
    )
    assert [version for version in (0, 3, 4, 5, 6) if version in versions] == [
        version for version in (0, 3, 4, 5, 6) if first <= version <= last
    ]


@pytest.mark.parametrize("text", ["", "5-3", "+3", "a", "1-", "3 +"])
def test_other_notations_of_versions_are_refused(text: str) -> None:
    with pytest.raises(AssertionError):
        VersionRange.parse(text)


@pytest.mark.parametrize(
    ("kafka_name", "name"),
    [
        ("ProducerId", "producer_id"),
        ("timeoutMs", "timeout_ms"),
        ("V3AndBelowTransactionalId", "v3_and_below_transactional_id"),
        ("isKRaftController", "is_k_raft_controller"),
        ("ACLOperation", "acl_operation"),
        ("Isr", "isr"),
    ],
)
def test_our_field_names_are_derived_from_kafkas(kafka_name: str, name: str) -> None:
    assert snake_case(kafka_name) == name
    assert snake_case(pascal_case(name)) == name


def test_fields_have_their_defaults_unless_given() -> None:
    request = ThingsRequest(producer_id=7)
    assert (
        request.name,
        request.timeout_ms,
        request.producer_id,
        request.is_new,
        request.topic_id,
    ) == ("", 60_000, 7, True, bytes(16))
    assert (request.partitions, request.owner, request.first_leader, request.token) == (
        None,
        None,
        Leader(leader_id=-1, leader_epoch=-1),
        b"",
    )
    request.timeout_ms = -1
    assert request.is_forever()
    assert ThingsRequest.__doc__ == "Asks for things."


def test_messages_are_compared_and_printed_by_their_fields() -> None:
    assert ThingsRequest(name="a") == ThingsRequest(name="a") != ThingsRequest(name="b")
    assert Leader() != Partition()
    assert repr(Leader(leader_id=3)) == "Leader(leader_id=3, leader_epoch=-1)"
    with pytest.raises(TypeError):
        hash(Leader())


def test_a_message_has_no_other_attributes_and_no_positional_arguments() -> None:
    with pytest.raises(AttributeError):
        Leader().epoch = 3  # type: ignore[attr-defined]  # what the test expects to fail
    with pytest.raises(TypeError):
        Leader(3)


def test_lists_are_not_shared_between_messages() -> None:
    Partition().replicas.append(1)
    assert Partition().replicas == []


def test_the_default_of_a_nested_structure_is_shared_and_refuses_to_change() -> None:
    """Decoders share it for every absent structure; changing one would change them all."""
    partition = Partition()
    assert partition.leader is Partition().leader
    with pytest.raises(AttributeError, match="assign a new one"):
        partition.leader.leader_id = 3
    partition.leader = Leader(leader_id=3)
    assert Partition().leader == Leader()
    assert copy.deepcopy(Partition()) == Partition()


def test_a_declaration_can_be_read_back() -> None:
    declaration = declaration_of(ThingsRequest)
    assert (
        declaration.name,
        declaration.kind,
        declaration.api_key,
        str(declaration.versions),
        str(declaration.flexible),
        declaration.latest_unstable,
    ) == (
        "ThingsRequest",
        "request",
        99,
        "0-4",
        "2+",
        True,
    )
    fields = {field.name: field for field in declaration.fields}
    # attr-defined: generated classes have slots
    assert list(fields) == [name for name in ThingsRequest.__slots__ if name != "_tags"]  # type: ignore[attr-defined]
    assert [field.kafka_type for field in declaration.fields[:4]] == [
        "string",
        "int32",
        "int64",
        "bool",
    ]
    assert [fields[name].kafka_type for name in ("partitions", "owner")] == [
        "[]PartitionData",
        "Leader",
    ]
    assert fields["partitions"].type == ArrayOf(StructureOf(Partition))
    assert (fields["name"].kafka_name, fields["timeout_ms"].kafka_name) == (
        "thingNAME",
        "TimeoutMs",
    )
    assert (
        fields["name"].is_called("thingNAME")
        and not fields["name"].is_called("ThingName")
        and fields["timeout_ms"].is_called("timeoutMs")
    )
    assert [
        str(fields[name].versions) for name in ("timeout_ms", "producer_id", "is_new", "token")
    ] == ["0-2", "3+", "1-3", "0+"]
    assert fields["token"].flexible == NO_VERSIONS and fields["name"].flexible is None
    leader = declaration_of(Partition).fields[-1]
    assert (leader.tag, str(leader.tagged), str(leader.versions), leader.ignorable) == (
        0,
        "2+",
        "2+",
        True,
    )


def _declare(body: dict[str, object], annotations: dict[str, object], **options: str) -> None:
    message(**{"kind": "data", "versions": "0-3", "flexible": "2+", **options})(
        type("Bad", (), {"__annotations__": annotations, **body})
    )


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (lambda: int32(tag=0), "go together"),
        (lambda: int32(tagged="2+"), "go together"),
        (lambda: int32(tag=1, tagged="2+"), "the tags of"),
        (lambda: int32(tag=0, tagged="1+"), "not flexible"),
        (lambda: int32(tag=0, tagged="2+", since=3), "tagged in versions that lack it"),
        # call-overload: what the test expects to fail
        (lambda: string(default=None), "null by default"),  # type: ignore[call-overload]
        (lambda: int32(default="1"), "is no int32"),
        (lambda: string(default=3), "is no string"),  # type: ignore[call-overload]
        (lambda: int32(since=3, versions="0+"), "say versions="),
        (lambda: 3, "no field"),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(field: object, reason: str) -> None:
    assert callable(field)
    with pytest.raises(AssertionError, match=reason):
        _declare({"value": field()}, {"value": int})


def test_a_field_needs_an_annotation_and_a_public_name() -> None:
    with pytest.raises(AssertionError, match="no annotation"):
        _declare({"value": int16()}, {})
    with pytest.raises(AssertionError, match="leading underscore"):
        _declare({"_value": int16()}, {"_value": int})


def test_the_kind_of_a_message_follows_from_its_name_or_is_given() -> None:
    with pytest.raises(AssertionError, match="which kind of message"):
        message(versions="0")(type("Thing", (), {"__annotations__": {}}))
    assert (
        declaration_of(
            message(versions="0")(type("AThingResponse", (), {"__annotations__": {}}))
        ).kind
        == "response"
    )


def test_primitive_types_have_kafkas_names() -> None:
    """And one primitive type of ZooKeeper."""
    assert {primitive.value for primitive in Primitive} - {"ustring"} == {
        *(
            "bool",
            "int8",
            "int16",
            "uint16",
            "int32",
            "uint32",
            "int64",
            "float64",
            "uuid",
            "string",
            "bytes",
            "records",
        )
    }
