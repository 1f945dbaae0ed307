"""The page in a real browser: Chromium as the system provides it, driven by Playwright.

Without Chromium or Playwright these tests are skipped, visibly.
"""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from evergraph import ContinualNodeClassifier
from evergraph.lab.cli.reports import state_data
from evergraph.lab.field import field_data, rows_of_runs
from evergraph.lab.page import write_page
from evergraph.lab.page.data import page_data
from evergraph.lab.summary import collect_results, compare_pairs
from made_runs import CLASSES, make_grid, make_run, planted_probability, planted_samples

METHODS = (
    *("dslr", "dslr:structure=none@no-structure", "dslr:buffer_size=50@dslr-50"),
    *("replay:selector=mf@replay-mf", "joint"),
)
HOSTILE = '</script><img src="http://evil.invalid/x" onerror="alert(1)">'
OpenPage = Callable[..., Any]


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five variants, six seeds, on Cora; two variants on Citeseer."""
    folder = tmp_path_factory.mktemp("grid")
    told = {"diagnostics": planted_samples(), "probability": planted_probability()}
    make_grid(folder, METHODS, 6, **told)
    make_grid(folder, METHODS[:2], 2, dataset="citeseer")
    (folder / "comparisons.json").write_text('[{"reference": "dslr"}]')
    write_page(page_data(folder), folder / "report.html")
    return folder


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """Opens a file and fails the test on any console message, error, dialog or request."""
    contexts, complaints, requests = [], [], []

    def call(path: Path, **options: Any) -> Any:
        options = {"viewport": {"width": 1200, "height": 900}, **options}
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append("dialog"), dialog.dismiss()))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        return page

    yield call
    for context in contexts:
        context.close()
    assert complaints == []
    # What is saved comes from the page itself: its data and blobs lead nowhere.
    away = [url for url in requests if not url.startswith(("data:image/svg+xml", "blob:file"))]
    assert all(url.startswith("file://") and url.endswith(".html") for url in away)


def wait_until(page: Any, condition: str) -> None:
    """Asks until a condition holds; the page's policy forbids that the page itself is made to."""
    deadline = time.monotonic() + 30
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(20)


def draw_all(page: Any) -> None:
    """Scrolls every section into view, so that all are drawn, and waits for their charts."""
    for number in range(page.locator("main > section").count()):
        page.locator("main > section").nth(number).scroll_into_view_if_needed()
    wait_until(page, "!document.querySelector('section.waiting')")
    wait_until(page, "[...document.querySelectorAll('.chart')].every((c) => c.firstChild)")


def column(page: Any, number: int) -> list[str]:
    return page.locator(f"#summary tbody tr > :nth-child({number})").all_inner_texts()


def colours(page: Any) -> tuple[str, str]:
    style = "(e) => [getComputedStyle(e).backgroundColor, getComputedStyle(e).color]"
    return tuple(page.locator("body").evaluate(style))


def test_page_shows_every_section(open_page: OpenPage, grid: Path):
    page = open_page(grid / "report.html")
    draw_all(page)
    assert page.title() == f"{grid.name} · Evergraph"
    sections = page.locator("main > section")
    assert sections.count() == 12
    assert page.locator("section.quiet").count() == 0  # there is data for all of them
    assert page.locator("#matrices table.heatmap").count() == 5
    assert page.locator("#matrices td.heat").first.inner_text() == "95.0"
    assert page.locator("#probabilities .chart").count() == 5
    assert page.locator("#probabilities circle.dot").count() == 2 * 5
    assert page.locator("#probabilities table.heatmap").count() == 5
    assert page.locator("#sizes .series").count() == 2
    assert page.locator("#embedding circle.kept").count() == 4
    assert page.locator("#edges line.added").count() == 2
    assert page.locator("#edges line.removed").count() == 1
    assert page.locator("#ablation rect").count() == 5
    assert "buffer_size" in page.locator("#settings").inner_text()
    assert "abacus" in page.locator("#settings").inner_text()


