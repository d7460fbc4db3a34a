"""Which settings of a connector are hidden, and which settings of its tasks are stored as references.

Settings that a plugin declares as PASSWORD are secret; undeclared ones (of converters, transforms, clients)
are secret depending on their names. A reference (`${file:…}`) to a secret may be shown and stored.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from penstock.connect.concealment import HIDDEN, LEAST, NAMES, other_forms
from penstock.connect.errors import ConnectError
from penstock.connect.providers import resolve
from penstock.credentials.references import only_references, references_in

_IN_URL = re.compile(r"(://[^/\s:@]*:)(?!\$\{)[^/\s@]+(?=@)")


def is_secret(name: str, declared: Collection[str], passwords: Collection[str]) -> bool:
    """`declared` are the settings that the plugin declares, `passwords` those that it declares as secret."""
    return name in passwords or (name not in declared and NAMES.search(name) is not None)


def hidden(
    config: Mapping[str, str], declared: Collection[str] = (), passwords: Collection[str] = ()
) -> dict[str, str]:
    """The settings without secrets, but with references to them."""
    return {
        name: HIDDEN
        if value and is_secret(name, declared, passwords) and not only_references(value)
        else _IN_URL.sub(rf"\1{HIDDEN}", value)
        for name, value in config.items()
    }


def with_references(
    given: Mapping[str, str], resolved: Mapping[str, str], task: Mapping[str, object]
) -> dict[str, str]:
    """A task's settings, with values replaced by the references of the connector's settings.

    ConnectError names a setting that contains a secret in a form that cannot be replaced by a reference.
    """
    values = resolve({reference: reference for text in given.values() for reference in references_in(text)})
    secrets = {value: reference for reference, value in values.items() if len(value) >= LEAST}
    longest_first = sorted(secrets, key=len, reverse=True)
    found = re.compile("|".join(map(re.escape, longest_first))) if secrets else None
    stored = {}
    for name, value in task.items():
        if value is None:
            continue
        text = str(value)
        if name in given and resolved.get(name) == text:
            stored[name] = given[name]
            continue
        if found is not None:
            text = found.sub(lambda match: secrets[match[0]], text)
            for secret, reference in secrets.items():
                if any(form in text for form in other_forms(secret)):
                    raise ConnectError(
                        f"The setting {name} of a task has the value of {reference} in an encoded form, "
                        "and would be stored with it: use a secret without special characters, or have the "
                        "connector give its tasks its own settings and encode there"
                    )
        stored[name] = text
    return stored
