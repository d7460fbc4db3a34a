"""The pages of a console in this process, of a cluster that does not respond: NiceGUI has one application."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from penstock.console.main import _application
from penstock.console.settings import Settings
from penstock.console.site import Site


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    site = Site.of(Settings({"bootstrap.servers": "127.0.0.1:1"}, timeout=1.0), None)
    yield site
    site.sampler.close()


@pytest.fixture(scope="session")
def pages(site: Site) -> Iterator[TestClient]:
    with TestClient(_application(site)) as client:
        yield client
