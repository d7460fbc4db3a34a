"""Options of Protobuf schemas: their order, and custom ones that no file at hand defines."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.registry.formats import InvalidSchema, ParsedSchema, ResolvedReference, parse
from penstock.registry.formats.protobuf.written_options import WrittenOptions


def proto3(body: str, *references: ResolvedReference) -> ParsedSchema:
    return parse("PROTOBUF", f'syntax = "proto3";\n{body}', references)


def options_of(schema: ParsedSchema, *, normalized: bool = False) -> list[str]:
    text = schema.normalized() if normalized else schema.canonical()
    return [line for line in text.splitlines() if line.startswith("option ")]


FILE_OPTIONS = [
    'option java_package = "p";',
    "option java_multiple_files = true;",
    'option go_package = "g";',
    "option (a.b) = 1;",
    "option optimize_for = SPEED;",
]


@pytest.mark.promise(
    "registry",
    "Undefined custom Protobuf options are kept in their places; options keep their order; "
    "`(confluent.field_meta)` is found inside `io.confluent`",
)
@pytest.mark.parametrize("order", list(itertools.permutations(FILE_OPTIONS, 3))[::5])
def test_options_of_a_file_keep_their_order_unless_normalised(order):
    schema = proto3("\n".join(order) + "\nmessage M {}")
    assert options_of(schema) == list(order)
    assert options_of(schema, normalized=True) == sorted(order, key=lambda line: line[7:].strip("("))
    assert parse("PROTOBUF", schema.canonical()).canonical() == schema.canonical()


@pytest.mark.promise(
    "registry",
    "Undefined custom Protobuf options are kept in their places; options keep their order; "
    "`(confluent.field_meta)` is found inside `io.confluent`",
)
def test_options_of_every_element_keep_their_order():
    text = proto3(
        "message M { option deprecated = true; option no_standard_descriptor_accessor = true; }\n"
        "message N { option no_standard_descriptor_accessor = true; option deprecated = true;\n"
        "  int32 a = 1 [deprecated = true, jstype = JS_NORMAL];\n"
        "  int64 b = 2 [jstype = JS_STRING, deprecated = true]; }"
    ).canonical()
    first, second = text.split("message N")
    assert first.index("deprecated = true") < first.index("no_standard")
    assert second.index("no_standard") < second.index("deprecated = true")
    assert "[\n    deprecated = true,\n    jstype = JS_NORMAL\n  ]" in second
    assert "[\n    jstype = JS_STRING,\n    deprecated = true\n  ]" in second


def test_repeated_options_and_parts_of_options_keep_their_order():
    text = proto3(
        'import "google/protobuf/descriptor.proto";\n'
        'option (tag) = "b"; option java_package = "p"; option (tag) = "a"; option (opt).n = 2;\n'
        "extend google.protobuf.FileOptions { repeated string tag = 50001; Opt opt = 50002; }\n"
        "message Opt { int32 n = 1; }"
    )
    assert options_of(text)[:4] == [
        'option (tag) = "b";', 'option java_package = "p";', 'option (tag) = "a";', "option (opt) = {",
    ]  # fmt: skip


EVERYWHERE = """
option (of.file) = "x";
message M {
  option (of.message) = true;
  string a = 1 [(of.field) = 1, deprecated = true, (of.other) = {x: "a,];" /* , */ y: [1, -2.5e+3]}];
\tint32 b = 2 [(confluent.missing) = FOO]; // é
  oneof o {
    option (of.oneof) = 'it''s';
    int32 c = 3 [(plain) = inf];
  }
  enum E {
    option (of.enum) = 0x1F;
    Z = 0 [(of.value).deep.er = -1];
  }
  message Inner { option (of.inner) = {a {b < c: 1 > } a: {}}; }
}
service S {
  option (of.service) = "\\u00e9\\n\\101é";
  rpc C (M) returns (M) {
    option (of.method) = { get: "/v1/{name}" [a.b]: 1; };
  }
}
"""


@pytest.mark.promise(
    "registry",
    "Undefined custom Protobuf options are kept in their places; options keep their order; "
    "`(confluent.field_meta)` is found inside `io.confluent`",
)
def test_unknown_custom_options_are_kept_where_they_stand():
    schema = proto3(EVERYWHERE)
    assert schema.canonical() == (
        'syntax = "proto3";\n\n'
        'option (of.file) = "x";\n\n'
        "message M {\n"
        "  option (of.message) = true;\n\n"
        "  string a = 1 [\n"
        "    (of.field) = 1,\n"
        "    deprecated = true,\n"
        "    (of.other) = {\n"
        '      x: "a,];",\n'
        "      y: [\n"
        "        1,\n"
        "        -2.5e+3\n"
        "      ]\n"
        "    }\n"
        "  ];\n"
        "  int32 b = 2 [(confluent.missing) = FOO];\n\n"
        "  oneof o {\n"
        '    option (of.oneof) = "its";\n  \n'
        "    int32 c = 3 [(plain) = inf];\n"
        "  }\n\n"
        "  message Inner {\n"
        "    option (of.inner) = {\n"
        "      a: [\n"
        "        {\n"
        "          b: {\n"
        "            c: 1\n"
        "          }\n"
        "        },\n"
        "        {\n"
        "        }\n"
        "      ]\n"
        "    };\n"
        "  }\n"
        "  enum E {\n"
        "    option (of.enum) = 0x1F;\n"
        "    Z = 0 [(of.value).deep.er = -1];\n"
        "  }\n"
        "}\n\n"
        "service S {\n"
        '  option (of.service) = "é\\nAé";\n\n'
        "  rpc C (M) returns (M) {\n"
        "    option (of.method) = {\n"
        '      get: "/v1/{name}",\n'
        "      [a.b]: 1\n"
        "    };\n"
        "  };\n"
        "}\n"
    )
    assert parse("PROTOBUF", schema.canonical()).canonical() == schema.canonical()
    assert parse("PROTOBUF", schema.normalized()).normalized() == schema.normalized()
    ignoring = schema.formatted("ignore_extensions")
    assert "(of." not in ignoring and "(confluent.missing) = FOO" in ignoring


def test_options_that_are_known_and_unknown_are_told_apart():
    schema = proto3(
        'import "google/protobuf/descriptor.proto";\n'
        "extend google.protobuf.FieldOptions { int32 known = 50001; }\n"
        "message M { int32 a = 1 [(unknown) = 7, (known) = 07, (no.such) = 'x', deprecated = true]; }"
    )
    assert (
        '[\n    (unknown) = 7,\n    (known) = 7,\n    (no.such) = "x",\n    deprecated = true\n  ]'
        in schema.canonical()
    )


def test_unknown_options_in_what_is_referred_to_do_not_matter():
    other = 'syntax = "proto3"; package o; option (no.such) = 1; message O { int32 a = 1 [(x.y) = {}]; }'
    reference = ResolvedReference("other.proto", "other", 1, other, ())
    schema = proto3('import "other.proto"; message M { o.O o = 1 [(z) = 1]; }', reference)
    assert "o.O o = 1 [(z) = 1];" in schema.canonical()


@pytest.mark.promise(
    "registry",
    "Undefined custom Protobuf options are kept in their places; options keep their order; "
    "`(confluent.field_meta)` is found inside `io.confluent`",
)
@pytest.mark.parametrize("package", ["io.confluent", "io.confluent.examples", "a.confluent.b"])
def test_confluents_options_are_found_inside_of_a_package_of_that_name(package):
    schema = proto3(
        f'package {package};\nimport "confluent/meta.proto";\n'
        'option (confluent.file_meta).doc = "f"; message M { option (confluent.message_meta) = {doc: "m"};\n'
        '\tint32 a = 1 [(confluent.field_meta) = {doc: "d", tags: ["PII"]}]; M b = 2; }'
    )
    text = schema.canonical()
    assert '(confluent.field_meta) = {\n    doc: "d",\n    tags: [\n      "PII"\n    ]\n  }' in text
    assert (
        "(confluent.message_meta)" in text and "(confluent.file_meta)" in text and "(.confluent" not in text
    )
    assert "  M b = 2;" in text, "the spelling of types is found in the text that protoc saw"
    assert parse("PROTOBUF", text).canonical() == text
    # They are understood, and not only carried along.
    assert b"PII" in schema.raw.SerializeToString()


@pytest.mark.parametrize(
    "body",
    [
        "option no_such = 1; message M {}",
        "option (a.b) = ; message M {}",
        "option (a.b = 1; message M {}",
        "option (a b) = 1; message M {}",
        "message M { int32 a = 1 [(x) = {]; }",
        "message M { int32 a = 1 [(x) = 1,]; }",
        "message M { int32 a = 1 [(x) 1]; }",
        "message M { int32 a = 1 [,(x) = 1]; }",
        "message M { int32 a = 1 [(x) = {a: }]; }",
        "message M { Missing a = 1 [(x) = 1]; }",
    ],
)
def test_what_is_wrong_otherwise_is_refused(body):
    with pytest.raises(InvalidSchema, match="Could not parse Protobuf"):
        proto3(body)


def test_too_many_unknown_names_on_one_element_are_refused():
    with pytest.raises(InvalidSchema, match="unknown"):
        proto3("\n".join(f"option (a.b{i}) = 1;" for i in range(100)) + "message M {}")
    many = "\n".join(f"message M{i} {{ option (a.b{i}) = 1; option (c) = 2; }}" for i in range(300))
    assert proto3(many).canonical().count("option (a.b") == 300


ITEMS = ("(u.a) = 1", "deprecated = true", "(u.b) = {x: [1, 2], y: '],'}", "jstype = JS_NORMAL")


@pytest.mark.promise(
    "registry",
    "Undefined custom Protobuf options are kept in their places; options keep their order; "
    "`(confluent.field_meta)` is found inside `io.confluent`",
)
@given(
    st.lists(st.sampled_from(ITEMS), min_size=1, max_size=6, unique=True),
    st.sampled_from([", ", ",", " ,\n", "\t,\t", "/* , */ , // ]\n"]),
)
def test_any_mix_of_known_and_unknown_options_is_kept_in_its_order(items, comma):
    text = proto3(f"message M {{ int64 a = 1 [{comma.join(items)}]; int64 z = 2; }}").canonical()
    found = sorted((text.index(item.split(" = ")[0]), item) for item in items)
    assert [item for _, item in found] == items
    assert "int64 z = 2;" in text


@given(st.text(alphabet="option (a)=1;[]{},<>'\"\\/*\n\té", max_size=60))
def test_reading_options_of_any_text_ends_and_blanks_keep_all_places(text):
    written = WrittenOptions(text)
    left = written.without(written.options)
    assert len(left.encode()) == len(text.encode()) and left.count("\n") == text.count("\n")
