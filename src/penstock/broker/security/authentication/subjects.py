"""The principal of a certificate: its subject as Java formats it, and the rules that map it to a name.

Kafka's ACLs have the subject in the form of RFC 2253 (`CN=alice,OU=ops,O=acme`), as X500Principal.getName()
returns it, and `ssl.principal.mapping.rules` are written for that form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.errors import ConfigError

# RFC 2253, 2.3: all other types are written as numbers, with their values in hexadecimal.
_KEYWORDS = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O",
    "2.5.4.11": "OU", "0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID",
}  # fmt: skip
_ENCODINGS = {12: "utf-8", 19: "ascii", 20: "latin-1", 22: "ascii", 28: "utf-32-be", 30: "utf-16-be"}
_SEQUENCE, _VERSION = 0x30, 0xA0


def subject_of(certificate: bytes) -> str:
    """The subject of a verified certificate in DER; ValueError if it cannot be parsed."""
    try:
        (_, outer), *_ = _items(certificate)
        (_, to_be_signed), *_ = _items(outer)
        fields = list(_items(to_be_signed))
        if fields[0][0] == _VERSION:
            fields = fields[1:]
        _, _, _, _, (_, name) = fields[:5]  # serial number, algorithm, issuer, validity, subject
        parts = ["+".join(_attribute(value) for _, value in _items(entry)) for _, entry in _items(name)]
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("the subject of the certificate cannot be read") from error
    return ",".join(reversed(parts))


def _items(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each element of DER."""
    position = 0
    while position < len(data):
        tag, length = data[position], data[position + 1]
        position += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[position : position + size], "big")
            position += size
        if position + length > len(data):
            raise IndexError("truncated")
        yield tag, data[position : position + length]
        position += length


def _attribute(data: bytes) -> str:
    (_, oid), (tag, value) = _items(data)
    name = _dotted(oid)
    keyword, encoding = _KEYWORDS.get(name), _ENCODINGS.get(tag)
    if keyword is None or encoding is None:
        size = len(value)
        length = bytes([size]) if size < 128 else bytes([0x82, size >> 8, size & 0xFF])
        return f"{keyword or name}=#{(bytes([tag]) + length + value).hex()}"
    return f"{keyword}={_escaped(value.decode(encoding))}"


def _dotted(oid: bytes) -> str:
    numbers, number = [min(oid[0] // 40, 2)], 0
    numbers.append(oid[0] - 40 * numbers[0])
    for byte in oid[1:]:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    return ".".join(map(str, numbers))


def _escaped(text: str) -> str:
    body = re.sub(r'[,=+<>#;"\\]', r"\\\g<0>", text)
    lead = len(body) - len(body.lstrip(" "))
    body = "\\ " * lead + body[lead:]
    trail = len(body) - len(body.rstrip(" ")) if body.strip(" \\") else 0
    return body[: len(body) - trail] + "\\ " * trail


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None  # None: the subject as it is
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        match = self.pattern.fullmatch(subject)
        if match is None:
            return None
        name = match.expand(self.replacement)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|$)"
)


class SubjectRules:
    """`ssl.principal.mapping.rules`: the first rule that matches the whole subject names the principal."""

    def __init__(self, text: str) -> None:
        self._rules: list[_Rule] = []
        position = 0
        while position < len(text):
            match = _RULE.match(text, position)
            if match is None:
                raise ConfigError(f"ssl.principal.mapping.rules: {text[position:]!r} is not a rule")
            position = match.end()
            if match["default"]:
                self._rules.append(_Rule(None))
                continue
            try:
                pattern = re.compile(match["pattern"])
                replacement = re.sub(r"\$(\d)", r"\\\1", match["replacement"])
                self._rules.append(_Rule(pattern, replacement, match["case"]))
            except re.error as error:
                raise ConfigError(f"ssl.principal.mapping.rules: {match['pattern']!r}: {error}") from error
        if not self._rules:
            self._rules.append(_Rule(None))

    def name(self, subject: str) -> str | None:
        """The name for a subject; None if no rule matches."""
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        return None