def test_sections_without_data_say_why(open_page: OpenPage, tmp_path: Path):
    make_run(tmp_path / "run", "joint")
    write_page(page_data(tmp_path), tmp_path / "page.html")
    page = open_page(tmp_path / "page.html")
    draw_all(page)
    quiet = page.locator("section.quiet")
    assert quiet.count() == 7  # results of before they told of probabilities among them
    assert all(text.strip().endswith(".") for text in quiet.all_inner_texts())
    assert page.locator("#matrices td.heat").count() == 3


def test_columns_sort_by_click_and_by_key(open_page: OpenPage, grid: Path):
    page = open_page(grid / "report.html")
    head = page.locator("#summary thead th")
    assert column(page, 1)[0] == "dslr"  # best PM first
    assert head.nth(2).get_attribute("aria-sort") == "descending"
    head.nth(2).locator("button").click()
    assert head.nth(2).get_attribute("aria-sort") == "ascending"
    assert column(page, 1) == ["joint", "replay-mf", "dslr-50", "no-structure", "dslr"]
    head.nth(0).locator("button").focus()
    page.keyboard.press("Enter")
    assert head.nth(0).get_attribute("aria-sort") == "ascending"
    assert head.nth(2).get_attribute("aria-sort") == "none"
    assert column(page, 1) == ["dslr", "dslr-50", "joint", "no-structure", "replay-mf"]
    by_paper = page.get_by_role("button", name="paper PM")
    for _ in range(2):  # what the paper does not print stays last, whichever way
        by_paper.click()
        assert column(page, 6)[-1] == "–"


def test_summary_stands_beside_the_paper(open_page: OpenPage, grid: Path):
    page = open_page(grid / "report.html")
    group = page_data(grid)["datasets"][0]["groups"][0]
    assert group["name"] == "dslr"
    row = page.locator("#summary tbody tr", has=page.get_by_text("dslr", exact=True))
    mean, std = group["estimates"]["pm"]["mean"], group["estimates"]["pm"]["std"]
    assert f"{mean:.2f} ± {std:.2f}" in row.inner_text()
    assert "81.59 ± 1.65" in row.inner_text()
    assert f"{mean - 81.59:+.2f}" in row.inner_text()
    page.get_by_role("radio", name="95 % interval").check()
    low, high = group["estimates"]["pm"]["low"], group["estimates"]["pm"]["high"]
    assert f"[{low:.2f}, {high:.2f}]" in row.inner_text()
    page.get_by_role("radio", name="all datasets").check()
    assert page.locator("#summary tbody tr").count() == 7


def test_differences_agree_with_the_library(open_page: OpenPage, grid: Path):
    page = open_page(grid / "report.html")
    page.locator("#differences").scroll_into_view_if_needed()
    page.locator("#differences .value").first.wait_for()
    results = [run for run in collect_results(grid) if run["dataset"] == "cora"]
    for reference in ("dslr", "replay-mf"):
        page.locator("#differences select").select_option(reference)
        page.locator("#differences .value").first.wait_for()
        labels = page.locator("#differences .label").all_text_contents()
        values = page.locator("#differences .value").all_text_contents()
        shown = dict(zip(labels, values, strict=True))
        for entry in compare_pairs(results, reference):
            found = re.findall(r"[+−]?[\d.]+", shown[entry["other"]])
            numbers = [float(word.replace("−", "-")) for word in found]
            expected = [entry["difference"], entry["low"], entry["high"]]
            assert numbers == pytest.approx(expected, abs=0.0051)  # shown with two decimals


def test_least_forgetting_is_not_praised_where_nothing_was_learnt(
    open_page: OpenPage, tmp_path: Path
):
    make_grid(tmp_path, METHODS[:2], 2)
    for seed in range(2):
        make_run(tmp_path / f"slack-{seed}", "ewc", seed, matrix=[[40.0], [60.0, 20.0]])
    write_page(page_data(tmp_path), tmp_path / "report.html")
    page = open_page(tmp_path / "report.html")
    tile = page.locator(".tile", has_text="Least forgetting")
    assert tile.locator("small").inner_text() == "dslr"  # EWC gains 20 points, having 40


def test_no_column_is_cut_off_in_print(open_page: OpenPage, grid: Path):
    page = open_page(grid / "report.html", viewport={"width": 703, "height": 1000})  # A4
    draw_all(page)
    page.emulate_media(media="print")
    widths = "[...document.querySelectorAll('.scroll')].map((e) => [e.scrollWidth, e.clientWidth])"
    assert all(whole <= shown for whole, shown in page.evaluate(widths))


