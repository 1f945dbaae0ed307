"""The page: one HTML file that needs nothing else, neither network nor server.

Program and style lie beside as .js, .css and .html; :mod:`.data` says what it shows.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from evergraph.errors import InputError
from evergraph.files import make_folder, write_atomic

#: The programs: of runs, of a state, of the field, of a server, each in the order of its parts.
SCRIPTS: dict[str, list[str]] = json.loads(
    resources.files(__name__).joinpath("scripts.json").read_text("utf-8")
)
#: Characters that could end a script element or a line of it, however they are quoted.
UNSAFE = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def render_page(data: dict[str, Any], program: str = "runs") -> str:
    """Puts template, style, program and data together.

    The policy in the page's head lets exactly this program and this style run and lets the
    browser fetch nothing, a live page from its own server alone.
    """
    live = program == "live"
    style = _part("page.css") + (_part("live.css") if live else "")
    script = '"use strict";\n(() => {\n' + "\n".join(map(_part, SCRIPTS[program])) + "\n})();\n"
    return Template(_part("page.html")).substitute(
        title=html.escape(data["title"]),
        style_hash=_hash(style),
        script_hash=_hash(script),
        style=style,
        script=script,
        data=embed(data),
        eyebrow="Evergraph, served" if live else "Evergraph report",
        connect=" connect-src 'self';" if live else "",
    )


def live_page(title: str) -> str:
    """Makes the page of a server, without anything of the state, which may need a token."""
    order = ["accuracy", "classes", "median", "p99"]
    return render_page({"title": title, "order": order}, "live")


def embed(data: Any) -> str:
    """Writes JSON that can stand inside a script element whatever its strings hold."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(UNSAFE)


def write_page(data: dict[str, Any], path: Path, program: str = "runs") -> None:
    """Writes the page, all of it or nothing."""
    if path.is_dir():
        raise InputError(
            f"Expected '--output' to be a file (got the folder '{path}'); add a name, such as "
            f"'{path / 'report.html'}'."
        )
    page = render_page(data, program)
    make_folder(path.parent)
    write_atomic(path, page.encode())


def _part(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
