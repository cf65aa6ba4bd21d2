"""The page's sections as HTML. Everything that comes from data is escaped here; nothing is styled here."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from tinyset.report.command import condense_command
from tinyset.report.gather import Row, Subject
from tinyset.report.tables import columns, numeric
from tinyset.runs import cost


def hero(subjects: Sequence[Subject], rows: Sequence[Row]) -> str:
    """What it is in one line, and the numbers people ask for first."""
    first = subjects[0].condensed
    source = first.config.source or subjects[0].name
    if len(subjects) > 1:
        return f"<h1>{escape(source)}, condensed {len(subjects)} ways</h1>"
    ledger = first.ledger()
    figures = [("Size", f"{ledger['bytes'] / 1000:,.1f} <small>kB</small>")]
    if ledger["compression"]:
        figures.append(("Smaller than the data", f"{ledger['compression']:,.0f}<small>×</small>"))
    figures.append(("Synthetic images", f"{len(first):,}"))
    own = [row for row in rows if row["set"] == first.config.method and row.get("corruption", "clean") == "clean"]
    if own:
        best = max(own, key=lambda row: row["accuracy"]["mean"])
        text = f"{best['accuracy']['mean']:.1f} <small>% {escape(best['network'])}, {escape(best['protocol'])}</small>"
        figures.append(("Test accuracy", text))
    items = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in figures)
    stands = f"{first.config.source_images:,} real images" if first.config.source_images else "the real images"
    return (
        f"<h1>{escape(source)}, condensed</h1>"
        f'<p class="lead">{len(first):,} synthetic images of {ledger["classes"]} classes that stand for {stands}: '
        f"method {escape(first.config.method)}, {first.config.steps:,} steps.</p><dl class=figures>{items}</dl>"
    )


def table(rows: Sequence[Mapping[str, Any]], own: Sequence[str] = ()) -> str:
    headings, cells = columns(rows)
    right = numeric(headings)
    head = "".join(f'<th scope="col"{_num(r)}>{escape(h)}</th>' for h, r in zip(headings, right, strict=True))
    body = "".join(
        f"<tr{' class=own' if line[0] in own else ''}>"
        + "".join(f"<td{_num(r)}>{escape(cell)}</td>" for cell, r in zip(line, right, strict=True))
        + "</tr>"
        for line in cells
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table of results"><table class="results">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _num(right: bool) -> str:
    return ' class="num"' if right else ""


def ledger(subjects: Sequence[Subject]) -> str:
    """What is stored and what it costs, one column per set."""
    books = [subject.condensed.ledger() for subject in subjects]
    for book, subject in zip(books, subjects, strict=True):
        book.pop("class_names")
        book["precision"], book["sha256"] = subject.condensed.config.precision, subject.condensed.fingerprint
    head = f"<tr><th></th>{''.join(f'<th>{escape(s.name)}</th>' for s in subjects)}</tr>" if len(subjects) > 1 else ""
    lines = [
        f'<tr><th scope="row">{escape(key.replace("_", " "))}</th>'
        + "".join(f"<td>{escape(_plain(book[key]))}</td>" for book in books)
        + "</tr>"
        for key in books[0]
        if any(book[key] is not None for book in books)
    ]
    return (
        '<section aria-labelledby="ledger-title"><h2 id="ledger-title">Ledger</h2><p class="lead">What is stored, by the '
        'papers\' count of numbers and in real bytes.</p><div class="scroll"><table class="facts">'
        f"{head}{''.join(lines)}</table></div></section>"
    )


def made(subjects: Sequence[Subject]) -> str:
    """The command, settings and environment of each set."""
    parts = []
    for subject in subjects:
        config = subject.condensed.config
        title = f"<h3>{escape(subject.name)}</h3>" if len(subjects) > 1 else ""
        command = condense_command(config, subject.settings, subject.environment.get("command"))
        line = (
            f'<div class="command"><pre>{_words(command)}</pre><button type="button" data-copies hidden>Copy</button></div>'
            if command
            else f"<p>How this set was made is not recorded (method: {escape(config.method)}).</p>"
        )
        settings = {**config.condense, **subject.settings, "source fingerprint": config.source_fingerprint}
        environment = {"library": f"tinyset {config.library}", **_machine(subject.environment)}
        parts.append(
            title + line + _details("Environment", environment, True) + _details("Every setting", settings, False)
        )
    return (
        '<section aria-labelledby="made-title"><h2 id="made-title">How it was made</h2>' + "".join(parts) + "</section>"
    )


def _words(command: str) -> str:
    """A line breaks between words, not inside `--out`."""
    return " ".join(f"<span>{escape(word)}</span>" for word in command.split(" "))


def _machine(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Without the command, which stands above; the sessions as what they took together."""
    facts = {key: value for key, value in environment.items() if key not in ("command", "sessions", "tinyset")}
    seconds, peak = cost(environment)
    facts["condensed in"] = None if seconds is None else f"{seconds:,.0f} s"
    facts["peak memory"] = None if peak is None else f"{peak / 1e9:.1f} GB"
    return facts


def _details(title: str, facts: Mapping[str, Any], is_open: bool) -> str:
    lines = "".join(
        f'<tr><th scope="row">{escape(str(key).replace("_", " "))}</th><td>{escape(_plain(value))}</td></tr>'
        for key, value in facts.items()
        if value not in (None, "", {}, [])
    )
    state = " open" if is_open else ""
    return (
        f"<details{state}><summary>{title}</summary>"
        f'<div class="scroll"><table class="facts">{lines}</table></div></details>'
    )


def _plain(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(_plain(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {_plain(item)}" for key, item in value.items())
    return str(value)