def test_menu_and_headings_are_alike(open_page: OpenPage, grid: Path):
    page = open_page(grid / "report.html")
    assert page.locator("#nav a").all_inner_texts() == page.locator("main h2").all_inner_texts()


def test_runs_that_are_not_shown_are_named(open_page: OpenPage, tmp_path: Path):
    for name in ("first", "again"):
        make_run(tmp_path / name)
    make_run(tmp_path / "halted", seed=1)
    (tmp_path / "halted" / "results.json").unlink()
    write_page(page_data(tmp_path), tmp_path / "page.html")
    page = open_page(tmp_path / "page.html")
    for words, name in (("1 run not finished", "halted"), ("1 run left out", "first")):
        told = page.locator("#overview details", has_text=words)
        told.locator("summary").click()
        assert told.locator("li").all_inner_texts() == [name]


def test_every_table_and_figure_can_be_saved(open_page: OpenPage, grid: Path, tmp_path: Path):
    page = open_page(grid / "report.html", accept_downloads=True)
    draw_all(page)
    saved: dict[str, list[str]] = {}
    for number in range(page.locator("main > section").count()):
        host = page.locator("main > section").nth(number)
        name = host.get_attribute("id")
        kinds = host.locator(".save button").all_inner_texts()
        saved[name] = kinds
        assert ("CSV" in kinds) == (host.locator("table").count() > 0)
        assert ("SVG" in kinds) == ("PNG" in kinds) == (host.locator(".chart").count() > 0)
    assert saved["summary"][0] == "CSV"
    assert sum("SVG" in kinds for kinds in saved.values()) >= 6
    files = {}
    for name, kind in (("summary", "CSV"), ("time", "SVG"), ("time", "PNG"), ("matrices", "CSV")):
        with page.expect_download() as waiting:
            page.locator(f"#{name} .save").get_by_text(kind, exact=True).click()
        download = waiting.value
        assert download.suggested_filename == f"{grid.name}-cora-{name}.{kind.lower()}"
        download.save_as(tmp_path / f"{name}.{kind}")
        files[name, kind] = (tmp_path / f"{name}.{kind}").read_bytes()
    rows = list(csv.reader(files["summary", "CSV"].decode().splitlines()))
    assert rows[1][0] == "dslr"
    assert len({len(row) for row in rows}) == 1
    assert "95.0" in files["matrices", "CSV"].decode()
    drawing = ElementTree.fromstring(files["time", "SVG"])
    assert "var(" not in files["time", "SVG"].decode()  # nothing is left of the page's style
    lines = [e.get("stroke") for e in drawing.iter("{http://www.w3.org/2000/svg}path")]
    assert len(set(lines)) > 3
    words = "".join(drawing.itertext())
    assert all(name in words for name in ("dslr-50", "replay-mf", "after task"))  # with its legend
    assert files["time", "PNG"].startswith(b"\x89PNG")
    assert len(files["time", "PNG"]) > 10_000


def test_toggles_change_what_is_shown(open_page: OpenPage, grid: Path):
    page = open_page(grid / "report.html")
    draw_all(page)
    page.get_by_role("radio", name="classes", exact=True).check()
    assert page.locator("#matrices .heatmap").first.locator("td.heat").count() == 6
    page.locator("#matrices select").select_option("3")
    assert page.locator("#matrices td.heat").first.inner_text() == "95.0"
    lines = page.locator("#time path.series")
    before = lines.count()
    page.locator("#time .legend button", has_text="joint").click()
    wait_until(page, f"document.querySelectorAll('#time path.series').length < {before}")
    page.locator("#ablation").get_by_role("radio", name="zoomed").check()
    page.locator("#ablation circle.dot").first.wait_for(state="attached")
    assert page.locator("#ablation rect").count() == 0
    page.locator("#edges").get_by_role("radio", name="after").check()
    wait_until(page, "!document.querySelector('#edges line.removed')")
    page.get_by_role("radio", name="citeseer").check()
    wait_until(page, "document.querySelectorAll('#summary tbody tr').length === 2")


