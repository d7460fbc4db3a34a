"""Protobuf schemas: what is taken, how it is spelled, and what may follow what."""

from __future__ import annotations

import base64
import os
import re
import signal
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from penstock.registry.formats import (
    BACKWARD,
    FORWARD,
    InvalidSchema,
    ParsedSchema,
    Reference,
    ResolvedReference,
    check,
    parse,
)
from penstock.registry.formats.protobuf import protoc


def proto(text: str, *references: ResolvedReference) -> ParsedSchema:
    return parse("PROTOBUF", text, references)


def proto3(body: str, *references: ResolvedReference) -> ParsedSchema:
    return proto(f'syntax = "proto3";\n{body}', *references)


def proto2(body: str) -> ParsedSchema:
    return proto(f'syntax = "proto2";\n{body}')


EVERYTHING = """// comments go
syntax = "proto2";
package a.b;
import "google/protobuf/descriptor.proto";
import "confluent/meta.proto";
import public "google/protobuf/timestamp.proto";
option java_package = "x.y";
option (file_opt) = { s: "q\\"z" n: 3 rep: [1, 2] m { key: "k" value: 2 }
  sub { f: 0.1 d: -inf b: "\\001" e: NEG } };
message Opt {
  optional string s = 1; optional int32 n = 2; repeated int32 rep = 3;
  map<string,int32> m = 4; optional Sub sub = 5;
  message Sub { optional float f = 1; optional double d = 2; optional bytes b = 3; optional E e = 4; }
}
extend google.protobuf.FileOptions { optional Opt file_opt = 50001; }
extend google.protobuf.FieldOptions { repeated string tags = 50002; }
extend google.protobuf.OneofOptions { optional int32 oo = 50001; }
enum E { option allow_alias = true; Z = 0; Y = 0; NEG = -3 [deprecated = true];
  reserved 4 to 6, 8, 10 to max; reserved "OLD"; }
message M {
  message Early {}
  reserved 100, 200 to 300, 5000 to max; reserved "foo", "bar";
  required string name = 1 [default = "a\\n\\"b'\\\\", deprecated = true, json_name = "NAME"];
\toptional\tE e = 2 [default = NEG, (tags) = "x", (tags) = "y",
    (confluent.field_meta) = { doc: "d" tags: "PII" }];
  repeated int32 r = 3 [packed = true];
  map<string, .a.b.M.Late> mm = 4;
  oneof choice { option (oo) = 1; int32 c1 = 5; Late c2 = 6; }
  optional group Grp = 7 { optional int32 g = 1; }
  optional bytes by = 8 [default = "\\001\\377a\\""];
  optional double dd = 9 [default = inf];
  optional google . protobuf . Timestamp ts = 13;
  message Late { optional M m = 1; enum Inner { I = 0; } optional Inner i = 2;
    extensions 10 to 20; extend Late { optional int32 ext1 = 10; } }
  extensions 1000 to 1999 [verification = UNVERIFIED];
  extensions 3000;
}
extend M { optional string ex = 1000; repeated group XG = 1001 { optional int32 q = 1; } }
service S {
  option deprecated = true;
  rpc Call(M) returns (stream .a.b.M.Late);
  rpc Two(stream M.Late) returns (M) { option idempotency_level = IDEMPOTENT; }
}
"""


@pytest.mark.promise(
    "registry", "The stored schema text is the one that Avro's Java library, or Confluent's registry, prints"
)
def test_the_stored_text_has_confluents_layout_and_the_sources_spelling_of_types() -> None:
    schema = proto(
        "syntax='proto3'; package p; import 'google/protobuf/timestamp.proto';"
        "enum K { A = 0; } message M { K k = 1; .p.M.N n = 2; oneof o { int32 x = 3; } message N {}\n"
        "google.protobuf.Timestamp at = 4 [deprecated=true]; optional string s = 5; map<string,N> ns = 6; }"
    )
    assert schema.canonical() == (
        'syntax = "proto3";\n'
        "package p;\n"
        "\n"
        'import "google/protobuf/timestamp.proto";\n'
        "\n"
        "message M {\n"
        "  K k = 1;\n"
        "  .p.M.N n = 2;\n"
        "  google.protobuf.Timestamp at = 4 [deprecated = true];\n"
        "  optional string s = 5;\n"
        "  message N {}\n"  # before the map, whose entry it precedes: clients count nested messages
        "  map<string, N> ns = 6;\n"
        "\n"
        "  oneof o {\n"
        "    int32 x = 3;\n"
        "  }\n"
        "}\n"
        "enum K {\n"
        "  A = 0;\n"
        "}\n"
    )


