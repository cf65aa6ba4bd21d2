"""Fills the documentation from the product itself: help texts, signatures, settings, files, the README's table."""

import ast
import dataclasses
import importlib
import inspect
import itertools
import json
import re
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EVERYWHERE = ("seed", "device", "threads", "json", "quiet")
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


def _verbs(_: str) -> str:
    """Every command with its arguments, from the same classes that parse them."""
    from tinyset.cli import VERBS

    parts = []
    for verb, (home, _text) in VERBS.items():
        module = importlib.import_module(home)
        parts.append(f"## tinyset {verb}\n\n{module.__doc__}\n\n{_arguments(module.Args)}")
    return "\n\n".join(parts)


def _arguments(kind: Any) -> str:
    lines = ["| argument | default | meaning |", "|---|---|---|"]
    meanings: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        meanings |= _field_docs(base)
    own = [field for field in dataclasses.fields(kind) if field.name not in EVERYWHERE]
    for field in sorted(own, key=lambda field: "Positional" not in str(field.type)):
        positional = "Positional" in str(field.type) or "_Positional" in str(field.type)
        name = field.name.upper() if positional else "--" + field.name.rstrip("_").replace("_", "-")
        default = "" if field.default in (dataclasses.MISSING, None, False, ()) else f"`{field.default}`"
        meaning = meanings.get(field.name, "").replace("|", "\\|").replace("<", "&lt;")
        lines.append(f"| `{name}` | {default} | {meaning} |")
    return "\n".join(lines)


def _field_docs(kind: Any) -> dict[str, str]:
    """The sentence below each field, which is also the help text."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for field, after in itertools.pairwise(body.body):
        said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(said, str):
            docs[field.target.id] = " ".join(said.split())
    return docs


def _api(name: str) -> str:
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    lines = [f"## {name}", "", f"```python\n{_signature(attribute, found)}\n```", "", inspect.getdoc(found) or ""]
    if inspect.isclass(found):
        for key, member in vars(found).items():
            if not key.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                shown = _signature(key, member) if inspect.isfunction(member) else key
                said = _first_sentence(member)
                lines += ["", f"- `{' '.join(shown.split())}`" + (f": {said}" if said else "")]
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


def _measured(method: str) -> str:
    """What the committed records of `tinyset compare` say about a method."""
    lines = ["| data, images per class | accuracy % | n | published % | condensation | evaluated on | record |"]
    lines += ["|---|---:|---:|---:|---|---|---|"]
    for path in sorted((ROOT / "records").glob("compare-*/table.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        for row in (row for row in found["rows"] if row["method"] == method):
            accuracy, known = row["accuracy"], row.get("published")
            lines.append(
                f"| {found['data']}, {found['images_per_class']} | {accuracy['mean']:.1f} ± {accuracy['std']:.1f} "
                f"| {accuracy['n']} | {known if known is not None else ''} | {row['steps']:,} steps, {row['seconds']:.0f} s "
                f"| {row['network']}, {row['protocol']} | `records/{path.parent.name}` |"
            )
    return "\n".join(lines) if len(lines) > 2 else "Not in a record yet."


def _compared(_: str) -> str:
    """The table of every committed record of `tinyset compare`, with the command that made it."""
    parts = []
    for path in sorted((ROOT / "records").glob("compare-*/table.md")):
        command = json.loads((path.parent / "env.json").read_text(encoding="utf-8"))["command"]
        parts.append(f"`{command}`\n\n{path.read_text(encoding='utf-8').rstrip()}")
    return "\n\n".join(parts)


MAKERS = {
    "file": _file,
    "verbs": _verbs,
    "api": _api,
    "settings": _settings,
    "readme": _readme,
    "measured": _measured,
    "compared": _compared,
}
