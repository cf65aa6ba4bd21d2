"""`report.html`: one file that needs no network and no server. Results, charts, the explorer, and how it was made."""

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any

import tinyset
from tinyset.report import sections
from tinyset.report.classes import classes
from tinyset.report.explorer import Nearest, explorer_data
from tinyset.report.gather import Row, Subject, merged, variant_kind
from tinyset.report.graphs import charts, final, summary

STYLES = ("report.css", "explorer.css")
SCRIPTS = ("decode.js", "parts.js", "panels.js", "explorer.js", "page.js")


def page(
    subjects: Sequence[Subject],
    compared: Sequence[Row] = (),
    nearest: Sequence[Nearest | None] | None = None,
    with_real: bool = False,
) -> str:
    """The whole page. `nearest[i]`: the real images nearest to the synthetic ones of `subjects[i]`, where known."""
    rows = merged(row for subject in subjects for row in subject.rows)
    rows.sort(key=lambda row: row.get("corruption", "clean") != "clean")
    names = subjects[0].condensed.class_names
    own = [subject.condensed.config.method for subject in subjects] + [subject.name for subject in subjects]
    clean = final([row for row in rows if row.get("corruption", "clean") == "clean"])
    data = [
        explorer_data(subject.name, subject.condensed, near, with_real)
        for subject, near in zip(subjects, nearest or [None] * len(subjects), strict=True)
    ]
    body = [
        _results(rows, compared, own),
        _charts(charts(subjects, rows, compared)),
        classes(clean, names),
        sections.ledger(subjects),
        sections.made(subjects),
    ]
    title = subjects[0].condensed.config.source or subjects[0].name
    return document(
        f"{title} – tinyset report",
        sections.hero(subjects, clean),
        _explorer(data) + "".join(body),
        asset(*STYLES),
        asset(*SCRIPTS),
        f'<script type="application/json" id="sets">{safe_json(data)}</script>',
    )


def document(title: str, header: str, body: str, style: str, script: str, data: str = "", served: bool = False) -> str:
    """The frame of a page. Its policy allows this very style and script, pictures inside the page, and nothing else.

    `served`: by our own server, which it may ask for more.
    """
    foot = (
        "This page is for this machine only." if served else "This file holds everything it shows and asks no network."
    )
    pictures, connect = ("data: 'self'", "'self'") if served else ("data:", "'none'")
    policy = (
        f"default-src 'none'; img-src {pictures}; style-src {_hash(style)}; script-src {_hash(script)}; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="tinyset {escape(tinyset.__version__)}">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<header>
<div class="bar-top"><span>tinyset</span><button type="button" id="theme" hidden>Theme: auto</button></div>
{header}
</header>
<main>{body}</main>
<footer>Made by tinyset {escape(tinyset.__version__)}. {foot}</footer>
{data}
<script>{script}</script>
</body>
</html>
"""


def asset(*names: str) -> str:
    folder = resources.files("tinyset") / "report" / "assets"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def safe_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in, whatever a class is called."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _results(rows: Sequence[Row], compared: Sequence[Row], own: Sequence[str]) -> str:
    parts = [sections.table(compared, own)] if compared else []
    main = summary([row for row in rows if not variant_kind(row["set"])])
    if main:
        parts.append(sections.table(main, own))
    if rest := [row for row in rows if row not in main]:
        what = f"{len(rest)} more measurements: along a training, and of smaller variants"
        parts.append(f"<details><summary>{what}</summary>{sections.table(rest, own)}</details>")
    if not parts:
        parts = [
            '<p class="lead">No measurements yet: <code>tinyset evaluate</code> writes them beside the artifact.</p>'
        ]
    return f'<section aria-labelledby="results-title"><h2 id="results-title">Results</h2>{"".join(parts)}</section>'


def _charts(drawn: Sequence[str]) -> str:
    if not drawn:
        return ""
    return (
        '<section aria-labelledby="charts-title"><h2 id="charts-title">Curves</h2>'
        f'<div class="charts">{"".join(drawn)}</div></section>'
    )


def _explorer(data: Sequence[dict[str, Any]]) -> str:
    options = "".join(f'<option value="{i}">{escape(entry["name"])}</option>' for i, entry in enumerate(data))
    return asset("explorer.html").replace("MANY", "" if len(data) > 1 else "hidden").replace("OPTIONS", options)
