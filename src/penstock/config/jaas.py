"""The value of `sasl.jaas.config`: `LoginModule required name="value" …;`, as Java's JAAS has it."""

from __future__ import annotations

import re

from penstock.errors import ConfigError

_OPTION = re.compile(r"""\s*([\w$.\-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")
_HEAD = re.compile(
    r"\s*[\w.$]*LoginModule\s+(?:required|requisite|sufficient|optional)(?=[\s;])", re.IGNORECASE
)


def jaas_options(name: str, text: str) -> dict[str, str]:
    """The options. `name` is the setting, for the ConfigError, which does not show the value."""
    head = _HEAD.match(text)
    position = 0 if head is None else head.end()
    found: dict[str, str] = {}
    while head is not None and (option := _OPTION.match(text, position)):
        key, double, single, bare = option.groups()
        quoted = double if double is not None else single
        found[key] = bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        position = option.end()
    if head is None or text[position:].strip() != ";":
        raise ConfigError(
            f'{name} cannot be read: write `…PlainLoginModule required user_alice="password" …;`, with the '
            "semicolon at the end"
        )
    return found
