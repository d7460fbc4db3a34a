"""The page of the demonstration in the web console: delays by airport, alerts, dead letters, throughput."""

from __future__ import annotations

from collections import deque
from typing import Any

from nicegui import ui
from starlette.requests import Request

from penstock.console.parts import format as f
from penstock.console.parts.acting import read, show_failure, soon
from penstock.console.parts.curves import COLOURS, Curves
from penstock.console.parts.frame import command_line, frame
from penstock.console.parts.live import Redrawn, Tiles
from penstock.console.site import Site
from penstock.demo.board import Alert, Hour
from penstock.demo.live import Airport, Live, airports
from penstock.demo.replay import FLIGHTS
from penstock.demo.topics import ALERTS, DEAD, DELAYS, GROUPS

PATH = "/flights"
NAVIGATION = (("Flights", PATH, "flight_takeoff"),)
_LIVE_SECONDS = 2.0
_RATE_SECONDS = 10.0
_ORIGINS = ("EWR", "JFK", "LGA")
_SHOWN = 12
_BAD, _WORSE = 15.0, 45.0
"""Minutes of mean delay from which an hour is shown in another colour."""
_TILES = (
    ("Replayed until", ""),
    ("Flights in", f.topic_link(FLIGHTS)),
    ("In", f.topic_link(FLIGHTS)),
    ("Through", "/pipelines"),
    ("Behind", "/pipelines"),
    ("Alerts", f.topic_link(ALERTS)),
    ("Dead letters", f.topic_link(DEAD)),
    ("Closed hours", f.topic_link(DELAYS)),
)
_HOME = "JFK"
"""On a map of the country, New York's airports are one place."""
_LATE, _CANCELLED = "#ea580c", "#dc2626"


def register(site: Site) -> None:
    live = Live()
    places = airports()

    @ui.page(PATH)
    async def flights(request: Request) -> None:
        site.sampler.watch()
        command = site.command("consume", ALERTS)
        with frame(
            site, request, "Flights of New York, 2013", command, section=PATH,
            subtitle="Replayed into topics, processed by Spark, shown as results arrive.",
        ):  # fmt: skip
            _Page(site, live, places)
            command_line(site.command("consume", DEAD))
            command_line(site.command("consume", DELAYS))


