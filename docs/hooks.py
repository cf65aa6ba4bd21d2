"""Fills the documentation from the product itself: help texts, signatures, settings, files, the README's table."""

import contextlib
import importlib
import inspect
import io
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OTHERS = {"Methods": "methods/*.md", "More": "*.md"}  # pages of other hands, found where they are


def on_config(config: Any) -> Any:
    """Pages that `nav` does not name are listed at its end: none is left out, none is named before it exists."""
    named = set(re.findall(r"[\w/-]+\.md", str(config["nav"])))
    for title, pattern in OTHERS.items():
        found = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob(pattern))
        if new := [name for name in found if name not in named]:
            config["nav"].append({title: new})
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    return fill(markdown)


def fill(markdown: str) -> str:
    """`{{ WORD ARGUMENT }}` on a line of its own is replaced by what WORD makes of ARGUMENT."""
    return re.sub(r"^\{\{ (\w+) ?(.*?) \}\}$", lambda match: MAKERS[match[1]](match[2]), markdown, flags=re.MULTILINE)


def _file(name: str) -> str:
    return f"```python\n{(ROOT / name).read_text(encoding='utf-8').rstrip()}\n```"


def _help(verb: str) -> str:
    from tinyset.cli import main

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        main([verb, "--help"] if verb else ["--help"])
    text = re.sub(r"\x1b\[[0-9;]*m", "", said.getvalue())
    return f"```text\n{text.strip()}\n```"


def _verbs(_: str) -> str:
    from tinyset.cli import VERBS

    return "\n\n".join(f"## tinyset {verb}\n\n{_help(verb)}" for verb in VERBS)


def _api(name: str) -> str:
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    lines = [f"## {name}", "", f"```python\n{_signature(attribute, found)}\n```", "", inspect.getdoc(found) or ""]
    if inspect.isclass(found):
        for key, member in vars(found).items():
            if not key.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                shown = _signature(key, member) if inspect.isfunction(member) else key
                lines += ["", f"- `{' '.join(shown.split())}`: {_first_sentence(member)}"]
    return "\n".join(lines)


def _signature(name: str, found: Any) -> str:
    text = f"{name}{inspect.signature(found)}"
    text = re.sub(r"(?:\w+\.)+(\w+)", r"\1", text).replace("(self, ", "(").replace("(self)", "()")
    return (
        text if len(text) < 90 else text.replace("(", "(\n    ", 1).replace(", ", ",\n    ").replace(") ->", "\n) ->")
    )


def _first_sentence(member: Any) -> str:
    return (inspect.getdoc(member) or "").split("\n\n")[0].replace("\n", " ")


def _settings(name: str) -> str:
    module, _, attribute = name.rpartition(".")
    fields = getattr(importlib.import_module(module), attribute).model_fields
    lines = ["| key | type | default |", "|---|---|---|"]
    for key, field in fields.items():
        kind = re.sub(r"typing\.|<class '|'>", "", str(field.annotation)).replace("|", "or")
        lines.append(
            f"| `{key}` | {kind.replace('_', chr(92) + '_')} | `{field.get_default(call_default_factory=True)}` |"
        )
    return "\n".join(lines)


def _readme(heading: str) -> str:
    """A section of the README, without its heading."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    part = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if part is None:
        raise ValueError(f"README.md has no section {heading!r}")
    return part[1].strip()


MAKERS = {"file": _file, "verbs": _verbs, "help": _help, "api": _api, "settings": _settings, "readme": _readme}
