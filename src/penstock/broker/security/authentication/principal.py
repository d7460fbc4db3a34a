"""The identity that a request runs under, as ACLs and quotas name it: "User:alice"."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

USER: Final = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    kind: str
    name: str
    by_token: bool = field(default=False, compare=False)
    """Whether it has logged in with a delegation token."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