def test_probabilities_of_one_run(open_page: OpenPage, grid: Path):
    page = open_page(grid / "report.html")
    draw_all(page)
    figure = page.locator("#probabilities figure").first
    assert "ECE 0.075, calibrated on validation nodes" in figure.inner_text()
    page.locator("#probabilities select").select_option("3")
    wait_until(page, "document.querySelector('#probabilities svg') !== null")
    chart = page.locator("#probabilities .chart").first
    chart.focus()
    page.keyboard.press("ArrowRight")
    assert "20 nodes" in page.locator("#tip").inner_text()
    assert figure.locator("tbody tr").last.locator("td").all_inner_texts() == ["100", "0", "0", "0"]


def test_embedding_keeps_planted_clusters_together(open_page: OpenPage, grid: Path):
    page = open_page(grid / "report.html")
    draw_all(page)
    read = """[...document.querySelectorAll('#embedding circle:not(.ring)')].map(
        (c) => [+c.getAttribute('cx'), +c.getAttribute('cy'), c.style.fill])"""
    for how in ("t-SNE", "PCA", "t-SNE"):
        page.get_by_role("radio", name=how).check()
        wait_until(page, "document.querySelectorAll('#embedding circle').length >= 80")
        points = page.evaluate(read)
        assert len({point[2] for point in points}) == len(CLASSES)
        if how == "PCA":  # two components cannot hold four clusters apart
            continue
        for x, y, fill in points:
            others = sorted(((x - a) ** 2 + (y - b) ** 2, c) for a, b, c in points)
            assert [other[1] for other in others[1:6]] == [fill] * 5


def test_pointing_shows_values(open_page: OpenPage, grid: Path):
    page = open_page(grid / "report.html")
    draw_all(page)
    tip = page.locator("#tip")
    assert tip.is_hidden()
    for where, words in [
        ("#embedding circle.kept", r"node 10[0-3]\nalpha\n.*\nin the buffer"),
        ("#time circle.dot", r"after task [12]: .*\n95 % interval"),
        ("#ablation rect", r"as the reference\nPM .*, n = 6"),
        ("#matrices td.heat", r"after task 1, on alpha \+ beta"),
        ("#probabilities circle.dot", r"30.0 % sure\n40.0 % right\n120 nodes"),
        ("#probabilities td.heat", r"alpha, given its class\n100.0 %: 60 of 60 nodes"),
        ("#edges circle.ego", r"node \d+\n.*class\nedge (kept|added|removed)"),
        ("#stages rect", r"training: 3.0 s\n75 % of 4.0 s"),
    ]:
        mark = page.locator(where).last if "ego" in where else page.locator(where).first
        mark.scroll_into_view_if_needed()
        page.mouse.move(2, 2)
        box = mark.bounding_box()
        at_end = where == "#ablation rect"  # the mark of a bar is at its end
        x = box["x"] + box["width"] * (1 if at_end else 0.5)
        page.mouse.move(x, box["y"] + box["height"] / 2)
        tip.wait_for(state="visible")
        assert re.search(words, tip.inner_text()), (where, tip.inner_text())


def test_theme_follows_the_system_and_the_reader(open_page: OpenPage, grid: Path):
    light = open_page(grid / "report.html", color_scheme="light")
    dark = open_page(grid / "report.html", color_scheme="dark")
    bright, dim = colours(light), colours(dark)
    assert bright[0] != dim[0]
    light.get_by_role("radio", name="Dark").check()
    assert colours(light) == dim
    light.reload()
    assert colours(light) == dim  # remembered
    light.get_by_role("radio", name="Auto").check()
    assert colours(light) == bright
    dark.get_by_role("radio", name="Light").check()
    assert colours(dark) == bright


