"""Both pages in a browser: filter, metric, film, a point that arrives, hostile names. The console stays quiet.
`scripts/browser.sh` installs Chromium; without one these tests are skipped."""

import json
import shutil
import threading
import time

import pytest

from gaitway.analysis.report.board import Board
from gaitway.analysis.report.folders import runs_inside
from gaitway.analysis.report.page import write_report
from gaitway.analysis.report.server import DashServer

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install -e '.[dev]'")
Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
Select = pytest.importorskip("selenium.webdriver.support.ui").Select
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no Chromium here: scripts/browser.sh installs it")
WAIT_S = 30.0


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1400,900",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def open_page(browser, address):
    browser.get("about:blank")
    for kind in ("browser", "performance"):
        browser.get_log(kind)  # what pages before this one said
    browser.get(address)


def until(browser, expression):
    """The value of a JavaScript expression, as soon as it is true."""
    begun = time.monotonic()
    while not (found := browser.execute_script(f"return {expression}")):
        assert time.monotonic() - begun < WAIT_S, expression
        time.sleep(0.05)
    return found


def check_quiet(browser, address):
    """Nothing on the console, and no address asked but the page's own."""
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert asked
    assert not [url for url in asked if not url.startswith((address, "blob:", "data:", "about:", "chrome:"))]


def click(browser, selector):
    browser.execute_script(f"document.querySelector('{selector}').scrollIntoView({{block: 'center'}})")
    browser.find_element("css selector", selector).click()


def use_page(browser, runs):
    """Filter, switch the metric, look at a table, play the film, by keys and clicks: what works in both pages."""
    until(browser, "document.querySelector('#curves-figure .scatterlayer .trace') !== null")
    browser.execute_script("document.documentElement.style.scrollBehavior = 'auto'")
    rows = "document.querySelectorAll('#runs-body tbody tr').length"
    assert browser.execute_script(f"return {rows}") == runs
    body = browser.find_element("css selector", "body")
    body.send_keys("/")
    browser.switch_to.active_element.send_keys("lr=0.2 seed=1")
    until(browser, f"{rows} === 1")
    assert browser.execute_script("return document.querySelectorAll('#results-body tbody tr').length") == 1
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    until(browser, f"{rows} === {runs}")
    Select(browser.find_element("id", "metric")).select_by_value("time/seconds")
    until(browser, "document.querySelector('#curves-figure .ytitle')?.textContent === 'time/seconds'")
    click(browser, "details[data-table=curves] summary")
    until(browser, "document.querySelectorAll('details[data-table=curves] tbody tr').length === 3")
    browser.execute_script("document.querySelector('video').scrollIntoView({block: 'center'})")
    until(browser, "document.querySelector('video').readyState >= 2")
    click(browser, "video")
    until(browser, "document.querySelector('video').currentTime > 0.2")
    body.send_keys("t")
    until(browser, "document.documentElement.dataset.theme === 'dark'")
    body.send_keys("t")
    assert browser.execute_script("return document.querySelectorAll('#times-figure .annotation').length") == 3
    before = browser.execute_script("return document.querySelector('#times-figure .main-svg').clientHeight")
    browser.set_window_size(700, 900)  # figures keep their height when the window changes
    until(browser, "document.querySelector('#times-figure .main-svg').clientWidth < 700")
    after = browser.execute_script("return document.querySelector('#times-figure .main-svg').clientHeight")
    assert abs(after - before) <= 2 < before
    browser.set_window_size(1400, 900)


@pytest.fixture
def runs(three_groups, film):
    folder = three_groups / "0.2" / "0" / "videos"
    folder.mkdir()
    (folder / "300.mp4").write_bytes(film)
    return three_groups


def test_a_page_in_a_file(browser, runs, tmp_path):
    board = Board("page", runs)
    board.look(list(runs_inside(runs)), inside=False)
    out, _ = write_report(board, tmp_path / "page.html", 10.0, "gaitway report")
    open_page(browser, out.as_uri())
    use_page(browser, 9)
    check_quiet(browser, out.as_uri())


def test_the_live_page_and_a_point_that_arrives(browser, runs):
    with DashServer(runs, None, 0) as server:
        server.board.start()
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        open_page(browser, server.url)
        use_page(browser, 9)
        points = int(browser.execute_script("return document.getElementById('curves-figure').dataset.points"))
        assert points == 27
        with (runs / "0.3/2/metrics.jsonl").open("a") as file:
            file.write('{"step": 400, "eval/return": 14.0, "time/seconds": 4.0}\n')
        begun = time.monotonic()
        until(browser, f"Number(document.getElementById('curves-figure').dataset.points) === {points + 1}")
        arrived = time.monotonic() - begun
        check_quiet(browser, server.url)
        browser.get("about:blank")
        server.shutdown()
        thread.join()
        server.board.close()
    assert arrived < 5.0


EVIL = ['<img src=x onerror="window.hurt=1">', "<a href='javascript:window.hurt=1'>x", "%{y} $x$ <b>'\"", "line\nbreak"]


def test_hostile_names_are_shown_as_they_are(browser, make_run, tmp_path):
    for number, evil in enumerate(EVIL):
        metrics = {f"eval/{evil}": 1.0, f"reward/{evil}": 0.5, f"time/share_{evil}": 0.4}
        folder = make_run(evil.replace("/", "_"), [1.0, 2.0], lr=evil, task="toy/x", metrics=metrics)
        (folder / "media").mkdir()
        (folder / "media" / f"{number}{evil.replace('/', '_')}.txt").write_text(evil)
    board = Board(EVIL[0], tmp_path / "runs", "eval/" + EVIL[0])
    board.look(list(runs_inside(tmp_path / "runs")), inside=False)
    out, _ = write_report(board, tmp_path / "page.html", 10.0, EVIL[0])
    open_page(browser, out.as_uri())
    until(browser, "document.querySelector('#rewards-figure .barlayer .trace') !== null")
    browser.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    until(browser, "document.querySelectorAll('details[data-table] tbody tr').length === 4")
    assert browser.execute_script("return window.hurt") is None
    assert browser.title == EVIL[0]
    assert (
        browser.execute_script("return document.querySelectorAll('main img, main a[href^=javascript], svg a').length")
        == 0
    )
    shown = browser.execute_script("return document.getElementById('results-body').textContent")
    assert all(evil.replace("\n", "") in shown.replace("\n", "") for evil in EVIL)
    drawn = browser.execute_script("return document.querySelector('#curves-figure .ytitle').textContent")
    assert drawn == "eval/" + EVIL[0]
    check_quiet(browser, out.as_uri())
