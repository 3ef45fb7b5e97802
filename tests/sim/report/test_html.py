"""The HTML page: complete in itself, small, and in a browser as a person would open it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from sim.report import html
from sim.report.document import Document, Section, Table
from sim.report.write import write
from sim.study.collect import collect
from sim.study.execute import Local, execute, work_of
from sim.study.plan import load_plan
from sim.study.store import Store

STUDY = """
title = "A page & more"
question = "Is <this> escaped?"
scenario = "toy_dF"
reference = "as declared"
sections = ["differences", "cycle", "idle", "timelines", "cells"]

[set]
"run.replications" = 2

[[factors]]
name = "concurrency"
keys = ["workload.concurrency", "workload.requests"]
values = [1, 2, 4]

[[variants]]
name = "as declared"

[[variants]]
name = "exact"
set = { host_lengths = "exact" }

[timeline]
at = { concurrency = 2 }
first = 1
"""
LIMIT = 3_000_000


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    (folder / "page.toml").write_text(STUDY)
    plan = load_plan(str(folder / "page.toml"))
    with Store(folder / "results.sqlite") as store:
        execute(work_of(plan), store, Local(1))
        data = collect(plan, store, "overlapsim study page")
    write(data, folder)
    # Away from its figures: a page that needs them would show holes.
    alone = tmp_path_factory.mktemp("alone") / "report.html"
    shutil.copy(folder / "report.html", alone)
    return alone


def test_the_page_asks_for_nothing_outside_itself(page: Path) -> None:
    text = page.read_text()
    outside = [
        link for link in re.findall(r'(?:src|href)="([^"]*)"', text) if not link.startswith(("#", "data:"))
    ]
    assert not outside
    assert "<script" not in text
    assert "@import" not in text
    assert "url(" not in text.split("</style>")[0]


def test_every_link_of_the_page_has_its_target(page: Path) -> None:
    text = page.read_text()
    targets = set(re.findall(r'id="([^"]+)"', text))
    links = re.findall(r'href="#([^"]+)"', text)
    assert links
    assert set(links) <= targets


def test_text_is_escaped_and_marked_up() -> None:
    document = Document("a < b", "`x < y` and **strong** of *both* 2 * 3 * 4", [], [Section("S", [])], [])
    text = html.render(document, Path())
    assert "<title>a &lt; b</title>" in text
    assert "<code>x &lt; y</code> and <strong>strong</strong> of <em>both</em> 2 * 3 * 4" in text


def test_numbers_are_set_to_the_right() -> None:
    table = Table(["name", "value"], [["a", "1,234.5"], ["b", "−0.3 %"], ["c", "1 … 2"]])
    text = html.render(Document("t", "q", [], [Section("S", [table])], []), Path())
    assert text.count('class="number"') == 2


@pytest.mark.browser
class TestInABrowser:
    """Headless Chromium; its driver and `selenium` come with the environment `browser`."""

    @pytest.fixture(params=[(1280, 900), (390, 800)], ids=["desk", "phone"])
    def browser(self, request: pytest.FixtureRequest) -> Any:
        webdriver = pytest.importorskip("selenium.webdriver")
        chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
        if chromium is None or driver is None:
            pytest.skip("needs `chromium` and `chromedriver` on the PATH")
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        width, height = request.param
        # A window can be no narrower than 500 pixels: a phone's screen is set as its tools do.
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        started.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        yield started
        started.quit()

    def test_it_opens_without_complaint_and_shows_every_figure(self, browser: Any, page: Path) -> None:
        browser.get(page.as_uri())
        assert browser.title == "A page & more"
        assert browser.get_log("browser") == []
        sizes = browser.execute_script("return [...document.images].map(i => [i.complete, i.naturalWidth])")
        assert len(sizes) == 5
        assert all(complete and width > 0 for complete, width in sizes)

    def test_nothing_is_wider_than_the_screen(self, browser: Any, page: Path) -> None:
        browser.get(page.as_uri())
        wide, screen = browser.execute_script(
            "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wide <= screen

    def test_links_lead_to_their_sections(self, browser: Any, page: Path) -> None:
        browser.get(page.as_uri())
        for link in browser.find_elements("css selector", "nav a"):
            target = link.get_attribute("href").split("#")[1]
            browser.execute_script("arguments[0].click()", link)
            assert browser.current_url.endswith(f"#{target}")
            top = browser.execute_script(
                f"return document.getElementById('{target}').getBoundingClientRect().top"
            )
            bottom = browser.execute_script(
                "return window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 2"
            )
            assert abs(top) < 5 or bottom

    def test_dark_and_light_differ_and_both_have_contrast(self, browser: Any, page: Path) -> None:
        browser.get(page.as_uri())
        seen = []
        for scheme in ("light", "dark"):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            colours = browser.execute_script(
                "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
            )
            seen.append([sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in colours])
        (light_ink, light_paper), (dark_ink, dark_paper) = seen
        assert light_paper - light_ink > 400
        assert dark_ink - dark_paper > 400

    def test_it_prints(self, browser: Any, page: Path) -> None:
        import base64

        browser.get(page.as_uri())
        pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"])
        assert pdf.startswith(b"%PDF")
        assert 1 <= pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") <= 12


def test_shipped_pages_stay_below_their_limit() -> None:
    reports = Path(__file__).parents[3] / "reports"
    pages = sorted(reports.glob("*/report.html"))
    assert all(page.stat().st_size < LIMIT for page in pages), [p for p in pages if p.stat().st_size >= LIMIT]