class _Page:
    def __init__(self, site: Site, live: Live, places: dict[str, Airport]) -> None:
        self._site, self._live, self._places = site, live, places
        self._rates: deque[tuple[float, float | None, float | None]] = deque(maxlen=300)
        self._problem = Redrawn(ui.element("div").classes("w-full"))
        self._tiles = Tiles(_TILES)
        with ui.element("div").classes("flights w-full"):
            with ui.element("div").classes("card flights-map"):
                ui.label("Where the delayed and cancelled flights go").classes("muted")
                self._map = ui.echart(_map(places)).classes("w-full flights-chart")
            with ui.element("div").classes("flights-board"):
                self._cards = {origin: _Card(origin, places) for origin in _ORIGINS}
        with ui.element("div").classes("curves"):
            with ui.element("div").classes("card"):
                ui.label("Mean delay by hour of departure, minutes").classes("muted")
                self._delays = ui.echart(_delays()).style("height: 180px; width: 100%")
            self._throughput = Curves("Flights per second")
            self._lag = Curves("Lag of the flows", "flights")
            with ui.element("div").classes("card"):
                ui.link("Alerts", f.topic_link(ALERTS)).classes("link font-bold")
                self._alerts = Redrawn(ui.element("div").classes("w-full"))
            with ui.element("div").classes("card"):
                ui.link("Dead letters", f.topic_link(DEAD)).classes("link font-bold")
                self._dead = Redrawn(ui.element("div").classes("w-full"))
        soon(self._refresh)
        ui.timer(_LIVE_SECONDS, self._refresh, immediate=False)

    async def _refresh(self) -> None:
        site, live = self._site, self._live
        site.sampler.watch()
        if site.sampler.last is None:
            await read(site.sampler.wait, site.settings.timeout)
        sample = site.sampler.last
        if sample is not None:
            live.begin(site.cluster.bootstrap, sample.topics)
        problem = live.failure or site.sampler.failure
        self._problem.show(problem, lambda: show_failure(ValueError(problem)) if problem else None)
        board, newest = live.board, live.newest()
        came = site.sampler.rate(FLIGHTS, seconds=_RATE_SECONDS)
        went = [site.sampler.consumed(group, FLIGHTS, seconds=_RATE_SECONDS) for group in GROUPS]
        through = min((each for each in went if each is not None), default=None)
        lags = {group: sample.lags[group] for group in GROUPS if group in sample.lags} if sample else {}
        self._tiles.show(
            [
                (max((hour.hour for hour in newest.values()), default="-"), ""),
                (f.count(sample.records.get(FLIGHTS) if sample is not None else None), ""),
                (f.rate(came), ""),
                (f.rate(through), ""),
                (f.count(max(lags.values(), default=None)), ""),
                (f.count(len(board.outcome.alerts)), ""),
                (f.count(len(board.outcome.dead)), ""),
                (f.count(len(board.outcome.windows)), ""),
            ]
        )
        if sample is not None and (not self._rates or self._rates[-1][0] != sample.at):
            self._rates.append((sample.at, came, through))
        times = [at for at, _, _ in self._rates]
        self._throughput.show(
            times,
            {"in": [each for _, each, _ in self._rates], "through": [each for _, _, each in self._rates]},
        )
        points = list(site.sampler.points)
        self._lag.show(
            [point.at for point in points],
            {group.rpartition(".")[2]: [point.lags.get(group) for point in points] for group in GROUPS},
        )
        for origin, card in self._cards.items():
            card.show(newest.get(origin))
        self._show_delays()
        self._show_map()
        alerts = list(board.newest_alerts)[:_SHOWN]
        self._alerts.show(alerts, lambda: _show_alerts(alerts))
        reasons = board.reasons.most_common()
        letters = list(board.newest_dead)[:_SHOWN]
        self._dead.show((reasons, letters), lambda: _show_dead(reasons, letters))

    def _show_delays(self) -> None:
        by_hour = {
            origin: {hour.hour: hour.mean_delay for hour in list(hours)}
            for origin, hours in self._live.hours.items()
        }
        hours = sorted({hour for found in by_hour.values() for hour in found})
        options = self._delays.options
        options["xAxis"]["data"] = hours
        options["series"] = [
            {
                "name": origin,
                "type": "line",
                "showSymbol": False,
                "connectNulls": True,
                "data": [by_hour[origin].get(hour) for hour in hours],
                "color": COLOURS[at],
            }
            for at, origin in enumerate(_ORIGINS)
            if origin in by_hour
        ]
        self._delays.update()

    def _show_map(self) -> None:
        routes = self._live.routes()
        cancelled = {alert.dest for alert in list(self._live.recent) if alert.cancelled}
        home = self._places[_HOME]
        lines, dots = [], []
        for code, count in routes.most_common():
            place = self._places.get(code)
            if place is None:
                continue
            colour = _CANCELLED if code in cancelled else _LATE
            lines.append(
                {
                    "coords": [[home.longitude, home.latitude], [place.longitude, place.latitude]],
                    "lineStyle": {"color": colour, "width": min(1.0 + count / 4, 4.0)},
                }
            )
            dots.append(
                {
                    "name": f"{place.code} {place.name}: {count}",
                    "value": [place.longitude, place.latitude],
                    "symbolSize": min(6 + count, 22),
                    "itemStyle": {"color": colour},
                }
            )
        self._map.options["series"][1]["data"] = lines
        self._map.options["series"][2]["data"] = dots
        self._map.update()


