"""The page: one HTML file that needs nothing else, neither network nor server."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from evergraph.errors import InputError
from evergraph.files import make_folder, write_atomic

#: The page's program in the order of its parts; later ones use earlier ones.
SCRIPTS = (
    *("dom.js", "statistics.js", "charts.js", "rows.js", "lines.js", "table.js", "export.js"),
    *("summary.js", "differences.js", "matrices.js", "time.js", "probabilities.js", "sizes.js"),
    *("bars.js", "embedding.js", "edits.js", "buffer.js", "stages.js", "settings.js"),
    *("sections.js", "main.js"),
)
#: That of the page of a state.
STATE_SCRIPTS = (
    *("dom.js", "statistics.js", "charts.js", "lines.js", "rows.js", "table.js"),
    *("export.js", "matrices.js", "probabilities.js", "sections.js", "why.js", "state.js"),
)
#: That of the page of a server, which asks it all the time.
LIVE_SCRIPTS = (
    *("dom.js", "statistics.js", "charts.js", "lines.js", "rows.js", "table.js", "why.js"),
    *("live_novel.js", "live.js"),
)
#: That of the table of the field.
FIELD_SCRIPTS = ("dom.js", "table.js", "field.js")
#: Characters that could end a script element or a line of it, however they are quoted.
UNSAFE = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def render_page(
    data: dict[str, Any],
    scripts: Sequence[str] = SCRIPTS,
    *,
    eyebrow: str = "Evergraph report",
    live: bool = False,
) -> str:
    """Puts template, style, program and data together.

    The policy in the page's head lets exactly this program and this style run and lets the
    browser fetch nothing, a ``live`` page from its own server alone.
    """
    style = _part("page.css") + (_part("live.css") if live else "")
    script = '"use strict";\n(() => {\n' + "\n".join(map(_part, scripts)) + "\n})();\n"
    return Template(_part("page.html")).substitute(
        title=html.escape(data["title"]),
        style_hash=_hash(style),
        script_hash=_hash(script),
        style=style,
        script=script,
        data=embed(data),
        eyebrow=html.escape(eyebrow),
        connect=" connect-src 'self';" if live else "",
    )


def live_page(title: str) -> str:
    """Makes the page of a server, without anything of the state, which may need a token."""
    data = {"title": title, "order": ["accuracy", "classes", "median", "p99"]}
    return render_page(data, LIVE_SCRIPTS, eyebrow="Evergraph, served", live=True)


def embed(data: Any) -> str:
    """Writes JSON that can stand inside a script element whatever its strings hold."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(UNSAFE)


def write_page(data: dict[str, Any], path: Path, scripts: Sequence[str] = SCRIPTS) -> None:
    """Writes the page, all of it or nothing."""
    if path.is_dir():
        raise InputError(
            f"Expected '--output' to be a file (got the folder '{path}'); add a name, such as "
            f"'{path / 'report.html'}'."
        )
    page = render_page(data, scripts)
    make_folder(path.parent)
    write_atomic(path, page.encode())


def _part(name: str) -> str:
    return resources.files("evergraph.lab.page").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
