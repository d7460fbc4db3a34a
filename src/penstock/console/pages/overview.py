"""Overview: brokers, health, rates, the slowest groups and what failed. Live."""

from __future__ import annotations

from nicegui import ui
from starlette.requests import Request

from penstock.console.parts import format as f
from penstock.console.parts.acting import read, show_failure, soon
from penstock.console.parts.curves import Curves
from penstock.console.parts.frame import frame
from penstock.console.reads.connectors import failed_connectors
from penstock.console.reads.samples import Sample
from penstock.console.site import Site

_LIVE_SECONDS = 2.0
_SLOWEST = 8


def register(site: Site) -> None:
    @ui.page("/")
    async def overview(request: Request) -> None:
        site.sampler.watch()
        with frame(site, request, "Overview", site.command("cluster", "describe"), section="/"):
            tiles = ui.element("div").classes("tiles")
            with ui.element("div").classes("curves"):
                records = Curves("Records per second")
                volume = Curves("Bytes written per second, all replicas")
                lag = Curves("Lag of the slowest groups", "records")
            with ui.element("div").classes("curves"):
                trouble = ui.element("div").classes("card")
                slow = ui.element("div").classes("card")
                brokers = ui.element("div").classes("card")

            async def refresh() -> None:
                site.sampler.watch()
                if site.sampler.last is None:
                    await read(site.sampler.wait, site.settings.timeout)
                sample, failure = site.sampler.last, site.sampler.failure
                points = list(site.sampler.points)
                failed = await read(failed_connectors, site.worker)
                tiles.clear()
                with tiles:
                    if failure is not None:
                        show_failure(ValueError(failure))
                    if sample is not None:
                        _tiles(sample, points[-1].records_in if points else None)
                if sample is None:
                    return
                times = [point.at for point in points]
                records.show(
                    times,
                    {
                        "written": [round(p.records_in, 1) for p in points],
                        "consumed by groups": [round(p.records_out, 1) for p in points],
                    },
                )
                volume.show(times, {"written": [round(p.bytes_in) for p in points]})
                slowest = sorted(sample.lags, key=lambda name: -sample.lags[name])
                lag.show(times, {name: [p.lags.get(name) for p in points] for name in slowest[:4]})
                for area in (trouble, slow, brokers):
                    area.clear()
                with trouble:
                    _trouble(sample, failed)
                with slow:
                    _slowest(sample, slowest)
                with brokers:
                    _brokers(sample)

            soon(refresh)
            ui.timer(_LIVE_SECONDS, refresh)


def _tiles(sample: Sample, records: float | None) -> None:
    offline, behind = len(sample.offline), len(sample.under_replicated)
    partitions = sum(len(info.partitions) for info in sample.topics.values())
    own = sum(not name.startswith("__") for name in sample.topics)
    for name, value, look, target in (
        ("Brokers", f.count(len(sample.brokers)), "", ""),
        ("Topics", f.count(own), "", "/topics"),
        ("Partitions", f.count(partitions), "", "/topics"),
        ("Groups", f.count(len(sample.groups)), "", "/groups"),
        ("Offline partitions", f.count(offline), "bad" if offline else "ok", ""),
        ("Under-replicated", f.count(behind), "warn" if behind else "ok", ""),
        ("Records in", f.rate(records), "", ""),
        ("On disk", f.size(sum(sample.sizes.values()) if sample.sizes else None), "", ""),
    ):
        with ui.element("div").classes("card"):
            ui.label(name).classes("muted")
            if target:
                ui.link(value, target).classes("tile-value link")
            else:
                ui.label(value).classes(f"tile-value {look}")


def _trouble(sample: Sample, failed: list[str]) -> None:
    ui.label("Needs attention").classes("font-bold")
    found = [(f"{t}-{p} is offline", f.link(f"/topics/{t}")) for t, p in sample.offline[:10]]
    found += [
        (f"{t}-{p} is under-replicated", f.link(f"/topics/{t}")) for t, p in sample.under_replicated[:10]
    ]
    found += [(f"connector {name} failed", f.link("/connector", name=name)) for name in failed[:10]]
    if sample.controller not in sample.brokers:
        found.insert(0, ("the cluster has no controller", "/"))
    for text, target in found:
        ui.link(text, target).classes("link block")
    if not found:
        with ui.row().classes("items-center gap-2"):
            ui.icon("check_circle").classes("ok")
            ui.label("Nothing failed.")


def _slowest(sample: Sample, slowest: list[str]) -> None:
    ui.label("Slowest groups").classes("font-bold")
    for name in slowest[:_SLOWEST]:
        with ui.row().classes("w-full no-wrap justify-between"):
            ui.link(name, f.link("/group", id=name)).classes("link ellipsis")
            ui.label(f"{f.count(sample.lags[name])} behind").classes("muted no-wrap")
    if not slowest:
        ui.label("No group has committed offsets.").classes("muted")


def _brokers(sample: Sample) -> None:
    ui.label("Brokers").classes("font-bold")
    led: dict[int, int] = {}
    for info in sample.topics.values():
        for partition in info.partitions:
            led[partition.leader] = led.get(partition.leader, 0) + 1
    for broker, address in sorted(sample.brokers.items()):
        with ui.row().classes("w-full no-wrap items-center justify-between"):
            with ui.row().classes("items-center gap-2"):
                ui.label(f"{broker}: {address}").classes("mono")
                if broker == sample.controller:
                    ui.badge("controller")
            ui.label(f"leads {f.count(led.get(broker, 0))}").classes("muted no-wrap")
