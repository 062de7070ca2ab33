"""The report in a real browser: needs playwright (`pip install '.[browser]'`) and Chromium."""

import shutil
from pathlib import Path

import pytest

import pdno
from pdno.cli import main
from tests.helpers import SMALL

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[browser]'")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    pdno.generate(pdno.equation.Darcy(points=16), train=60, test=6, noise="gaussian:0.001", out=folder / "<b>d.zarr")
    for command in (
        ["train", str(folder / "<b>d.zarr"), "--out", str(folder / "run"), *SMALL.split()],
        ["evaluate", str(folder / "run"), "--members", "20"],
        ["report", str(folder / "run")],
    ):
        with pytest.raises(SystemExit):
            main(command)
    return folder / "run" / "report.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_it_opens_from_disk_without_errors_or_requests(report, scheme, width) -> None:
    messages, requests = [], []
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(report.as_uri())
        assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")  # nothing sticks out
        assert page.evaluate("document.images.length") == 14
        shown = page.evaluate("[...document.images].map(image => image.currentSrc)")
        light = page.evaluate("[...document.images].map(image => image.src)")
        assert (shown == light) == (scheme == "light")
        browser.close()
    assert messages == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
