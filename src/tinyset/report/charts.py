"""Charts of results, PNG and SVG, from the rows of `tinyset evaluate --json`. matplotlib is imported when needed."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tinyset.errors import RunError, needs_extra

Rows = Sequence[Mapping[str, Any]]
COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#000000",
)  # told apart by colour-blind eyes


def budget_chart(rows: Rows, stem: Path, title: str = "") -> list[Path]:
    """Accuracy along training steps, a line per set; the band is one standard deviation over seeds."""

    def draw(axes: Any) -> None:
        for (name, line), colour in zip(_by_set(rows).items(), _colours(), strict=False):
            steps = [row["train_steps"] for row in line]
            _line(axes, steps, line, f"{name} ({line[0]['bytes'] / 1000:,.0f} kB)", colour)
        axes.set_xscale("log")
        axes.set_xlabel("training steps (log scale)")

    return _save(draw, stem, title)


def storage_chart(rows: Rows, stem: Path, title: str = "") -> list[Path]:
    """Accuracy against real bytes; the variants of each kind are joined."""

    def draw(axes: Any) -> None:
        groups: dict[str, list[Mapping[str, Any]]] = {"precision": [], "decoders": [], "codes": []}
        for row in rows:
            kind = next((word for word in ("decoders", "codes") if row["set"].endswith(word)), "precision")
            groups[kind].append(row)
        for (kind, line), colour in zip(groups.items(), _colours(), strict=False):
            ordered = sorted(line, key=lambda row: row["bytes"])
            _line(axes, [row["bytes"] / 1000 for row in ordered], ordered, kind, colour)
            for row in ordered:
                at = (row["bytes"] / 1000, row["accuracy"]["mean"])
                axes.annotate(row["set"].rpartition(": ")[2], at, fontsize=7, xytext=(3, 4), textcoords="offset points")
        axes.margins(x=0.15)  # room for the words at the right
        axes.set_xlabel("bytes of the condensed set (kB)")

    return _save(draw, stem, title)


def time_chart(rows: Rows, stem: Path, title: str = "") -> list[Path]:
    """Accuracy against condensation time, a point per method; the bar is one standard deviation over seeds."""

    def draw(axes: Any) -> None:
        for row, colour in zip(rows, _colours(), strict=False):
            accuracy, minutes = row["accuracy"], row["seconds"] / 60
            if row["method"] == "full":
                axes.axhline(accuracy["mean"], color="#888888", linestyle="--", linewidth=1, label="full data")
                continue
            axes.errorbar(minutes, accuracy["mean"], accuracy["std"] or 0, fmt="o", color=colour, capsize=3)
            axes.annotate(  # named on the spot: eleven entries of a legend would hide points
                row["method"], (minutes, accuracy["mean"]), fontsize=7, xytext=(5, 3), textcoords="offset points"
            )
        axes.set_xlabel("minutes of condensation, set-up included")

    return _save(draw, stem, title)


def search_chart(rows: Rows, candidates: Rows, stem: Path, title: str = "") -> list[Path]:
    """Each candidate's score on real images against its score on a small set; a colour per set."""

    def draw(axes: Any) -> None:
        for row, marker, colour in zip(rows[:-1], "os^", _colours(), strict=False):  # the last row is the real images
            both = [c["accuracy"] for c in candidates if {row["set"], "real"} <= c["accuracy"].keys()]
            x, y = ([scores[name] for scores in both] for name in (row["set"], "real"))
            ranked = "" if row["spearman"] is None else f", rank correlation {row['spearman']:.2f}"
            axes.scatter(x, y, 22, color=colour, marker=marker, alpha=0.8, label=f"{row['set']}{ranked}")
        axes.set_xlabel("validation accuracy after training on the small set (%)")

    return _save(draw, stem, title, "after training on real images (%)")


def loss_chart(losses: Mapping[str, Sequence[tuple[float, float]]], stem: Path, title: str = "") -> list[Path]:
    """The condensation loss of each run, (step, loss), on a log scale where it is positive."""

    def draw(axes: Any) -> None:
        for (name, points), colour in zip(losses.items(), _colours(), strict=False):
            axes.plot([step for step, _ in points], [loss for _, loss in points], color=colour, label=name)
        if all(loss > 0 for points in losses.values() for _, loss in points):
            axes.set_yscale("log")
        axes.set_xlabel("step")

    return _save(draw, stem, title, "condensation loss")


