"""Class by class: the accuracy of each, and which are taken for which."""

from collections.abc import Sequence
from html import escape

import numpy as np
from PIL import Image

from tinyset.evaluation.metrics import per_class as class_accuracies
from tinyset.report.explorer import png_uri
from tinyset.report.gather import Row

MOST_MATRICES = 12
TABLE_UP_TO = 25  # classes; a larger confusion matrix is a picture
CONFUSIONS = 8
LEVELS = (0.02, 0.08, 0.2, 0.4, 0.65, 0.85)  # shares from which a cell is darker


def classes(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Accuracy of each class and the confusion matrix, for one row of the results at a time."""
    fitting = [row for row in rows if len(row.get("confusion") or ()) == len(names)][:MOST_MATRICES]
    if not fitting:
        return ""
    options, boxes = [], []
    for i, row in enumerate(fitting):
        label = f"{row['set']}, {row['network']}, {row['protocol']}: {row['accuracy']['mean']:.1f} %"
        options.append(f'<option value="{i}">{escape(label)}</option>')
        box = f'<div class="split"><div>{_class_bars(row, names)}</div><div>{_confusion(row, names)}</div></div>'
        boxes.append(f'<div data-for="rows" data-value="{i}"{" hidden" if i else ""}>{box}</div>')
    return (
        '<section aria-labelledby="classes-title"><h2 id="classes-title">Class by class</h2>'
        f'<p><label for="rows">Trained on </label><select id="rows" data-chooses>{"".join(options)}</select></p>'
        f"{''.join(boxes)}</section>"
    )


def _class_bars(row: Row, names: Sequence[str]) -> str:
    lines = []
    for name, value in zip(names, class_accuracies(row["confusion"]), strict=True):
        width = 0 if value is None else round(value, 1)
        lines.append(
            f'<tr><th scope="row" title="{escape(name)}">{escape(name)}</th>'
            f'<td><svg aria-hidden="true" preserveAspectRatio="none" viewBox="0 0 100 10"><rect class="track" width="100" '
            f'height="10"/><rect class="bar s0" width="{width}" height="10"/></svg></td>'
            f'<td class="num">{"no tests" if value is None else f"{value:.1f} %"}</td></tr>'
        )
    return (
        "<h3>Accuracy of each class</h3>"
        '<div class="classbars" tabindex="0" role="region" aria-label="Accuracy of each class">'
        f"<table>{''.join(lines)}</table></div>"
    )


def _confusion(row: Row, names: Sequence[str]) -> str:
    matrix = np.array(row["confusion"], dtype=float)
    share = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    off = share - np.diag(np.diag(share))
    worst = np.argsort(-off, axis=None, kind="stable")[:CONFUSIONS]
    pairs = [(t, p, off[t, p]) for t, p in (divmod(int(i), len(names)) for i in worst) if off[t, p] > 0]
    said = ", ".join(f"{escape(names[t])} as {escape(names[p])} ({100 * v:.0f} %)" for t, p, v in pairs)
    most = f'<p class="hint">Most often confused: {said}.</p>' if said else ""
    if len(names) > TABLE_UP_TO:
        pixels = Image.fromarray((255 - 255 * share).round().astype(np.uint8)).convert("RGB")
        alt = "Confusion matrix, true classes down, predicted across"
        return f'<h3>Confusion matrix</h3><img class="pixels heatmap" alt="{alt}" src="{png_uri(pixels)}">{most}'
    head = "".join(f'<th scope="col" title="{escape(name)}">{escape(name)}</th>' for name in names)
    body = "".join(
        f'<tr><th scope="row" title="{escape(name)}">{escape(name)}</th>'
        + "".join(f'<td class="h{_heat(value)}">{100 * value:.0f}</td>' for value in line)
        + "</tr>"
        for name, line in zip(names, share.tolist(), strict=True)
    )
    return (
        '<h3>Confusion matrix</h3><div class="scroll" tabindex="0" role="region" aria-label="Confusion matrix">'
        '<table class="confusion"><caption class="sr">Percent of each true class (rows) predicted as each class (columns)'
        f"</caption><thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        f'<p class="hint">Rows: the true class. Columns: the predicted class. Percent of the row.</p>{most}'
    )


def _heat(share: float) -> int:
    return sum(share >= least for least in LEVELS)
