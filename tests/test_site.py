"""The site: it builds without a warning, and in a browser nothing is missing, foreign or too wide.

Without Chromium or Playwright the tests in a browser are skipped, visibly.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlparse

import pytest

import evergraph
from evergraph.lab.cli import COMMANDS

pytest.importorskip("material", reason="Material for MkDocs is not installed")

ROOT = Path(__file__).parents[1]
#: Of each kind of page one: home, tutorial, formulas, API, generated, wide tables, decision.
PAGES = (
    *("index.html", "tutorials/own-graph.html", "analytic.html", "packages.html"),
    *("api/ContinualNodeClassifier.html", "examples/quickstart.html", "reproduction.html"),
    *("command.html", "methods.html"),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the site, a warning being an error."""
    folder = tmp_path_factory.mktemp("site")
    answer = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return folder


class Links(HTMLParser):
    """Collects what a page leads to or loads, and the places in it that can be led to."""

    def __init__(self) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.places: set[str] = {""}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key in {"href", "src"} and value:
                self.links.add(value)
            elif key in {"id", "name"} and value:
                self.places.add(value)


def read(path: Path) -> Links:
    links = Links()
    links.feed(path.read_text(encoding="utf-8"))
    return links


def test_every_internal_link_leads_somewhere(site: Path):
    pages = {f"/{path.relative_to(site).as_posix()}": read(path) for path in site.rglob("*.html")}
    assert len(pages) > 60
    broken = []
    for name, page in pages.items():
        if name == "/404.html":  # its links are absolute
            continue
        for link in page.links:
            if urlparse(link).scheme or link.startswith("//"):
                continue
            target, place = urldefrag(urljoin(name, link))
            file = site / unquote(target).lstrip("/")
            known = pages[target].places if target in pages else {place}
            if not file.exists() or unquote(place) not in known:
                broken.append((name, link))
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site: Path):
    foreign = (
        r"""(?:src|data-src)=["']?(https?:)?//|<link[^>]+href=["']?https?://(?![^"']*canonical)"""
    )
    for path in site.rglob("*.html"):
        assert not re.search(foreign, path.read_text(encoding="utf-8")), path
    for path in (site / "assets").rglob("*.css"):
        assert "url(http" not in path.read_text(encoding="utf-8"), path


def test_every_public_name_stands_in_the_api(site: Path):
    index = (site / "api.html").read_text(encoding="utf-8")
    assert [name for name in evergraph.__all__ if f"<code>{name}</code>" not in index] == []
    page = (site / "api" / "ContinualNodeClassifier.html").read_text(encoding="utf-8")
    assert all(word in page for word in ("predict_proba", "partial_fit", "feature_scaling"))


def test_formulas_and_code_are_rendered_when_built(site: Path):
    page = (site / "analytic.html").read_text(encoding="utf-8")
    assert page.count("<math") > 40
    assert "arithmatex" not in page
    shown = [re.sub(r"<[^>]+>", "", part) for part in re.findall(r"<math.*?</math>", page, re.S)]
    assert [part for part in shown if "\\" in part] == []  # no word of TeX is left
    for path in site.rglob("*.html"):
        text = re.sub(r"<pre.*?</pre>|<code.*?</code>", "", path.read_text("utf-8"), flags=re.S)
        assert ":math:" not in text, path
        assert ":class:" not in text, path
    assert page.count('form="postfix">&#x02016;</mo>') == 2  # norms are closed
    assert 'class="k"' in (site / "tutorials" / "own-graph.html").read_text(encoding="utf-8")


def test_notebook_and_examples_show_what_they_print(site: Path):
    page = (site / "examples" / "quickstart.html").read_text(encoding="utf-8")
    assert "data:image/png;base64" in page
    assert "2708 papers, 7 topics" in page
    assert "It prints:" in (site / "examples" / "custom_method.html").read_text(encoding="utf-8")


def test_reference_is_what_the_program_says(site: Path):
    page = (site / "command.html").read_text(encoding="utf-8")
    assert all(f'id="{name}"' in page for name in COMMANDS)
    assert "--install-completion" in page
    assert "Where it runs:" in page
    page = (site / "methods.html").read_text(encoding="utf-8")
    assert all(f">{name}<" in page for name in evergraph.METHODS)
    assert "edges added to each replayed node" in page


# --- in a browser --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Serves the site on this machine."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.mark.parametrize("width", [1280, 375])
def test_pages_open_without_a_complaint(browser: Any, address: str, width: int):
    complaints: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    requests: list[str] = []
    for name in PAGES:
        page.goto(address + name)
        page.wait_for_load_state("networkidle")
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, (name, width, wide)
    context.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith((address, "data:", "blob:"))] == []


def test_search_finds_and_the_dark_theme_is_dark(browser: Any, address: str):
    context = browser.new_context(color_scheme="dark", viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(address + "index.html")
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red, green, blue = map(int, re.findall(r"\d+", colour)[:3])
    assert max(red, green, blue) < 80
    page.keyboard.press("f")  # opens the search
    page.keyboard.type("teleport")
    found = page.locator(".md-search-result__link").first
    found.wait_for(timeout=20_000)
    assert "teleport" in found.inner_text().lower()
    context.close()
