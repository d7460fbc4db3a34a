"""Records as text: what the command line reads, what it prints, and that JSON lines lose nothing."""

import json
from dataclasses import dataclass, field

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.records.formats import (
    BadRecord,
    Layout,
    OutgoingRecord,
    check_template,
    line_decoder,
    record_encoder,
    unescape,
)


@dataclass
class Consumed:
    """A record as a consumer gives it."""

    key_: bytes | None = b"k"
    value_: bytes | None = b"v"
    headers_: list[tuple[str, bytes | None]] = field(default_factory=list)
    timestamp_: int = 1_700_000_000_123

    def topic(self):
        return "orders"

    def partition(self):
        return 3

    def offset(self):
        return 42

    def key(self):
        return self.key_

    def value(self):
        return self.value_

    def timestamp(self):
        return (1, self.timestamp_)

    def headers(self):
        return self.headers_ or None


def decoder(form="text", separator=None, null=None):
    return line_decoder(form, key_separator=separator, null_value=null)


def test_a_text_line_is_the_value_byte_for_byte():
    assert decoder()(b"a \xff b\r") == OutgoingRecord(b"a \xff b\r")


def test_the_first_separator_parts_key_and_value():
    assert decoder(separator=b":")(b"k:v:w") == OutgoingRecord(b"v:w", b"k")


def test_a_line_without_its_key_separator_is_refused():
    with pytest.raises(BadRecord, match="no key separator ':'"):
        decoder(separator=b":")(b"only value")


def test_the_null_mark_makes_a_tombstone_and_an_empty_value_does_not():
    decode = decoder(separator=b":", null=b"NULL")
    assert decode(b"k:NULL").value is None
    assert decode(b"k:").value == b""


def test_hex_and_base64_lines_carry_any_bytes_in_key_and_value():
    assert decoder("hex", b":")(b"00ff:0a") == OutgoingRecord(b"\n", b"\x00\xff")
    assert decoder("base64", b":")(b"AP8=:Cg==") == OutgoingRecord(b"\n", b"\x00\xff")


@pytest.mark.parametrize(
    ("form", "line"), [("hex", b"0g"), ("hex", b"\xff"), ("base64", b"a"), ("base64", b"*")]
)
def test_a_line_that_is_not_in_its_format_is_refused(form, line):
    with pytest.raises(BadRecord, match=r"not (hexadecimal|base64)"):
        decoder(form)(line)


def test_a_json_line_has_key_value_headers_partition_and_timestamp():
    line = b'{"key":"k","value":"v","headers":{"h":"x","n":null},"partition":2,"timestamp":5}'
    assert decoder("json")(line) == OutgoingRecord(b"v", b"k", [("h", b"x"), ("n", None)], 2, 5)


def test_a_json_value_that_is_no_string_is_sent_as_its_json_text():
    assert decoder("json")(b'{"value": {"a": [1, true]}}').value == b'{"a":[1,true]}'


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"vlaue": 1}', "unknown field 'vlaue'"),
        (b'{"partition": -1}', "'partition' must be a whole number"),
        (b'{"timestamp": "now"}', "'timestamp' must be a whole number"),
        (b'{"headers": 3}', "'headers' must be"),
        (b'{"headers": [{"value": "x"}]}', "each of 'headers'"),
        (b'{"value_base64": "%"}', "not base64"),
        (b'{"partition": 2147483648}', "from 0 to 2147483647"),
        (b'{"timestamp": true}', "'timestamp' must be a whole number"),
        (b'{"value": "\\ud800"}', "surrogate pair"),
        (b'{"headers": {"\\ud800": "x"}}', "surrogate pair"),
        (b'{"value_base64": "AA==", "value": "x"}', "excludes 'value'"),
    ],
)
def test_a_bad_json_line_is_refused_with_what_is_wrong(line, complaint):
    with pytest.raises(BadRecord, match=complaint):
        decoder("json")(line)


binary = st.none() | st.binary(max_size=20)


@given(binary, binary, st.lists(st.tuples(st.text(max_size=5), binary), max_size=3), st.integers(0, 2**53))
def test_what_consume_prints_as_json_produce_takes_back_unchanged(key, value, headers, timestamp):
    line = record_encoder("json", Layout())(Consumed(key, value, headers, timestamp))
    assert line.endswith(b"\n") and b"\n" not in line[:-1]
    record = decoder("json")(line.removesuffix(b"\n"))
    assert (record.key, record.value, list(record.headers)) == (key, value, headers)
    assert (record.partition, record.timestamp) == (3, timestamp)


def test_json_output_names_bytes_that_are_not_utf8():
    printed = json.loads(record_encoder("json", Layout())(Consumed(None, b"\xff")))
    assert printed == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": 1_700_000_000_123,
        "key": None,
        "value_base64": "/w==",
        "headers": [],
    }


def test_a_record_without_a_time_is_printed_without_one_and_can_be_sent_again():
    record = Consumed()
    record.timestamp = lambda: (0, -1)
    line = record_encoder("json", Layout())(record)
    assert json.loads(line)["timestamp"] is None
    assert decoder("json")(line).timestamp is None


def test_text_output_is_the_value_unless_more_is_asked_for():
    record = Consumed(headers_=[("h", b"x"), ("n", None)])
    assert record_encoder("text", Layout())(record) == b"v\n"
    everything = Layout(keys=True, headers=True, timestamps=True, separator=b"|")
    assert record_encoder("text", everything)(record) == b"2023-11-14T22:13:20.123Z|h=x,n=null|k|v\n"


def test_null_keys_and_values_are_printed_as_the_mark():
    layout = Layout(keys=True, null=b"NULL", delimiter=b"\0")
    assert record_encoder("text", layout)(Consumed(None, None)) == b"NULL\tNULL\0"


def test_hex_and_base64_output_encode_key_and_value():
    assert record_encoder("hex", Layout(keys=True))(Consumed(b"\x00", b"\xff")) == b"00\tff\n"
    assert record_encoder("base64", Layout())(Consumed(value_=b"\xff")) == b"/w==\n"


def test_a_template_prints_what_its_directives_name():
    record = Consumed(b"key", None, [("h", b"x")])
    encode = record_encoder(r"%t %p %o %k %v %K %V [%h] %T\t%%", Layout())
    assert encode(record) == b"orders 3 42 key null 3 -1 [h=x] 1700000000123\t%\n"


def test_a_template_that_ends_its_line_gets_no_second_end():
    assert record_encoder(r"%v\n", Layout())(Consumed()) == b"v\n"


def test_a_directive_that_does_not_exist_is_a_usage_error():
    with pytest.raises(click.BadParameter, match="'%z' is not one of"):
        check_template("%v %z")
    with pytest.raises(click.BadParameter):
        check_template("100%")


def test_escapes_in_separators_and_templates():
    assert unescape(r"\t\n\r\0\\\x41é\q") == b"\t\n\r\0\\A" + "é".encode() + b"q"
