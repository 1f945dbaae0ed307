"""What the site is built with beyond its theme: formulas, docstrings, and generated pages.

MkDocs calls the functions ``on_...`` (``hooks`` in ``mkdocs.yml``). Formulas become MathML when the
site is built, so that a reader's browser needs no script and no network for them.
"""

from __future__ import annotations

import contextlib
import html
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor
from mkdocs.structure.files import File

from evergraph.lab import cli
from evergraph.lab.cli import GROUPS, listings
from evergraph.methods import METHODS, TrainConfig
from evergraph.nn import ModelConfig
from evergraph.stream import Protocol

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
#: What the converter to MathML does not know, or does not pair, and what it does.
SUBSTITUTES = {
    r"\tfrac": r"\frac",
    r"\arg\min": r"\operatorname{argmin}",
    r"\lVert": r"\left\Vert ",
    r"\rVert": r"\right\Vert ",
}


# --- formulas ------------------------------------------------------------------------------


def mathml(found: re.Match[str]) -> str:
    r"""Turns what the extension arithmatex marked, ``\(...\)`` or ``\[...\]``, into MathML."""
    text = html.unescape(found[2]).strip()
    display = "block" if text.startswith("\\[") else "inline"
    body = text[2:-2]
    for word, other in SUBSTITUTES.items():
        body = body.replace(word, other)
    return f"<{found[1]}>{convert(body.strip(), display=display)}</{found[1]}>"


def on_page_content(content: str, **_: Any) -> str:
    """Converts the formulas of a page."""
    marked = r'<(span|div) class="arithmatex">(.*?)</\1>'
    return re.sub(marked, mathml, content, flags=re.DOTALL)


# --- docstrings ----------------------------------------------------------------------------


class Roles(Preprocessor):
    """Turns what docstrings write for Sphinx into Markdown: formulas, and names of things."""

    def run(self, lines: list[str]) -> list[str]:
        """Converts roles line by line, and the directive for displayed formulas."""
        text = re.sub(r":math:`([^`]+)`", r"$\1$", "\n".join(lines))
        text = re.sub(r":(?:\w+):`~?(?:[\w.]+\.)?([\w]+)`", r"`\1`", text)
        text = re.sub(r"\.\. math::\n((?:[ ]+\S.*\n?|\n(?=[ ]+\S))+)", self.display, text)
        return text.split("\n")

    def display(self, found: re.Match[str]) -> str:
        """Writes a displayed formula."""
        return f"\n$$\n{' '.join(found[1].split())}\n$$\n"


class Docstrings(Extension):
    """Reads docstrings before anything else does."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Registers the preprocessor."""
        md.preprocessors.register(Roles(md), "roles", 175)


def on_config(config: Any) -> Any:
    """Adds the extension, which has no name that could stand in the configuration."""
    config.markdown_extensions.append(Docstrings())
    return config


# --- examples and the notebook -------------------------------------------------------------


def on_files(files: Any, config: Any) -> Any:
    """Adds a page for every example and for the notebook."""
    told = json.loads((EXAMPLES / "outputs.json").read_text(encoding="utf-8"))
    for path in sorted(EXAMPLES.glob("*.py")):
        page = example_page(path, told.get(path.name))
        files.append(File.generated(config, f"examples/{path.stem}.md", content=page))
    page = notebook_page(EXAMPLES / "quickstart.ipynb")
    files.append(File.generated(config, "examples/quickstart.md", content=page))
    files.append(File.generated(config, "command.md", content=command_page()))
    files.append(File.generated(config, "methods.md", content=methods_page()))
    return files


def example_page(path: Path, told: str | None) -> str:
    """Writes an example as a page: its docstring, its code, and what it prints."""
    doc, code = path.read_text(encoding="utf-8").split('"""', 2)[1:]
    title, _, text = doc.strip().partition("\n")
    text = re.sub(r"::\n\n((?:    .*\n?|\n)+)", r":\n\n```bash\n\1\n```\n", text + "\n")
    text = re.sub(r"^    ", "", text, flags=re.MULTILINE)
    parts = [f"# {title.rstrip('.')}", text, f"```python\n{code.strip()}\n```"]
    if told:
        parts += ["It prints:", f"```text\n{told.strip()}\n```"]
    parts.append(f"The file is `examples/{path.name}`.")
    return "\n\n".join(part for part in parts if part.strip())


def notebook_page(path: Path) -> str:
    """Writes a notebook as a page, with the outputs that it holds."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"]).rstrip()
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [text for output in cell["outputs"] if (text := shown(output))]
    parts.append("The notebook is `examples/quickstart.ipynb`.")
    return "\n\n".join(parts)


def shown(output: dict[str, Any]) -> str:
    """Writes one output of a cell: a picture, or text."""
    data = output.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return f"![What the cell draws](data:image/png;base64,{picture})"
    text = "".join(output.get("text", data.get("text/plain", []))).rstrip()
    return f"```text\n{text}\n```" if text else ""


# --- reference, from the program itself ----------------------------------------------------


def command_page() -> str:
    """Writes the help of every command."""
    parts = [
        "# The command",
        "The output of `evergraph COMMAND -h`. `python -m evergraph` is the same command.",
    ]
    parts.append("Completion in your shell: `evergraph --install-completion`.")
    for title, names in GROUPS.items():
        parts.append(f"## {title}")
        parts += [f"### {name}\n\n```text\n{helped(name)}\n```" for name in names]
    return "\n\n".join(parts)


def helped(name: str) -> str:
    """Asks a command for its help."""
    before, sys.argv = sys.argv, ["evergraph", name, "-h"]
    try:
        with contextlib.redirect_stdout(io.StringIO()) as told, contextlib.suppress(SystemExit):
            cli.main()
    finally:
        sys.argv = before
    return told.getvalue().strip()


def methods_page() -> str:
    """Writes every method with its settings, as they stand in the code."""
    text = (
        "Every method, the paper it comes from, and its settings: `--set key=value`, or `--method "
        "NAME:key=value`. Presets may differ from the defaults on published graphs; `evergraph run "
        "--explain` shows the values of a run."
    )
    parts = ["# Methods and settings", text]
    for name, cls in METHODS.items():
        parts += [
            f"## {name}",
            f"{cls.summary[0].upper()}{cls.summary[1:]}. {cls.paper}, {cls.year}.",
        ]
        parts.append(settings_table(cls.Config))
    parts += ["## Training", "For every network.", settings_table(TrainConfig)]
    parts += ["## The network", settings_table(ModelConfig)]
    parts += [
        "## The protocol",
        "What arrives when, and what is measured.",
        settings_table(Protocol),
    ]
    return "\n\n".join(part for part in parts if part)


def settings_table(config: Any) -> str:
    """Writes the settings of a class, nothing if it has none."""
    told = listings.descriptions(config)
    rows = [
        f"| `{key}` | `{value}` | {told.get(key, '').replace('|', '&#124;')} |"
        for key, value in listings.defaults(config).items()
    ]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows]) if rows else ""
