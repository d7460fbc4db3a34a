"""What SET can set: how statements that follow are carried out."""

from __future__ import annotations

from penstock.sql.errors import Clash, Place, Unknown, did_you_mean

RESET = "auto.offset.reset"
INTERVAL = "trigger.interval"
_OF_SPARK = "spark."


def check_property(name: str, value: str | None, place: Place | None = None) -> None:
    """Settings of Spark's are Spark's to judge, when a statement uses them."""
    if name.startswith(_OF_SPARK) or value is None:
        return
    if name not in (RESET, INTERVAL):
        near = did_you_mean(name, (RESET, INTERVAL))
        raise Unknown(f"no property `{name}`{near} ({RESET}, {INTERVAL}, and Spark's: spark.…)", place)
    if name == RESET and value not in ("earliest", "latest"):
        near = did_you_mean(value, ("earliest", "latest"))
        raise Clash(f"{RESET} must be earliest or latest, not '{value}'{near}", place)
