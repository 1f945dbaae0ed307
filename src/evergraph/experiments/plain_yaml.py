"""YAML from anyone: plain values alone, no references that blow up, no endless nesting."""

from __future__ import annotations

from typing import Any

import yaml

from evergraph.errors import InputError

#: A configuration has about 2,000 characters; reading is slow in the length.
MAX_LENGTH = 100_000
#: Nothing is nested deeper; going to Python's limit takes most of a second.
MAX_DEPTH = 50


class PlainLoader(yaml.SafeLoader):
    """Reads plain values; a reference to another value is refused.

    A few lines of references to references stand for more values than fit in any memory.
    """

    depth = 0  # of the value that is being composed

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Composes one value that is written out."""
        if self.check_event(yaml.AliasEvent):
            raise InputError("a reference")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.YAMLError("too deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class PlainDumper(yaml.SafeDumper):
    """Writes every value out, also one that comes twice."""

    def ignore_aliases(self, data: Any) -> bool:
        """Tells not to refer to a value written before."""
        return True


def dump_yaml(content: Any) -> str:
    """Writes plain values so that :func:`load_yaml` reads them back."""
    return yaml.dump(content, Dumper=PlainDumper, sort_keys=False, allow_unicode=True)


def load_yaml(text: str, source: str) -> Any:
    """Reads YAML, turning every failure into one sentence."""
    if len(text) > MAX_LENGTH:
        raise InputError(
            f"Expected '{source}' of at most {MAX_LENGTH} characters (got {len(text)}); check that "
            "it is a configuration."
        )
    try:
        return yaml.load(text, Loader=PlainLoader)
    except InputError:
        raise InputError(
            f"Expected '{source}' without references (got one, written *name); write the value out."
        ) from None
    except Exception as error:  # the loader lets many kinds through, such as KeyError
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise InputError(f"Expected '{source}' to be YAML (it is not{where}); fix it.") from None