def test_every_construct_survives_its_own_text() -> None:
    schema = proto(EVERYTHING)
    text, normal = schema.canonical(), schema.normalized()
    assert proto(text).canonical() == text
    assert proto(normal).normalized() == normal
    assert proto(text).normalized() == normal
    assert content(proto(text).raw) == content(schema.raw)
    assert content(proto(normal).raw) == content(schema.raw)


def test_a_serialized_descriptor_is_the_same_schema_once_normalised() -> None:
    schema = proto(EVERYTHING)
    sent = proto(schema.formatted("serialized"))
    assert sent.normalized() == schema.normalized()
    assert content(sent.raw) == content(schema.raw)
    assert proto(sent.formatted("serialized")).formatted("serialized") == sent.formatted("serialized")


def test_the_serialized_format_can_be_loaded_by_a_client() -> None:
    schema = proto3("package p; message M { int32 x = 1; map<string, int32> m = 2; }")
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.formatted("serialized")))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    assert [f.name for f in pool.FindMessageTypeByName("p.M").fields] == ["x", "m"]


def content(file: descriptor_pb2.FileDescriptorProto) -> dict[str, object]:
    """What a file defines, without the order of fields (which has no meaning); that of messages is kept."""
    found: dict[str, object] = {
        "package": file.package,
        "messages": [m.name for m in file.message_type if m.name != "XG"],
    }

    def visit(prefix: str, message: descriptor_pb2.DescriptorProto) -> None:
        name = f"{prefix}.{message.name}"
        found[name] = sorted(
            (
                f.number,
                f.name,
                f.type,
                f.label,
                f.type_name,
                f.default_value,
                f.json_name,
                sorted(f.options.SerializeToString()),
            )
            for f in message.field
        )
        nested = [n.name for n in message.nested_type if not n.options.map_entry and n.name != "Grp"]
        found[f"{name} nested"] = {n: [x.name for x in message.nested_type].index(n) for n in nested}
        for below in message.nested_type:
            visit(name, below)

    for message in file.message_type:
        visit("", message)
    found["enums"] = sorted((e.name, sorted((v.number, v.name) for v in e.value)) for e in file.enum_type)
    found["services"] = [s.SerializeToString(deterministic=True) for s in file.service]
    found["extensions"] = sorted((e.number, e.name, e.extendee) for e in file.extension)
    found["options"] = file.options.SerializeToString(deterministic=True)
    return found


def test_editions_are_taken() -> None:
    schema = proto(
        'edition = "2023"; message A { int32 x = 1 [features.field_presence = LEGACY_REQUIRED];'
        " reserved foo; }"
    )
    assert schema.canonical() == (
        'edition = "2023";\n\nmessage A {\n  reserved foo;\n\n'
        "  int32 x = 1 [features.field_presence = LEGACY_REQUIRED];\n}\n"
    )
    assert proto(schema.canonical()).canonical() == schema.canonical()


def test_normalised_texts_put_what_has_no_order_in_order() -> None:
    one = proto3(
        "message M { reserved 9, 7; int32 b = 2; N a = 1; "
        "oneof z { int32 y = 4; int32 x = 3; } message N {} }"
    )
    two = proto3(
        "message M { reserved 7; reserved 9; .M.N a = 1; int32 b = 2; "
        "oneof z { int32 x = 3; int32 y = 4; } message N {} }"
    )
    assert one.canonical() != two.canonical()
    assert one.normalized() == two.normalized()


