"""Which charts the page shows, from the rows and losses that are there."""

from collections.abc import Mapping, Sequence

from tinyset.report.gather import Row, Subject, variant_kind
from tinyset.report.svg import Line, bar_chart, line_chart
from tinyset.report.tables import spread

MOST_POINTS = 400
MOST_BARS = 60


def charts(subjects: Sequence[Subject], rows: Sequence[Row], compared: Sequence[Row]) -> list[str]:
    """Loss, accuracy across networks, along training, against bytes, against time: those with data."""
    clean = [row for row in rows if row.get("corruption", "clean") == "clean"]
    ordinary = [row for row in clean if not variant_kind(row["set"])]
    made = [*loss(subjects), *across_networks(summary(ordinary)), *along_training(ordinary)]
    return [*made, *against_bytes([row for row in clean if variant_kind(row["set"])]), *against_time(compared)]


def final(rows: Sequence[Row]) -> list[Row]:
    """Of measurements along one training only the last."""
    last: dict[tuple[str, ...], Row] = {}
    for row in rows:
        key = (row["set"], row["network"], row["protocol"], row.get("corruption", "clean"))
        if key not in last or last[key]["train_steps"] <= row["train_steps"]:
            last[key] = row
    return list(last.values())


def summary(rows: Sequence[Row]) -> list[Row]:
    """The ends of trainings; one that was only measured along the way is a curve, not a line of a table."""
    found = []
    for of in grouped_by(rows, ("set", "network", "protocol", "corruption")).values():
        *before, last = sorted(of, key=lambda row: row["train_steps"])
        if all(row["accuracy"]["n"] < last["accuracy"]["n"] for row in before):
            found.append(last)
    return found or final(rows)


def loss(subjects: Sequence[Subject]) -> list[str]:
    curves = {subject.name: thinned([(step, value) for step, value, _ in subject.losses]) for subject in subjects}
    curves = {name: points for name, points in curves.items() if len(points) > 1}
    if not curves:
        return []
    few = max(map(len, curves.values())) <= 20
    lines = [Line(name, [s for s, _ in points], [v for _, v in points], marks=few) for name, points in curves.items()]
    positive = min(min(line.y) for line in lines) > 0
    wide = positive and max(max(line.y) for line in lines) > 8 * min(min(line.y) for line in lines)
    label = "loss (log scale)" if wide else "loss"
    return [line_chart(lines, title="Condensation loss", x_label="step", y_label=label, log_y=wide)]


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most MOST_POINTS, each the mean of its neighbours."""
    size = -(-len(points) // MOST_POINTS) if points else 1
    parts = [points[i : i + size] for i in range(0, len(points), size)]
    return [(part[len(part) // 2][0], sum(v for _, v in part) / len(part)) for part in parts]


def across_networks(rows: Sequence[Row]) -> list[str]:
    """Bars by network, one per set; a chart per protocol."""
    made = []
    for protocol, of in grouped(rows, "protocol").items():
        sets = list(dict.fromkeys(row["set"] for row in of))
        groups = []
        for network, bars in grouped(of, "network").items():
            ordered = sorted(bars, key=lambda row: sets.index(row["set"]))
            values = [
                (sets.index(r["set"]), spread(r["accuracy"]), r["accuracy"]["mean"], r["accuracy"]["std"])
                for r in ordered
            ]
            groups.append((network, values))
        if sum(len(bars) for _, bars in groups) <= MOST_BARS:
            title = "Accuracy across networks" if len(groups) > 1 else "Accuracy"
            made.append(bar_chart(groups, sets, title=f"{title} ({protocol})", x_label="test accuracy (%)"))
    return made


def along_training(rows: Sequence[Row]) -> list[str]:
    """The budget figure: a chart per network, where a training was measured at several steps."""
    made = []
    for network, of in grouped(rows, "network").items():
        lines = []
        for (name, _), line in grouped_by(of, ("set", "protocol")).items():
            ordered = sorted(line, key=lambda row: row["train_steps"])
            if len({row["train_steps"] for row in ordered}) > 1:
                lines.append(accuracy_line(name, [row["train_steps"] for row in ordered], ordered))
        if lines:
            label = "training steps (log scale)"
            title = f"Accuracy along training, {network}"
            made.append(line_chart(lines, title=title, x_label=label, y_label="test accuracy (%)", log_x=True))
    return made


def against_bytes(rows: Sequence[Row]) -> list[str]:
    made = []
    for (network, protocol), of in grouped_by(rows, ("network", "protocol")).items():
        kinds: dict[str, list[Row]] = {}
        for row in of:
            kinds.setdefault(variant_kind(row["set"]) or "", []).append(row)
        lines = []
        for kind, line in kinds.items():
            ordered = sorted(line, key=lambda row: row["bytes"])
            lines.append(
                accuracy_line(
                    f"fewer {kind}" if kind != "precision" else kind, [r["bytes"] / 1000 for r in ordered], ordered
                )
            )
        title = f"Accuracy against bytes, {network}, {protocol}"
        made.append(line_chart(lines, title=title, x_label="kB of the condensed set", y_label="test accuracy (%)"))
    return made


def against_time(compared: Sequence[Row]) -> list[str]:
    """Methods of `tinyset compare`: a point each."""
    points = [row for row in compared if row["method"] != "full"]
    if not points:
        return []
    lines = [accuracy_line(row["method"], [row["seconds"] / 60], [row]) for row in points]
    title, label = "Methods at equal storage", "minutes of condensation, set-up included"
    return [line_chart(lines, title=title, x_label=label, y_label="test accuracy (%)")]


def accuracy_line(name: str, at: Sequence[float], rows: Sequence[Row]) -> Line:
    return Line(name, at, [r["accuracy"]["mean"] for r in rows], [r["accuracy"]["std"] or 0.0 for r in rows])


def grouped(rows: Sequence[Row], key: str) -> Mapping[str, list[Row]]:
    return {name[0]: of for name, of in grouped_by(rows, (key,)).items()}


def grouped_by(rows: Sequence[Row], keys: Sequence[str]) -> dict[tuple[str, ...], list[Row]]:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups
