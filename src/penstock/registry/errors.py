"""The errors of the registry, each with its HTTP status and Confluent's error code.

PenstockError
└── RegistryError
    └── RestError            an answer {"error_code", "message"} to a client
        ├── BadRequest … TooLarge          HTTP's own
        ├── NotFound                       404xx
        ├── Incompatible                   409
        ├── Unprocessable                  422xx
        └── ServerTrouble                  500xx: the store, its time limit, the leader
"""

from __future__ import annotations

from penstock.errors import PenstockError


class RegistryError(PenstockError):
    """The base class of the registry's errors."""


class RestError(RegistryError):
    """An error that is returned to a client."""

    status = 500

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = self.status if code is None else code


class HttpError(RestError):
    """An HTTP error with the message of Jersey, the HTTP library of Confluent's registry."""

    def __init__(self, status: int, reason: str, message: str | None = None) -> None:
        self.status = status
        super().__init__(message or f"HTTP {status} {reason}")


class BadRequest(RestError):
    """The body is not JSON, or a value has the wrong type."""

    status = 400


class NotFound(RestError):
    status = 404


class Incompatible(RestError):
    status = 409


class Unprocessable(RestError):
    status = 422


class ServerTrouble(RestError):
    status = 500


def unknown_route() -> HttpError:
    return HttpError(404, "Not Found")


def subject_not_found(subject: str | None) -> NotFound:
    return NotFound(f"Subject '{subject}' not found.", 40401)


def version_not_found(version: int) -> NotFound:
    return NotFound(f"Version {version} not found.", 40402)


def schema_not_found(what: object = None) -> NotFound:
    return NotFound("Schema not found" if what is None else f"Schema {what} not found", 40403)


def subject_soft_deleted(subject: str) -> NotFound:
    return NotFound(f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently", 40404)


def subject_not_soft_deleted(subject: str) -> NotFound:
    return NotFound(f"Subject '{subject}' was not deleted first before being permanently deleted", 40405)


def version_soft_deleted(subject: str, version: object) -> NotFound:
    return NotFound(
        f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently",
        40406,
    )


def version_not_soft_deleted(subject: str, version: object) -> NotFound:
    return NotFound(
        f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted", 40407
    )


def compatibility_not_configured(subject: str) -> NotFound:
    return NotFound(f"Subject '{subject}' does not have subject-level compatibility configured", 40408)


def mode_not_configured(subject: str) -> NotFound:
    return NotFound(f"Subject '{subject}' does not have subject-level mode configured", 40409)


def incompatible(subject: str, reasons: list[str]) -> Incompatible:
    return Incompatible(
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", '
        f"details: [{', '.join(reasons)}]",
        409,
    )


def invalid_schema(message: str) -> Unprocessable:
    return Unprocessable(message, 42201)


def invalid_version(version: object) -> Unprocessable:
    return Unprocessable(
        f"The specified version '{version}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
        42202,
    )


def invalid_compatibility() -> Unprocessable:
    return Unprocessable(
        "Invalid compatibility level. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive",
        42203,
    )


def invalid_mode(message: str | None = None) -> Unprocessable:
    return Unprocessable(
        message
        or "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, IMPORT and FORWARD.",
        42204,
    )


def not_permitted(message: str) -> Unprocessable:
    return Unprocessable(message, 42205)


def reference_exists(subject: str, version: int) -> Unprocessable:
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return Unprocessable(f"One or more references exist to the schema {key}.", 42206)


def invalid_subject(subject: str) -> Unprocessable:
    return Unprocessable(f"The specified subject '{subject}' is not a valid.", 42208)


def schema_too_large() -> Unprocessable:
    return Unprocessable("Register operation failed because schema is too large", 42209)


def invalid_rule_set(message: str) -> Unprocessable:
    return Unprocessable(message, 42210)


def context_not_empty(context: str) -> Unprocessable:
    return Unprocessable(f"The specified context '{context}' is not empty.", 42211)


def timed_out(message: str) -> ServerTrouble:
    return ServerTrouble(message, 50002)


def forwarding_failed(message: str) -> ServerTrouble:
    return ServerTrouble(message, 50003)


def leader_unknown(message: str = "Leader not known.") -> ServerTrouble:
    return ServerTrouble(message, 50004)