def test_references_are_imported_by_name_and_stand_on_references_in_turn() -> None:
    base = ResolvedReference(
        "base.proto", "base", 1, 'syntax = "proto3"; package b; message Base { int32 x = 1; }'
    )
    middle = ResolvedReference(
        "dir/middle.proto",
        "middle",
        3,
        'syntax = "proto3"; package m; import "base.proto"; message Middle { b.Base base = 1; }',
        (base,),
    )
    schema = proto3('import "dir/middle.proto"; message Top { m.Middle middle = 1; }', middle)
    assert schema.references == (Reference("dir/middle.proto", "middle", 3),)
    assert schema.name == "Top"
    assert schema.has_top_level_field("middle") and not schema.has_top_level_field("base")
    encoded = ResolvedReference(
        "base.proto", "base", 1, parse("PROTOBUF", base.schema).formatted("serialized")
    )
    assert proto3('import "base.proto"; message T { b.Base x = 1; }', encoded).canonical()


def test_a_reference_named_as_the_file_itself_is_found() -> None:
    other = ResolvedReference("default.proto", "s", 1, 'syntax = "proto3"; message Other {}')
    assert "Other" in proto3('import "default.proto"; message M { Other o = 1; }', other).canonical()


@pytest.mark.parametrize(
    "name", ["../x.proto", "/etc/x.proto", "a/../../x", "", "a//b", "x\ny", "x" * 600, "~/..", "a/"]
)
def test_references_cannot_reach_outside(name: str) -> None:
    reference = ResolvedReference(name, "s", 1, 'syntax = "proto3";')
    with pytest.raises(InvalidSchema, match="name of a file"):
        proto3("message M {}", reference)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("// only a comment", "defines nothing"),
        ('syntax = "proto3";', "defines nothing"),
        ("message {", "1:9: Expected message name"),
        ('syntax = "proto4";', "proto4"),
        (
            'syntax = "proto3"; message M { int32 x = 1; int32 y = 1; }',
            "Field number 1 has already been used",
        ),
        ('syntax = "proto3"; message M { int32 x = 1; int32 x = 2; }', "already defined"),
        ('syntax = "proto3"; message M { Nope x = 1; }', '"Nope" is not defined'),
        ('syntax = "proto3"; import "nope.proto";', "nope.proto"),
        ('syntax = "proto3"; import "default.proto";', "imports itself"),
        ('syntax = "proto3"; message M { int32 x = 19000; }', "reserved"),
        ('syntax = "proto3"; message M { required int32 x = 1; }', "[Rr]equired"),
        ('syntax = "proto3"; enum E { A = 1; }', "must be zero"),
        ("{}", "Expected"),
        ("%%%", "."),
        ("aGVsbG8=", "."),
        ('syntax = "proto3"; message M { \x01 }', "control"),
        ('syntax = "proto3"; message M { int32 \N{SNOWMAN} = 1; }', "."),
    ],
)
def test_what_is_no_protobuf_schema_is_refused_with_protocs_reason(text: str, message: str) -> None:
    with pytest.raises(InvalidSchema, match=message):
        proto(text)


def test_hostile_descriptors_are_refused() -> None:
    file = descriptor_pb2.FileDescriptorProto(syntax="proto3")
    bad = file.message_type.add(name="M; message Evil {}")
    with pytest.raises(InvalidSchema, match="not a Protobuf name"):
        proto(base64.b64encode(file.SerializeToString()).decode())
    bad.name = "M"
    bad.field.add(name="x", number=1, type=5, oneof_index=7)
    with pytest.raises(InvalidSchema, match="inconsistent"):
        proto(base64.b64encode(file.SerializeToString()).decode())
    del bad.field[:]
    bad.field.add(name="x", number=1, type=11, type_name=".Nope")
    with pytest.raises(InvalidSchema, match="not defined"):
        proto(base64.b64encode(file.SerializeToString()).decode())
    file.dependency.append('x"; evil')
    with pytest.raises(InvalidSchema):
        proto(base64.b64encode(file.SerializeToString()).decode())


