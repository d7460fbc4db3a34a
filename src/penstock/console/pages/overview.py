"""Overview: brokers, health, rates, the slowest groups and failures. Live."""

from __future__ import annotations

from collections import Counter

from nicegui import ui
from starlette.requests import Request

from penstock.console.pages.pipelines import link_of
from penstock.console.parts import format as f
from penstock.console.parts.acting import read, show_failure, soon
from penstock.console.parts.curves import Curves
from penstock.console.parts.frame import frame
from penstock.console.parts.live import LinkList, Redrawn, Row, Tiles
from penstock.console.reads.connectors import failed_connectors
from penstock.console.reads.samples import Sample
from penstock.console.reads.streaming import StreamingQuery
from penstock.console.site import Site

_LIVE_SECONDS = 2.0
_SLOWEST = 8
_TILES = (
    ("Brokers", "#brokers"),
    ("Topics", "/topics"),
    ("Partitions", "/topics"),
    ("Groups", "/groups"),
    ("Offline partitions", "/topics?internal=1&health=offline"),
    ("Under-replicated", "/topics?internal=1&health=under-replicated"),
    ("Records in", ""),
    ("On disk", ""),
)


def register(site: Site) -> None:
    @ui.page("/")
    async def overview(request: Request) -> None:
        site.sampler.watch()
        with frame(site, request, "Overview", site.command("cluster", "describe"), section="/"):
            problem = Redrawn(ui.element("div").classes("w-full"))
            tiles = Tiles(_TILES)
            with ui.element("div").classes("curves"):
                records = Curves("Records per second")
                volume = Curves("Bytes written per second, all replicas")
                lag = Curves("Lag of the slowest groups", "records")
                trouble = LinkList("Needs attention", "Nothing failed.")
                slow = LinkList("Slowest groups", "No group is behind.")
                brokers = Redrawn(ui.element("div").classes("card").props('id="brokers"'))

            async def refresh() -> None:
                site.sampler.watch()
                if site.sampler.last is None:
                    await read(site.sampler.wait, site.settings.timeout)
                sample, failure = site.sampler.last, site.sampler.failure
                points = list(site.sampler.points)
                failed = await read(failed_connectors, site.worker)
                problem.show(failure, lambda: None if failure is None else show_failure(ValueError(failure)))
                if sample is None:
                    return
                tiles.show(_values(sample, points[-1].records_in if points else None))
                times = [point.at for point in points]
                records.show(
                    times,
                    {
                        "written": [round(p.records_in, 1) for p in points],
                        "consumed by groups": [round(p.records_out, 1) for p in points],
                    },
                )
                volume.show(times, {"written": [round(p.bytes_in) for p in points]})
                slowest = sorted((n for n in sample.lags if sample.lags[n]), key=lambda n: -sample.lags[n])
                lag.show(times, {name: [p.lags.get(name) for p in points] for name in slowest[:4]})
                queries = []
                if site.sql is not None or site.pipelines is not None:
                    site.streams.watch()
                    streams = site.streams.last
                    queries = [each for each in (streams.queries.values() if streams else ()) if each.failed]
                trouble.show(_trouble(sample, failed, queries))
                slow.show(
                    [
                        Row(name, f.link("/group", id=name), f"{f.count(sample.lags[name])} behind")
                        for name in slowest[:_SLOWEST]
                    ]
                )
                rows = _brokers(sample)
                brokers.show(rows, lambda: _show_brokers(rows))

            soon(refresh)
            ui.timer(_LIVE_SECONDS, refresh)


def _values(sample: Sample, records: float | None) -> list[tuple[str, str]]:
    """Values for _TILES, in its order."""
    offline, behind = len(sample.offline), len(sample.under_replicated)
    partitions = sum(len(info.partitions) for info in sample.topics.values())
    own = sum(not name.startswith("__") for name in sample.topics)
    return [
        (f.count(len(sample.brokers)), ""),
        (f.count(own), ""),
        (f.count(partitions), ""),
        (f.count(len(sample.groups)), ""),
        (f.count(offline), "bad" if offline else "ok"),
        (f.count(behind), "warn" if behind else "ok"),
        (f.rate(records), ""),
        (f.size(sum(sample.sizes.values()) if sample.sizes else None), ""),
    ]


def _trouble(sample: Sample, failed: list[str], queries: list[StreamingQuery]) -> list[Row]:
    found = [Row(f"{t}-{p} is offline", f.link(f"/topics/{t}")) for t, p in sample.offline[:10]]
    found += [
        Row(f"{t}-{p} is under-replicated", f.link(f"/topics/{t}")) for t, p in sample.under_replicated[:10]
    ]
    found += [Row(f"connector {name} failed", f.link("/connector", name=name)) for name in failed[:10]]
    found += [Row(f"query {each.name} failed", link_of(each)) for each in queries[:10]]
    if sample.controller not in sample.brokers:
        found.insert(0, Row("the cluster has no controller", "#brokers"))
    return found


def _brokers(sample: Sample) -> list[tuple[str, bool, int]]:
    """For each broker: its address, whether it is the controller, and how many partitions it leads."""
    led = Counter(partition.leader for info in sample.topics.values() for partition in info.partitions)
    return [
        (f"{broker}: {address}", broker == sample.controller, led[broker])
        for broker, address in sorted(sample.brokers.items())
    ]


def _show_brokers(rows: list[tuple[str, bool, int]]) -> None:
    ui.label("Brokers").classes("font-bold")
    for address, controls, leads in rows:
        with ui.row().classes("w-full no-wrap items-center justify-between"):
            with ui.row().classes("items-center gap-2"):
                ui.label(address).classes("mono")
                if controls:
                    ui.badge("controller")
            ui.label(f"leads {f.count(leads)}").classes("muted no-wrap")