def test_keyboard_reaches_everything(open_page: OpenPage, grid: Path):
    page = open_page(grid / "report.html")
    draw_all(page)
    page.evaluate("scrollTo(0, 0)")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached: set[str] = set()
    for _ in range(350):
        page.keyboard.press("Tab")
        # The class of what has the focus, or the name of its element, and its section.
        where = page.evaluate(
            "(() => { const e = document.activeElement; return [e.closest('section')?.id || "
            "'top', e.classList[0] || e.tagName.toLowerCase()].join(' '); })()"
        )
        if where == "top body":
            break
        reached.add(where)
    expected = {
        *("top input", "top a", "summary button", "summary scroll", "differences select"),
        *("differences chart", "matrices heat", "time chart", "time button", "sizes chart"),
        *("ablation input", "ablation chart", "embedding chart", "embedding button"),
        *("probabilities select", "probabilities chart", "probabilities heat"),
        *("edges chart", "buffer button", "stages chart", "stages summary", "settings summary"),
    }
    assert expected <= reached
    chart = page.locator("#ablation .chart")
    chart.focus()
    seen = []
    for _ in range(5):
        page.keyboard.press("ArrowRight")
        seen.append(page.locator("#tip strong").inner_text())
    assert seen == ["dslr", "dslr-50", "joint", "no-structure", "replay-mf"]
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()
    page.locator("#matrices td.heat").first.focus()
    page.keyboard.press("ArrowDown")
    assert "after task 2" in page.locator("#tip").inner_text()


@pytest.mark.parametrize("width", [320, 390, 768])
def test_page_fits_narrow_windows(open_page: OpenPage, grid: Path, width: int):
    page = open_page(grid / "report.html", viewport={"width": width, "height": 800})
    draw_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for chart in page.locator(".chart svg").all():
        assert chart.bounding_box()["width"] <= width
    assert page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") >= 14


def test_charts_follow_the_width_of_the_window(open_page: OpenPage, grid: Path):
    page = open_page(grid / "report.html")
    draw_all(page)
    wide = page.locator("#ablation svg").bounding_box()["width"]
    page.set_viewport_size({"width": 500, "height": 800})
    wait_until(
        page,
        f"document.querySelector('#ablation svg').getBoundingClientRect().width < {wide} - 400",
    )


def test_hostile_names_are_shown_and_not_run(open_page: OpenPage, tmp_path: Path):
    names = [HOSTILE, "b", "c", "d"]
    for seed in range(2):
        for label in (HOSTILE, "other"):
            make_run(
                tmp_path / f"{seed}{len(label)}",
                f"dslr:r=0.{len(label)}",
                seed,
                label=label,
                class_names=names,
                diagnostics=planted_samples(),
            )
    data = page_data(tmp_path)
    data["title"] = HOSTILE
    write_page(data, tmp_path / "page.html")
    page = open_page(tmp_path / "page.html")
    draw_all(page)
    assert page.locator("h1").inner_text() == HOSTILE
    assert HOSTILE in column(page, 1)
    assert page.locator("img").count() == 0


def test_page_of_300_runs_opens_within_two_seconds(open_page: OpenPage, tmp_path: Path):
    methods = tuple(f"dslr:r=0.{number:02}@variant-{number}" for number in range(1, 11))
    for dataset in ("cora", "citeseer", "amazon-computers"):
        make_grid(tmp_path, methods, 10, dataset=dataset, diagnostics=planted_samples())
    data = page_data(tmp_path)
    assert data["num_runs"] == 300
    write_page(data, tmp_path / "page.html")
    page = open_page(tmp_path / "page.html")
    times = []
    for _ in range(3):  # the best of three: this machine may be busy
        page.reload()
        page.locator("#summary tbody tr").first.wait_for()
        ready = "performance.getEntriesByType('navigation')[0].loadEventEnd"
        wait_until(page, f"{ready} > 0")
        times.append(page.evaluate(ready))
    assert min(times) < 2000