# One row for each rule: old, new, what BACKWARD says (FORWARD is the row read the other way round).
RULES = [
    ("field added", "message M { int32 a = 1; }", "message M { int32 a = 1; string b = 2; }", []),
    ("field removed", "message M { int32 a = 1; string b = 2; }", "message M { int32 a = 1; }", []),
    ("field renamed", "message M { int32 a = 1; }", "message M { int32 z = 1; }", []),
    ("package", "package p; message M {}", "package q; message M {}", ["PACKAGE_CHANGED #/"]),
    ("message added", "message M {}", "message M {} message N {}", []),
    ("message removed", "message M {} message N {}", "message M {}", ["MESSAGE_REMOVED #/N"]),
    ("nested removed", "message M { message N {} }", "message M {}", ["MESSAGE_REMOVED #/M/N"]),
    ("messages reordered", "message M {} message N {}", "message N {} message M {}", []),
    ("map removed", "message M { map<int32,int32> m = 1; }", "message M {}", []),
    ("wider number", "message M { int32 a = 1; }", "message M { uint64 a = 1; }", []),
    ("bool and number", "message M { bool a = 1; }", "message M { int64 a = 1; }", []),
    ("enum and number", "enum E { Z = 0; } message M { E a = 1; }", "message M { int32 a = 1; }", []),
    (
        "enum constants",
        "enum E { Z = 0; A = 1; } message M { E a = 1; }",
        "enum E { Z = 0; } message M { E a = 1; }",
        [],
    ),
    ("string and bytes", "message M { string a = 1; }", "message M { bytes a = 1; }", []),
    ("fixed32", "message M { fixed32 a = 1; }", "message M { sfixed32 a = 1; }", []),
    ("fixed64", "message M { fixed64 a = 1; }", "message M { sfixed64 a = 1; }", []),
    (
        "zigzag",
        "message M { int32 a = 1; }",
        "message M { sint32 a = 1; }",
        ["FIELD_SCALAR_KIND_CHANGED #/M/1"],
    ),
    (
        "float",
        "message M { float a = 1; }",
        "message M { double a = 1; }",
        ["FIELD_SCALAR_KIND_CHANGED #/M/1"],
    ),
    (
        "fixed sizes",
        "message M { fixed32 a = 1; }",
        "message M { fixed64 a = 1; }",
        ["FIELD_SCALAR_KIND_CHANGED #/M/1"],
    ),
    (
        "text",
        "message M { int32 a = 1; }",
        "message M { string a = 1; }",
        ["FIELD_SCALAR_KIND_CHANGED #/M/1"],
    ),
    ("kind", "message M { int32 a = 1; }", "message M { M a = 1; }", ["FIELD_KIND_CHANGED #/M/1"]),
    ("map kind", "message M { M a = 1; }", "message M { map<int32,M> a = 1; }", ["FIELD_KIND_CHANGED #/M/1"]),
    (
        "map value",
        "message M { map<int32,int32> a = 1; }",
        "message M { map<int32,string> a = 1; }",
        ["FIELD_SCALAR_KIND_CHANGED #/M/1"],
    ),
    (
        "map key",
        "message M { map<int32,int32> a = 1; }",
        "message M { map<string,int32> a = 1; }",
        ["FIELD_SCALAR_KIND_CHANGED #/M/1"],
    ),
    (
        "named type",
        "message M { A a = 1; } message A {} message B {}",
        "message M { B a = 1; } message A {} message B {}",
        ["FIELD_NAMED_TYPE_CHANGED #/M/1"],
    ),
    ("repeated text", "message M { string a = 1; }", "message M { repeated string a = 1; }", []),
    ("repeated message", "message M { M a = 1; }", "message M { repeated M a = 1; }", []),
    (
        "repeated number",
        "message M { optional int32 a = 1; }",
        "message M { repeated int32 a = 1; }",
        ["FIELD_NUMERIC_LABEL_CHANGED #/M/1"],
    ),
    # Confluent's has no word for a field without label; the values are lost all the same.
    (
        "plain number repeated",
        "message M { int32 a = 1; }",
        "message M { repeated int32 a = 1; }",
        ["FIELD_NUMERIC_LABEL_CHANGED #/M/1"],
    ),
    ("optional", "message M { int32 a = 1; }", "message M { optional int32 a = 1; }", []),
    (
        "into a new oneof",
        "message M { int32 a = 1; }",
        "message M { oneof o { int32 a = 1; int32 b = 2; } }",
        [],
    ),
    (
        "two into a oneof",
        "message M { int32 a = 1; int32 b = 2; }",
        "message M { oneof o { int32 a = 1; int32 b = 2; } }",
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o"],
    ),
    (
        "into an existing oneof",
        "message M { oneof o { int32 a = 1; } int32 b = 2; }",
        "message M { oneof o { int32 a = 1; int32 b = 2; } }",
        ["FIELD_MOVED_TO_EXISTING_ONEOF #/M/o"],
    ),
    (
        "two oneofs merged",
        "message M { oneof o { int32 a = 1; } oneof p { int32 b = 2; } }",
        "message M { oneof o { int32 a = 1; int32 b = 2; } }",
        ["FIELD_MOVED_TO_EXISTING_ONEOF #/M/o"],
    ),
    (
        "oneof member added",
        "message M { oneof o { int32 a = 1; } }",
        "message M { oneof o { int32 a = 1; int32 b = 2; } }",
        [],
    ),
    (
        "oneof member removed",
        "message M { oneof o { int32 a = 1; int32 b = 2; } }",
        "message M { oneof o { int32 a = 1; } }",
        ["ONEOF_FIELD_REMOVED #/M/o/2"],
    ),
    ("oneof removed", "message M { oneof o { int32 a = 1; int32 b = 2; } }", "message M { }", []),
    (
        "out of a oneof",
        "message M { oneof o { int32 a = 1; int32 b = 2; } }",
        "message M { oneof o { int32 a = 1; } int32 b = 2; }",
        [],
    ),
    ("oneof renamed", "message M { oneof o { int32 a = 1; } }", "message M { oneof p { int32 a = 1; } }", []),
    (
        "oneof renamed and a member dropped",
        "message M { oneof o { int32 a = 1; int32 b = 2; } }",
        "message M { oneof p { int32 a = 1; } }",
        ["ONEOF_FIELD_REMOVED #/M/o/2"],
    ),
    (
        "type changed inside of a oneof",
        "message M { int32 a = 1; }",
        "message M { oneof o { string a = 1; } }",
        ["FIELD_SCALAR_KIND_CHANGED #/M/o/1"],
    ),
    (
        "number reused",
        "message M { int32 a = 1; }",
        "message M { bytes b = 1; }",
        ["FIELD_SCALAR_KIND_CHANGED #/M/1"],
    ),
    (
        "other name for the same type",
        "message M { N n = 1; message N {} }",
        "message M { .M.N n = 1; message N {} }",
        [],
    ),
]