class _Card:
    """One airport: the last hour that has closed."""

    def __init__(self, origin: str, places: dict[str, Airport]) -> None:
        with ui.element("div").classes("card"):
            with ui.row().classes("w-full items-baseline justify-between no-wrap"):
                ui.label(origin).classes("font-bold text-lg")
                self._hour = ui.label("").classes("muted whitespace-nowrap")
            ui.label(places[origin].name).classes("muted ellipsis")
            self._delay = ui.label("-")
            self._detail = ui.label("no hour has closed yet").classes("muted")
            self._weather = ui.label("").classes("muted")

    def show(self, hour: Hour | None) -> None:
        if hour is None:
            return
        delay = hour.mean_delay
        look = "ok" if (delay or 0) < _BAD else "warn" if (delay or 0) < _WORSE else "bad"
        if 2 * hour.cancelled > hour.flights:
            look = "bad"
        self._delay.text = "all cancelled" if delay is None else f"{delay:+.0f} min"
        self._delay.classes(replace=f"tile-value {look}")
        self._hour.text = hour.hour
        worst = "" if hour.worst_delay is None else f", worst {hour.worst_delay} min"
        self._detail.text = f"{hour.flights} flights, {hour.cancelled} cancelled{worst}"
        self._weather.text = hour.weather


def _show_alerts(alerts: list[Alert]) -> None:
    for alert in alerts:
        with ui.row().classes("w-full no-wrap items-baseline gap-2 edge"):
            ui.label(alert.flight).classes("mono whitespace-nowrap")
            ui.label(f"{alert.origin} → {alert.dest}").classes("whitespace-nowrap")
            what = "cancelled" if alert.cancelled else f"{alert.delay_minutes} min late"
            ui.label(what).classes("bad whitespace-nowrap" if alert.cancelled else "warn whitespace-nowrap")
            ui.label(f"{alert.scheduled}, {alert.weather}").classes("muted ellipsis")
    if not alerts:
        ui.label("None yet.").classes("muted")


def _show_dead(reasons: list[tuple[str, int]], letters: list[Any]) -> None:
    for reason, count in reasons:
        with ui.row().classes("w-full no-wrap justify-between edge"):
            ui.label(reason).classes("ellipsis")
            ui.label(f.count(count)).classes("mono")
    for letter in letters[: max(_SHOWN - len(reasons), 0)]:
        with ui.row().classes("w-full no-wrap items-baseline gap-2 edge"):
            ui.label(letter.source).classes("mono whitespace-nowrap")
            ui.label(letter.value).classes("mono muted ellipsis")
    if not reasons:
        ui.label("None yet.").classes("muted")


def _delays() -> dict[str, Any]:
    grey = {"color": "#94a3b8", "hideOverlap": True}
    return {
        "animation": False,
        "grid": {"left": 8, "right": 12, "top": 26, "bottom": 4, "containLabel": True},
        "legend": {"show": True, "textStyle": {"color": "#94a3b8"}, "top": 0},
        "tooltip": {"trigger": "axis", "renderMode": "richText"},
        "xAxis": {"type": "category", "data": [], "axisLabel": grey},
        "yAxis": {"type": "value", "axisLabel": grey, "splitLine": {"lineStyle": {"color": "#94a3b833"}}},
        "series": [],
    }


def _map(places: dict[str, Airport]) -> dict[str, Any]:
    def axis(values: list[float]) -> dict[str, Any]:
        return {"type": "value", "show": False, "min": min(values) - 1, "max": max(values) + 1}

    home = places[_HOME]
    return {
        "animation": False,
        "grid": {"left": 0, "right": 0, "top": 0, "bottom": 0},
        "xAxis": axis([each.longitude for each in places.values()]),
        "yAxis": axis([each.latitude for each in places.values()]),
        "tooltip": {"renderMode": "richText", "formatter": "{b}"},
        "series": [
            {
                "type": "scatter",
                "silent": True,
                "symbolSize": 2.5,
                "itemStyle": {"color": "#94a3b8", "opacity": 0.55},
                "data": [[each.longitude, each.latitude] for each in places.values()],
            },
            {
                "type": "lines",
                "coordinateSystem": "cartesian2d",
                "silent": True,
                "lineStyle": {"curveness": 0.2, "opacity": 0.55},
                "data": [],
            },
            {"type": "scatter", "data": []},
            {
                "type": "scatter",
                "symbolSize": 14,
                "itemStyle": {"color": "#0d9488", "borderColor": "#fff", "borderWidth": 2},
                "data": [{"name": "New York", "value": [home.longitude, home.latitude]}],
            },
        ],
    }