@pytest.fixture(scope="module")
def state_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a state with a buffer, whose last change brought nodes of another kind."""
    rng, names = np.random.default_rng(0), [HOSTILE, "b", "c"]
    path = tmp_path_factory.mktemp("state") / "report.html"
    given = {"settings": {"epochs": 20, "channels": 8}, "validation_fraction": 0.1}
    clf = ContinualNodeClassifier("replay", buffer_size=30, device="cpu", **given)
    for start in (0, 200, 400):
        rows, label = np.arange(start, start + 200), rng.integers(0, 3, 200)
        x = np.eye(3)[label] + 0.3 * rng.normal(size=(200, 3)) + (start == 400)
        edges = np.stack([rows, rng.integers(0, start + 200, 200)], axis=1)
        clf.learn(rows, x, edges, [names[one] for one in label])
    write_page(state_data(clf._now(), 0, "mine", torch.device("cpu")), path, "state")
    return path


@pytest.mark.parametrize("look", ["light", "dark"])
def test_page_of_a_state_shows_every_section(open_page: OpenPage, state_page: Path, look: Any):
    page = open_page(state_page, color_scheme=look)
    draw_all(page)
    titles = page.locator("main h2").all_inner_texts()
    assert titles == page.locator("#nav a").all_inner_texts()
    assert titles[:4] == ["Summary", "Over time", "Classes", "Probabilities"]
    assert titles[4:] == ["Drift", "Why", "Buffer", "Changes"]
    assert page.locator("section.quiet").count() == 0
    assert page.locator("img").count() == 0
    assert page.locator("#classes tbody th").first.inner_text() == HOSTILE
    assert page.locator("#time circle.dot").count() == 3
    page.locator("#time select").select_option("1")
    wait_until(page, "document.querySelectorAll('#time svg circle.dot').length === 3")
    assert page.locator("#probabilities table.heatmap tbody tr").count() == 3
    assert "New nodes differ in column '1'" in page.locator("#summary li").first.inner_text()
    alarmed = page.locator("#drift tbody tr", has_text="alarm")
    assert alarmed.count() == 3  # every column has moved
    assert "New nodes differ" in page.locator("#changes tbody tr").first.inner_text()
    assert "30" in page.locator("#buffer").inner_text()
    assert ", not " in page.locator("#why p.note").inner_text()
    assert page.locator("#why circle.dot").count() > 4
    page.locator("#why select").select_option(index=1)
    wait_until(page, "document.querySelectorAll('#why svg').length === 2")
    assert (sum(map(int, colours(page)[0][4:-1].split(","))) > 384) == (look == "light")
    ways = "[...document.querySelectorAll('#drift path.series')].map((e) => e.getAttribute('d'))"
    drawn, button = page.evaluate(ways), page.locator("#drift .legend button", has_text="features")
    button.click()
    wait_until(page, f"{ways}.length === {len(drawn) - 1}")
    button.click()
    wait_until(page, f"{ways}.length === {len(drawn)}")
    assert page.evaluate(ways) == drawn


@pytest.mark.parametrize("width", [320, 390])
def test_page_of_a_state_fits_phones(open_page: OpenPage, state_page: Path, width: int):
    page = open_page(state_page, viewport={"width": width, "height": 800})
    draw_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_page_of_a_state_prints_whole(open_page: OpenPage, state_page: Path):
    page = open_page(state_page, viewport={"width": 703, "height": 1000})  # A4
    draw_all(page)
    page.emulate_media(media="print")
    widths = "[...document.querySelectorAll('.scroll')].map((e) => [e.scrollWidth, e.clientWidth])"
    assert all(whole <= wide for whole, wide in page.evaluate(widths))
    assert page.locator("#nav").is_hidden()


def test_field_sorts_and_filters(browser: Any, tmp_path: Path):
    for method in ("dslr", "joint", "dslr:stream=blurry:0.3"):
        for seed in range(3):
            matrix = [[90.0], [70.0 + len(method), 80.0]]
            make_run(tmp_path / "runs" / method / str(seed), method, seed, matrix=matrix)
    rows = field_data(rows_of_runs(tmp_path / "runs"))
    write_page(rows, tmp_path / "field.html", "field")
    page, errors = browser.new_page(), list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((tmp_path / "field.html").as_uri())

    def names() -> list[str]:
        cells = page.locator("tbody tr td:nth-child(3)").all_inner_texts()
        return [cell.strip() for cell in cells]

    assert names() == ["dslr", "joint", "dslr"]  # by PM
    page.get_by_role("button", name="method").click()
    assert names() == ["dslr", "dslr", "joint"]
    page.get_by_label("Stream").select_option("class")
    assert names() == ["dslr", "joint"]  # sorted as before
    page.get_by_label("Method").fill("joi")
    assert names() == ["joint"]
    assert errors == []
    page.close()