@pytest.mark.promise(
    "registry",
    "Every compatibility rule of the three formats is checked, and a violation is reported with its reason",
)
@pytest.mark.parametrize(
    ("old", "new", "expected"), [row[1:] for row in RULES], ids=[row[0] for row in RULES]
)
def test_compatibility_rule(old: str, new: str, expected: list[str]) -> None:
    assert found(check(proto3(new), proto3(old), BACKWARD)) == expected
    assert found(check(proto3(old), proto3(new), FORWARD)) == expected
    assert check(proto3(new), proto3(new), BACKWARD) == []


def found(reasons: list[str]) -> list[str]:
    return [
        f"{m[1]} {m[2]}"
        for r in reasons
        if (m := re.match(r'\{errorType:"(\w+)", description:".*?\'(#[^\']*)\'', r))
    ]


@pytest.mark.promise(
    "registry",
    "Every compatibility rule of the three formats is checked, and a violation is reported with its reason",
)
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("message M {}", "message M { required int32 a = 1; }", ["REQUIRED_FIELD_ADDED #/M/1"]),
        ("message M { required int32 a = 1; }", "message M {}", ["REQUIRED_FIELD_REMOVED #/M/1"]),
        (
            "message M { optional string a = 1; }",
            "message M { required string a = 1; }",
            ["REQUIRED_FIELD_ADDED #/M/1"],
        ),
        (
            "message M { optional M a = 1; }",
            "message M { required M a = 1; }",
            ["REQUIRED_FIELD_ADDED #/M/1"],
        ),
        (
            "message M { required int32 a = 1; }",
            "message M { optional int32 a = 1; }",
            ["FIELD_NUMERIC_LABEL_CHANGED #/M/1"],
        ),
        (
            "message M { optional M g = 1; }",
            "message M { optional group G = 1 {} }",
            ["FIELD_KIND_CHANGED #/M/1"],
        ),
    ],
)
def test_compatibility_rule_of_proto2(old: str, new: str, expected: list[str]) -> None:
    assert found(check(proto2(new), proto2(old), BACKWARD)) == expected


