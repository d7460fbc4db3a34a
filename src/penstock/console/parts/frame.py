"""The frame of every page: navigation, cluster, theme, login, and the equivalent command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nicegui import ui
from starlette.requests import Request

from penstock.console.parts.keys import keyboard
from penstock.console.parts.style import CSS
from penstock.console.site import Site
from penstock.console.viewer import Viewer

NAVIGATION = (
    ("Overview", "/", "dashboard"),
    ("Topics", "/topics", "topic"),
    ("Groups", "/groups", "groups"),
    ("Schemas", "/schemas", "schema"),
    ("Connectors", "/connectors", "cable"),
    ("SQL", "/sql", "terminal"),
    ("Pipelines", "/pipelines", "account_tree"),
    ("Lineage", "/lineage", "device_hub"),
    ("Transactions", "/transactions", "swap_horiz"),
    ("Placement", "/placement", "dns"),
    ("Users", "/users", "person"),
    ("ACLs", "/acls", "lock"),
    ("Quotas", "/quotas", "speed"),
)
CHECK_SECONDS = 2.0
"""How often an open page checks whether its session is still valid."""
_LOGIN = "/login"
_THEME_COOKIE = "penstock_theme"


@contextmanager
def frame(
    site: Site, request: Request, title: str, command: str, *, section: str, subtitle: str = ""
) -> Iterator[Viewer]:
    """Everything around the content of a page; `section` is the path of its entry in the navigation."""
    viewer = Viewer.of(request, site)
    ui.page_title(f"{title} - Penstock")
    ui.add_css(CSS)
    keyboard()
    ui.colors(primary="#0f766e", secondary="#475569", accent="#7c3aed", dark="#0b1220", dark_page="#0b1220")
    theme = request.cookies.get(_THEME_COOKIE)
    dark = ui.dark_mode({"dark": True, "light": False}.get(theme or ""))
    with (
        ui.left_drawer(value=False)
        .props("show-if-above breakpoint=900 width=200 bordered")
        .classes("p-2") as drawer
    ):
        with ui.element("nav").props('aria-label="Main"').classes("w-full"):
            for name, path, icon in (*NAVIGATION, *site.navigation):
                active = " nav-active" if path == section else ""
                with ui.link(target=path).classes(f"nav-link{active}"):
                    ui.icon(icon, size="20px")
                    ui.label(name)
    with ui.header().classes("items-center q-py-xs q-px-md gap-2 app-header"):
        ui.button(icon="menu", on_click=drawer.toggle).props(
            'flat dense round color=white aria-label="Navigation"'
        )
        ui.link("Penstock", "/").classes("brand")
        ui.label(site.name).classes("cluster-name ellipsis").tooltip("The cluster")
        ui.space()
        if viewer.read_only:
            ui.badge("read-only").props("color=orange-8")
        if viewer.logged_in:
            role = viewer.principal.role
            ui.label(f"{viewer.principal.name} ({role.word if role is not None else 'no role'})").classes(
                "gt-xs"
            )
            with ui.element("form").props('method="post" action="/logout"'):
                ui.button(icon="logout").props(
                    'flat dense round color=white type="submit" aria-label="Log out"'
                )

        def switch() -> None:
            # From "as the system" the first click switches to dark.
            dark.value = not dark.value
            word = "dark" if dark.value else "light"
            ui.run_javascript(
                f"document.cookie = '{_THEME_COOKIE}={word}; path=/; max-age=31536000; samesite=strict'"
            )

        ui.button(icon="contrast", on_click=switch).props(
            'flat dense round color=white aria-label="Light or dark"'
        )
    with ui.column().classes("w-full q-pa-md gap-3 page-content"):
        with ui.element("div").classes("w-full"):
            with ui.element("h1").classes("page-title"):
                ui.label(title).classes("break-all")
            if subtitle:
                ui.label(subtitle).classes("muted")
        yield viewer
        command_line(command)
    if viewer.logged_in:
        ui.timer(CHECK_SECONDS, lambda: _leave_when_over(viewer), immediate=False)


async def _leave_when_over(viewer: Viewer) -> None:
    """An open page whose session has ended goes to the login, and gets no more data."""
    if viewer.lasts():
        return
    client = ui.context.client
    try:
        await client.run_javascript(f"window.location.replace('{_LOGIN}')")
    except TimeoutError:
        pass  # the page ends whatever runs in the browser
    client.delete()


def command_line(command: str) -> None:
    """The command that shows the same data, to copy."""
    with ui.row().classes("command w-full items-center no-wrap gap-2"):
        ui.icon("terminal", size="18px").classes("muted")
        ui.label(command).classes("mono break-all command-text")
        ui.space()
        ui.button(icon="content_copy", on_click=lambda: ui.clipboard.write(command)).props(
            'flat dense round size=sm aria-label="Copy the command"'
        )
