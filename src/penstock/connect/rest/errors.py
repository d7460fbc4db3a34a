"""Errors of the REST API, with Kafka Connect's status codes and messages."""

from __future__ import annotations

from penstock.connect.errors import ConnectError


class RestError(ConnectError):
    """An answer `{"error_code", "message"}`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


NOT_LEADER_MESSAGE = "This worker does not lead the group: its leader changes"


def bad_request(message: str) -> RestError:
    return RestError(400, message)


def not_found(name: str) -> RestError:
    return RestError(404, f"Connector {name} not found")


def unknown(name: str) -> RestError:
    """Kafka Connect's message when an unknown connector is paused, resumed or stopped."""
    return RestError(404, f"Unknown connector {name}")


def unknown_to_restart(name: str) -> RestError:
    return RestError(404, f"Unknown connector: {name}")


def no_route() -> RestError:
    return RestError(404, "HTTP 404 Not Found")


def wrong_method() -> RestError:
    return RestError(405, "HTTP 405 Method Not Allowed")


def not_the_leader() -> RestError:
    return RestError(503, NOT_LEADER_MESSAGE)


def rebalancing() -> RestError:
    return RestError(
        409,
        "Cannot complete request momentarily due to no known leader URL, "
        "likely because a rebalance was underway.",
    )


def invalid(errors: list[str]) -> RestError:
    listed = "\n".join(errors)
    return RestError(
        400,
        f"Connector configuration is invalid and contains the following {len(errors)} error(s):\n{listed}\n"
        "You can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`",
    )