def network_chart(rows: Rows, stem: Path, title: str = "") -> list[Path]:
    """Accuracy by network, a bar per set; the black line is one standard deviation over seeds."""
    sets, networks = (list(dict.fromkeys(row[key] for row in rows)) for key in ("set", "network"))
    height = 0.8 / len(sets)

    def draw(axes: Any) -> None:
        for i, (name, colour) in enumerate(zip(sets, _colours(), strict=False)):
            line = [row for row in rows if row["set"] == name]
            at = [networks.index(row["network"]) + (i - (len(sets) - 1) / 2) * height for row in line]
            mean, std = ([row["accuracy"][key] for row in line] for key in ("mean", "std"))
            bars = axes.barh(at, mean, height * 0.9, xerr=std if any(std) else None, color=colour, label=name)
            axes.bar_label(bars, fmt="%.1f", fontsize=7, padding=2)
        axes.set_yticks(range(len(networks)), networks)
        axes.invert_yaxis()
        axes.set_xlim(0, 100)
        axes.set_xlabel("test accuracy (%)")

    return _save(draw, stem, title, "")


def stream_chart(rows: Rows, stem: Path, title: str = "") -> list[Path]:
    """Accuracy on all classes seen after each step of a stream, a line per memory; the band is one standard deviation."""

    def draw(axes: Any) -> None:
        for name, colour in zip(dict.fromkeys(row["memory"] for row in rows), _colours(), strict=False):
            line = [row for row in rows if row["memory"] == name]
            _line(axes, [row["step"] for row in line], line, f"{name} ({line[-1]['bytes'] / 1000:,.1f} kB)", colour)
        axes.set_xticks(sorted({row["step"] for row in rows}))
        axes.set_xlabel("step of the stream")

    return _save(draw, stem, title)


def bytes_chart(rows: Rows, stem: Path, title: str = "") -> list[Path]:
    """Accuracy against bytes, a line per name; the band is one standard deviation over seeds."""

    def draw(axes: Any) -> None:
        for name, colour in zip(dict.fromkeys(row["set"] for row in rows), _colours(), strict=False):
            line = sorted((row for row in rows if row["set"] == name), key=lambda row: row["bytes"])
            _line(axes, [row["bytes"] / 1000 for row in line], line, name, colour)
        axes.set_xlabel("bytes (kB)")

    return _save(draw, stem, title)


def privacy_chart(rows: Rows, stem: Path, title: str = "") -> list[Path]:
    """The attack's accuracy and the share nearer to training images, with 95 % intervals; 50 % gives nothing away."""
    shown = {"membership inference": ("attack_percent", "attack_interval"),
             "nearer to a training image": ("nearer_to_train_percent", "nearer_interval")}  # fmt: skip

    def draw(axes: Any) -> None:
        for i, ((label, (value, interval)), colour) in enumerate(zip(shown.items(), _colours(), strict=False)):
            at = [place + (i - 0.5) / 4 for place in range(len(rows))]
            middle = [row[value] for row in rows]
            below = [row[value] - row[interval][0] for row in rows]
            above = [row[interval][1] - row[value] for row in rows]
            axes.errorbar(middle, at, xerr=[below, above], fmt="o", color=colour, label=label, capsize=3)
        axes.axvline(50, color="#888888", linestyle="--", linewidth=1)
        axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
        axes.invert_yaxis()
        axes.set_xlabel("% (50: guessing)")

    return _save(draw, stem, title, "")


def _by_set(rows: Rows) -> dict[str, list[Mapping[str, Any]]]:
    lines: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        lines.setdefault(row["set"], []).append(row)
    return {name: sorted(line, key=lambda row: row["train_steps"]) for name, line in lines.items()}


def _colours() -> Sequence[str]:
    return COLOURS * 10


def _line(axes: Any, at: Sequence[float], line: Rows, label: str, colour: str) -> None:
    if not line:
        return
    mean = [row["accuracy"]["mean"] for row in line]
    std = [row["accuracy"]["std"] for row in line]
    axes.plot(at, mean, "o-", color=colour, label=label, markersize=4)
    low, high = ([m + sign * s for m, s in zip(mean, std, strict=True)] for sign in (-1, 1))
    axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)


def _save(draw: Callable[[Any], None], stem: Path, title: str, y_label: str = "test accuracy (%)") -> list[Path]:
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise needs_extra("matplotlib", "plot", "A chart") from None
    with matplotlib.rc_context({"svg.hashsalt": "tinyset", "svg.fonttype": "none"}):
        figure = Figure(figsize=(6.4, 4.2), dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        draw(axes)
        axes.set_ylabel(y_label)
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        paths = [stem.with_suffix(suffix) for suffix in (".png", ".svg")]
        try:
            stem.parent.mkdir(parents=True, exist_ok=True)
            for path in paths:
                figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        except OSError as error:
            raise RunError(f"Cannot write {stem}: {error.strerror or error}.") from error
    return paths
