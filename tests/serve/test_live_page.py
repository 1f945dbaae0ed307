"""The page of a server, in a real browser: it is live, and teaches as any client does.

Without Chromium or Playwright these tests are skipped, visibly.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

from evergraph import ContinualNodeClassifier
from evergraph.lab.page import live_page
from evergraph.serve.app import Options
from evergraph.serve.guard import Tokens
from served import Ask, serving

HOSTILE = "<img src=x onerror=alert(1)>"
ASK, TEACH = "a" * 20, "t" * 20


def batch(name: str, centres: list[int], count: int, labelled: float, seed: int) -> dict[str, Any]:
    """Returns nodes around centres, which are their classes, with edges among neighbours."""
    rng = np.random.default_rng(seed)
    kind = np.resize(centres, count)
    x = rng.normal(size=(count, 6))
    x[np.arange(count), kind] += 6
    ids = [f"{name}{at}" for at in range(count)]
    step = len(centres)
    edges = [(ids[at], ids[at + step]) for at in range(count - step)]
    named = [f"class {k}" if rng.random() < labelled else None for k in kind]
    return {"ids": ids, "x": x, "edges": edges, "labels": named}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three known classes, and then nodes of a fourth one that nobody has labelled."""
    place = tmp_path_factory.mktemp("shown") / "<b>state"
    clf = ContinualNodeClassifier("analytic", device="cpu", validation_fraction=0.3)
    first = batch("n", [0, 1, 2], 240, 0.8, 0)
    first["ids"][0] = HOSTILE
    first["edges"][0] = (HOSTILE, first["ids"][3])
    clf.learn(**first).save(place.parent / "calm")
    clf.learn(**batch("late", [3], 60, 0, 1))
    clf.save(place)
    return place


@pytest.fixture
def calm(begun: Path) -> Iterator[Ask]:
    """A server that knows of nothing amiss."""
    with serving(Options(begun.parent / "calm", device="cpu", page=live_page("calm"))) as found:
        yield found


@pytest.fixture
def server(begun: Path, tmp_path: Path) -> Iterator[Ask]:
    shutil.copytree(begun, tmp_path / "state")
    page = live_page(begun.name)
    with serving(Options(tmp_path / "state", device="cpu", page=page)) as found:
        yield found


@pytest.fixture(scope="module")
def shown(begun: Path) -> Iterator[Ask]:
    """A server that does not learn."""
    with serving(Options(begun, read_only=True, page=live_page("shown"))) as found:
        yield found


OpenPage = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """Opens the page and fails the test on anything in the console and any request elsewhere."""
    contexts, complaints, requests, homes = [], [], [], []

    def call(port: int, **options: Any) -> Any:
        homes.append(f"http://127.0.0.1:{port}/")
        options = {"viewport": {"width": 1200, "height": 900}, **options}
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append("dialog"), dialog.dismiss()))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(homes[-1])
        return page

    call.complaints = complaints  # type: ignore[attr-defined]
    yield call
    for context in contexts:
        context.close()
    assert complaints == []
    own = (*homes, "data:image/svg+xml")
    assert [url for url in requests if not url.startswith(own)] == []


def until(page: Any, condition: str) -> None:
    """Asks until a condition holds; the page's policy forbids that the page itself is made to."""
    end = time.monotonic() + 60
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(50)


def test_page_finds_explains_warns_and_teaches(server: Ask, open_page: OpenPage):
    page = open_page(server.port)
    page.get_by_text("version 0 · live").wait_for()
    assert page.title() == "<b>state · Evergraph"
    tiles = page.locator("#summary .tile")
    assert tiles.nth(1).locator("b").inner_text() == "300"
    assert tiles.nth(2).locator("b").inner_text() == "3"
    page.locator("#time .chart svg").nth(1).wait_for()

    page.get_by_label("Name").fill(HOSTILE)
    page.keyboard.press("Enter")
    page.locator("#found .tile").first.wait_for()
    assert page.locator("#found .tile b").first.inner_text() == "class 0"
    page.locator("#found circle.ego").first.wait_for()
    page.locator("#found .link").first.click()  # a neighbour that decided
    until(page, "document.querySelector('#node input').value.startsWith('n')")
    page.locator("#found .chart").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#tip").is_visible()

    group = page.locator("form.group").filter(has_text="late")
    group.first.wait_for()  # nobody had labelled them
    page.locator("#alarms .alarm").filter(has_text="fit no known class").wait_for()
    assert "late" in group.first.locator("li").first.inner_text()
    group.first.get_by_label("Class").fill("class 3")
    page.keyboard.press("Enter")
    page.get_by_text("Change 1: done, version 1").wait_for()
    page.get_by_text("version 1 · live").wait_for()
    page.locator("#queue .badge.done").wait_for()
    until(page, "document.querySelectorAll('#summary b')[2].textContent === '4'")
    assert server("GET", "/nodes/late30").body["label"] == "class 3"
    assert server("GET", "/changes/1").body["status"] == "done"


def test_alarm_appears_while_the_page_is_open(calm: Ask, open_page: OpenPage):
    page = open_page(calm.port)
    page.get_by_text("Nothing deserves attention.").wait_for()
    other = batch("odd", [0, 1, 2], 90, 0, 3)
    body = {"ids": other["ids"], "x": (other["x"] + 9).tolist(), "edges": other["edges"]}
    assert calm("POST", "/changes", body).status == 202
    page.locator("#alarms .alarm").filter(has_text="New nodes differ in column").wait_for()
    told = calm("GET", "/metrics").body.splitlines()
    values = dict(line.split(" ") for line in told if line[:1] != "#" and "evergraph_" in line)
    assert float(values['evergraph_alarms{kind="features"}']) > 0
    assert float(values["evergraph_changes_with_alarms"]) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_fits_a_phone(shown: Ask, open_page: OpenPage, scheme: str):
    phone = {"viewport": {"width": 360, "height": 740}, "color_scheme": scheme}
    page = open_page(shown.port, **phone)
    page.get_by_label("Name").fill("n5")
    page.get_by_role("button", name="Look up").click()
    page.locator("#found circle.ego").first.wait_for()
    page.locator("form.group").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (light == "rgb(245, 246, 244)") == (scheme == "light")


def test_page_asks_for_the_token(begun: Path, open_page: OpenPage):
    options = {"tokens": Tokens(ASK, TEACH), "page": live_page("state"), "read_only": True}
    with serving(Options(begun, **options)) as server:
        page = open_page(server.port)
        page.get_by_label("Token").fill(ASK)
        page.get_by_role("button", name="Open").click()
        page.get_by_text("version 0 · live · read-only").wait_for()
    # The browser itself says that it was refused, before there was a token.
    assert all("401" in told for told in open_page.complaints)
    open_page.complaints.clear()
