"""Runs the notebook and the examples and records what they show, for the site.

python scripts/record_outputs.py          # all
python scripts/record_outputs.py quickstart.ipynb rare_fraud.py
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples"
#: These need graphs or grids that do not come with the package.
LEFT_OUT = {"amazon_computers.py", "packages.py", "served_packages.py"}


def run_cells(notebook: dict[str, Any]) -> dict[str, Any]:
    """Runs the code of a notebook and puts its outputs into it; returns its variables."""
    import matplotlib as mpl  # noqa: PLC0415 - the backend comes first

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    plt.close("all")  # what somebody else has left
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(tree, f"cell {number}", "exec"), names)
            value = None
            if last is not None:
                value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
        cell["execution_count"], cell["outputs"] = number, []
        if printed.getvalue():
            lines = printed.getvalue().splitlines(keepends=True)
            cell["outputs"].append({"output_type": "stream", "name": "stdout", "text": lines})
        for figure in map(plt.figure, plt.get_fignums()):
            picture = io.BytesIO()
            figure.savefig(picture, dpi=100, bbox_inches="tight", metadata={"Software": None})
            data = {"image/png": base64.b64encode(picture.getvalue()).decode()}
            cell["outputs"].append({"output_type": "display_data", "data": data, "metadata": {}})
            value = None
        plt.close("all")
        if value is not None and not callable(value):
            data = {"text/plain": repr(value).splitlines(keepends=True)}
            result = {"output_type": "execute_result", "data": data, "metadata": {}}
            cell["outputs"].append({**result, "execution_count": number})
    return names


def main(wanted: list[str]) -> None:
    """Records what is named, or all."""
    path, told = EXAMPLES / "quickstart.ipynb", EXAMPLES / "outputs.json"
    if not wanted or path.name in wanted:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            run_cells(notebook)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    outputs = json.loads(told.read_text(encoding="utf-8")) if told.exists() else {}
    for example in sorted(EXAMPLES.glob("*.py")):
        if example.name in LEFT_OUT or (wanted and example.name not in wanted):
            continue
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, str(example)],
                cwd=folder,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                check=True,
            )
        outputs[example.name] = done.stdout
    told.write_text(json.dumps(outputs, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
