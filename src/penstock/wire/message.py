"""A request or response, or a struct in one: plain attributes, the same for every version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


class Message:
    """`Message(name="t", partitions=[Message(...)])`. Arrays are lists, null is None."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    if TYPE_CHECKING:
        # Only declared for mypy, so that any field name is allowed: an implementation would slow down every
        # access.
        def __getattr__(self, name: str) -> Any: ...

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({fields})"
