"""Tables of results: terminal, Markdown and LaTeX from the rows of `tinyset evaluate --json`. Pure functions."""

from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]


def columns(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """Headings and cells. The test images get a column only where some are corrupted."""
    if rows and "method" in rows[0]:
        return _comparison(rows)
    if rows and "regret" in rows[0]:
        return _search(rows)
    if rows and all(isinstance(cell, str) for cell in rows[0].values()):
        return list(rows[0]), [list(row.values()) for row in rows]  # in words already, under their headings
    corrupted = any(row.get("corruption", "clean") != "clean" for row in rows)
    headings = ["Set", "Network", "Protocol", *(["Test images"] if corrupted else []), "Accuracy %", "n", "Balanced %"]
    headings += ["Images", "Train steps", "Images seen", "Train s", "Bytes"]
    cells = []
    for row in rows:
        cells.append(
            [
                row["set"],
                row["network"],
                row["protocol"],
                *([row["corruption"]] if corrupted else []),
                spread(row["accuracy"]),
                str(row["accuracy"]["n"]),
                spread(row["balanced_accuracy"]),
                f"{row['images']:,}",
                f"{row['train_steps']:,}",
                f"{row['images_seen']:,}",
                f"{row['seconds']:.1f}",
                f"{row['bytes']:,}",
            ]
        )
    return headings, cells


def _comparison(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """The rows of `tinyset compare`; published figures where the paper has this dataset and budget."""
    known = any(row.get("published") for row in rows)
    headings = ["Method", "Accuracy %", *(["Published %"] if known else []), "n", "Condense s", "Steps", "Images"]
    headings += ["Numbers per class", "Bytes", "Train s"]
    cells = [
        [
            row["method"],
            spread(row["accuracy"]),
            *([f"{row['published']:.1f}" if row.get("published") else ""] if known else []),
            str(row["accuracy"]["n"]),
            f"{row['seconds']:.0f}",
            f"{row['steps']:,}",
            f"{row['images']:,}",
            "" if row["params_per_class"] is None else f"{row['params_per_class']:,.1f}",
            f"{row['bytes']:,}",
            f"{row['train_seconds']:.1f}",
        ]
        for row in rows
    ]
    return headings, cells


def _search(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """The rows of `tinyset search`; the last one is a search on the real images themselves."""
    headings = ["Set", "Images", "Bytes", "Candidates", "Search s", "Confirm s", "Times faster"]
    headings += ["Rank correlation", "n", "First choice %", "First regret", "Confirmed %", "Regret"]
    cells = [
        [
            row["set"],
            f"{row['images']:,}",
            f"{row['bytes']:,}",
            str(row["candidates"]),
            f"{row['search_seconds']:.0f}",
            *(_or_blank(row.get(key), form) for key, form in _SEARCH.items()),
            f"{row['answer_real']:.1f}",
            f"{row['regret']:.1f}",
        ]
        for row in rows
    ]
    return headings, cells


_SEARCH = {
    "confirm_seconds": ".0f",
    "times_faster": ".1f",
    "spearman": ".2f",
    "spearman_n": "d",
    "first_real": ".1f",
    "first_regret": ".1f",
}


def _or_blank(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def numeric(headings: Sequence[str]) -> list[bool]:
    """Which columns are set flush right."""
    words = ("Set", "Method", "Network", "Protocol", "Test images", "Memory", "Precision")
    return [heading not in words for heading in headings]


def spread(value: Mapping[str, Any], sign: str = "±") -> str:
    """`71.2 ± 0.4`; a single repeat has no deviation to show."""
    return f"{value['mean']:.1f} {sign} {value['std']:.1f}" if value["n"] > 1 else f"{value['mean']:.1f}"


def text(rows: Rows) -> str:
    """Aligned columns for a terminal or a log, as wide as they need to be."""
    headings, cells = columns(rows)
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    right = numeric(headings)
    lines = [headings, ["-" * width for width in widths], *cells]
    aligned = (
        "  ".join(cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(line, widths, right, strict=True))
        for line in lines
    )
    return "\n".join(line.rstrip() for line in aligned) + "\n"


def markdown(rows: Rows) -> str:
    headings, cells = columns(rows)
    rule = ["---:" if right else "---" for right in numeric(headings)]
    lines = [headings, rule, *([_markdown(cell) for cell in line] for line in cells)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def latex(rows: Rows) -> str:
    """A `tabular` for the booktabs package."""
    headings, cells = columns(rows)
    layout = "".join("r" if right else "l" for right in numeric(headings))
    body = [" & ".join(_latex(cell) for cell in line) + r" \\" for line in [headings, *cells]]
    lines = [rf"\begin{{tabular}}{{{layout}}}", r"\toprule", body[0], r"\midrule", *body[1:], r"\bottomrule"]
    return "\n".join([*lines, r"\end{tabular}"]) + "\n"


def _markdown(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _latex(text: str) -> str:
    escaped = "".join(_LATEX.get(letter, letter) for letter in text)
    return escaped.replace("±", r"$\pm$")


_LATEX = {letter: "\\" + letter for letter in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