def test_compatibility_rules_of_editions() -> None:
    plain = proto('edition = "2023"; message M { int32 a = 1; M m = 2; }')
    required = proto(
        'edition = "2023"; message M { int32 a = 1 [features.field_presence = LEGACY_REQUIRED]; M m = 2; }'
    )
    groups = proto(
        'edition = "2023"; option features.message_encoding = DELIMITED; message M { int32 a = 1; M m = 2; }'
    )
    assert found(check(required, plain, BACKWARD)) == ["REQUIRED_FIELD_ADDED #/M/1"]
    assert found(check(groups, plain, BACKWARD)) == ["FIELD_KIND_CHANGED #/M/2"]
    assert check(plain, proto3("message M { int32 a = 1; M m = 2; }"), BACKWARD) == []


def test_reasons_are_confluents_sentences() -> None:
    old, new = proto3("message M { int32 a = 1; }"), proto3("message M { string a = 1; }")
    assert check(new, old, BACKWARD) == [
        '{errorType:"FIELD_SCALAR_KIND_CHANGED", description:"The kind of a SCALAR field at path \'#/M/1\' '
        'in the new schema does not match its kind in the old schema"}'
    ]
    assert "in the old schema does not match its kind in the new schema" in check(new, old, FORWARD)[0]


def imported(kind: str, version: int, package: str = "r") -> ResolvedReference:
    body = f"{kind} x = 1; Self self = 2; message Self {{ R r = 1; }}"
    text = f'syntax = "proto3"; package {package}; message R {{ {body} }}'
    return ResolvedReference("r.proto", "r", version, text)


def test_imported_types_are_compared_where_their_version_changed() -> None:
    def top(reference: ResolvedReference, package: str = "r") -> ParsedSchema:
        return proto3(f'import "r.proto"; message M {{ {package}.R r = 1; }}', reference)

    assert check(top(imported("int64", 2)), top(imported("int32", 1)), BACKWARD) == []
    assert check(top(imported("int32", 2, "q"), "q"), top(imported("int32", 1)), BACKWARD) == []
    assert found(check(top(imported("string", 2)), top(imported("int32", 1)), BACKWARD)) == [
        "FIELD_SCALAR_KIND_CHANGED #/R/1",
        "FIELD_NAMED_TYPE_CHANGED #/M/1",
    ]


@pytest.mark.promise(
    "registry", "A hostile schema is always rejected as an invalid schema, and never crashes the process"
)
def test_a_child_that_dies_is_replaced_and_one_text_is_refused_at_most() -> None:
    assert proto3("message BeforeTheChildDies {}")
    child = protoc._compiler._child
    assert child is not None
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert proto3("message AfterTheChildDied {}")
    assert protoc._compiler._child is not child


def test_a_text_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proto3("message StartsTheChild {}")
    child = protoc._compiler._child
    assert child is not None
    os.kill(child.pid, signal.SIGSTOP)
    monkeypatch.setattr(protoc, "TIME_LIMIT", 0.2)
    with pytest.raises(InvalidSchema, match="took more than"):
        proto3("message TakesTooLong {}")
    monkeypatch.undo()
    assert proto3("message TakesTooLong {}")


def test_compiling_leaves_no_files_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    proto3("message LeavesNothing {}")
    with pytest.raises(InvalidSchema):
        proto3("message LeavesNothing {")
    assert list(tmp_path.iterdir()) == []
