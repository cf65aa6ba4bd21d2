"""docs/results.md as text: goals, the paper's two tables with our rows, the budget and picture figures, ablations."""

import re
from collections.abc import Sequence
from typing import Any

from records.book import Ablation, Book, Cell, Goal, Recipe
from records.costs import cost
from tinyset.condensed import shipped
from tinyset.evaluation.metrics import Spread
from tinyset.plan import gigabytes
from tinyset.records import RunRecord

NOT_THE_RESULT = {"device", "threads", "time_limit_s", "checkpoint_every", "memory_limit_bytes"}
HEAD = """# Results

<!-- made by `make results` from records/; do not edit -->
Accuracies in percent on the real test images, mean ± standard deviation over n trainings; the last epoch, nothing selected on the
test split. The storage is that of n full-size images per class by the papers' count. A miss is shown as a miss. Each number has a
folder in `records/results/` with its settings, log, machine and hash; `tinyset reproduce records/results/NAME` makes it again by
its recorded steps.

`kfr` is beyond the paper (docs/methods/kfr.md); plain KFS has rows of its own. Networks are trained for the paper's 200 epochs
unless a row says otherwise; `kfs-aug` adds flips (not for digits) and shifts, `kfs-cutmix` also CutMix in every second batch
(docs/evaluation.md). "Whitened": networks see images through a filter of 225 numbers, which the count leaves out as the papers
leave out the ZCA matrices of MTT and KIP (docs/methods/kfr.md).
"""
BUDGET = """## Accuracy along a training
The batch is min(N, 256) unless the protocol names another; the rate drops at 2/3 and 5/6 of the last step.
"""
PICTURES = """## Pictures
All codes through one decoder, and one code through all decoders, of the sets that come with the package.
"""
HELPS = """## What helps
Each row changes the base in what it names and in nothing else; the storage is the same.
"""
NAMES = {"svhn": "SVHN", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tinyimagenet": "TinyImageNet"}
NETWORKS = {"convnet3": "ConvNet-3", "resnet10": "ResNet-10", "densenet121": "DenseNet-121"}


def page(book: Book) -> str:
    parts = [
        HEAD,
        goals(book),
        recipes(book),
        table1(book),
        table2(book),
        budget(book),
        pictures(book),
        ablations(book),
    ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def goals(book: Book) -> str:
    headings = ["", "ours", "n", "paper", "floor", "goal", "", "steps", "condensed in", "record"]
    asked, others = (
        pipe_table(headings, [_goal(book, goal) for goal in of]) for of in (book.cells.goals, book.cells.others)
    )
    text = "Condensed on two cores within 150 minutes, bank and set-up included, unless the row says otherwise.\n\n"
    rest = "\nThe same targets by other trainings, and by sets of before:\n\n" + others if book.cells.others else ""
    return "## What was asked and what came out\n" + text + asked + rest


def _goal(book: Book, goal: Goal) -> list[str]:
    ours, least, wanted = book.measured(goal), goal.floor, goal.goal
    asked = [f"{goal.floor:g}", f"{goal.goal:g}"]
    if goal.above is not None:
        base = book.baseline(goal, goal.above)
        asked = [
            f"{goal.above} + {number:g}" + (f" = {base.mean + number:.1f}" if base else "")
            for number in (least, wanted)
        ]
        least, wanted = (base.mean + least, base.mean + wanted) if base else (float("inf"), float("inf"))
    paper = "–" if goal.paper is None else str(goal.paper)
    return [
        goal.what,
        *_number(ours),
        paper,
        *asked,
        _verdict(ours, least, wanted, goal.why),
        *cost(book, book.of(goal)),
    ]


def _verdict(ours: Spread | None, least: float, wanted: float, why: str) -> str:
    if ours is None:
        return why
    mean = round(ours.mean, 1)  # as it is shown
    if mean >= wanted:
        return "**goal reached**"
    if mean >= least:
        return f"floor reached, goal missed by {wanted - mean:.1f}"
    return f"**missed**, {least - mean:.1f} below the floor" if least < float("inf") else "the baseline was not run"


def _number(ours: Spread | None) -> list[str]:
    return ["–", "–"] if ours is None else [str(ours), str(ours.n)]


def recipes(book: Book) -> str:
    headings = ["`tinyset condense`", "accuracy", "n", "condensed in", "threads", "memory at most", "record"]
    return "## What the recipes give and cost\n" + pipe_table(
        headings, [_recipe(book, own) for own in book.cells.recipes]
    )


def _recipe(book: Book, own: Recipe) -> list[str]:
    ours, records = book.measured(own), book.of(own)
    flags = re.sub(
        r"--start (\S+,\S+)", lambda found: f"--start SET,... ({1 + found[1].count(',')} of them)", own.flags
    )
    if ours is None:
        return [f"`{flags}`", "–", "–", own.why, "", "", ""]
    threads = dict.fromkeys(str(record.environment.get("threads", "?")) for record in records)
    memory = [record.peak_memory_bytes for record in records if record.peak_memory_bytes is not None]
    _, spent, links = cost(book, records)
    return [
        f"`{flags}`",
        *_number(ours),
        spent,
        ", ".join(threads),
        gigabytes(max(memory)) if memory else "?",
        links,
    ]


def table1(book: Book) -> str:
    """The paper's layout: a row per method, a column per dataset and storage."""
    columns: list[str] = book.published["paper"]["columns"]
    lines = []
    for source in ("paper", "later"):
        for name, values in book.published[source]["table1"].items():
            lines.append([name, *("–" if value is None else str(value) for value in values)])
    at = next((i for i, line in enumerate(lines) if line[0] == "Full dataset"), len(lines))
    full = lines.pop(at) if at < len(lines) else None
    notes = []
    for row in book.cells.table1:
        cells = {column: row.cells.get(column, Cell(why=row.otherwise)) for column in columns}
        found = {column: book.measured(cell) for column, cell in cells.items()}
        lines.append([f"**{row.name}**", *("not run" if value is None else f"**{value}**" for value in found.values())])
        missing = [column for column in columns if found[column] is None]
        for why in dict.fromkeys(cells[column].why for column in missing):
            where = "; ".join(_title(column) for column in missing if cells[column].why == why)
            notes.append(f"- {row.name}, {where}: {why}.")
    lines += [full] if full else []
    sources = "; ".join(f"{book.published[source]['source']}" for source in ("paper", "later"))
    return (
        "## Table 1: ConvNet-3\n"
        + pipe_table(["images per class", *(_title(column) for column in columns)], lines)
        + f"\nPublished rows: {sources}.\n"
        + ("\nNot run:\n\n" + "\n".join(notes) + "\n" if notes else "")
    )


def table2(book: Book) -> str:
    """Condensed with ConvNet-3, evaluated with others."""
    networks: list[str] = book.published["paper"]["networks"]
    lines, notes = [], []
    for name, cells in book.cells.table2.items():
        published = [
            [_title(name), method, *map(str, of)] for method, of in book.published["paper"]["table2"][name].items()
        ]
        ours = []
        for cell in cells:
            found = [book.measured(cell.model_copy(update={"network": network})) for network in networks]
            said = ["not run" if value is None else f"**{value}** (n = {value.n})" for value in found]
            how = f", `{cell.protocol}`" if cell.protocol else ""
            ours.append([_title(name), f"**tinyset**{how}", *said])
            if None in found:
                notes.append(f"- {_title(name)}{how}: {cell.why}.")
        lines += [*published[:-1], *ours, published[-1]]  # the full dataset is the last
    headings = ["set", "method", *(NETWORKS.get(network.partition(":")[0], network) for network in networks)]
    return (
        "## Table 2: other architectures\nCondensed with ConvNet-3, evaluated with others; ours with "
        + ", ".join(f"`{network}`" for network in networks)
        + ", the forms for small images that IDC's numbers are of.\n\n"
        + pipe_table(headings, lines)
        + ("\nNot run:\n\n" + "\n".join(notes) + "\n" if notes else "")
    )


def budget(book: Book) -> str:
    """The paper's budget figure: accuracy along the steps of a training, as a chart and as numbers."""
    parts = [BUDGET]
    for name, cell in book.cells.budget.items():
        rows = [row for record in book.of(cell) for row in record.along(cell.network)]
        if not rows:
            parts.append(f"{_title(name)}: {cell.why}.\n")
            continue
        steps = sorted({row.step for row in rows})
        lines: dict[tuple[str, str], dict[int, Spread]] = {}
        for row in rows:
            lines.setdefault((row.set, row.protocol), {})[row.step] = row.accuracy
        cells = [
            [
                f"{of}, `{how}`",
                str(max(spread.n for spread in along.values())),
                *(str(along.get(at, "")) for at in steps),
            ]
            for (of, how), along in lines.items()
        ]
        parts.append(f"![{_title(name)}: accuracy along training steps](pictures/budget-{name}.svg)\n")
        parts.append(pipe_table([f"{_title(name)}, steps", "n", *(f"{step:,}" for step in steps)], cells))
    return "\n".join(parts)


def pictures(book: Book) -> str:
    parts = [PICTURES]
    for name in book.cells.pictures:
        shown = f"![{_title(name)}: codes, then decoders](pictures/shipped-{name}.png)"
        parts.append(f"{shown}\n" if name in shipped() else f"{_title(name)}: not shipped yet.\n")
    return "\n".join(parts)


def ablations(book: Book) -> str:
    parts = [HELPS]
    for group in book.cells.ablations:
        named = {name: record for name, record in book.ablations.items() if name.startswith(group.of)}
        if not named:
            parts.append(f"{group.what}: not run yet.\n")
            continue
        base = named.pop(group.base, None) or book.results.get(group.base)
        ordered = [*filter(None, [base]), *(named[name] for name in sorted(named))]
        lines = [_ablation(book, record, base, group) for record in ordered]
        parts.append(pipe_table([group.what, "accuracy", "n", "steps", "condensed in", "record"], lines))
    return "\n".join(parts)


def _ablation(book: Book, record: RunRecord, base: RunRecord | None, group: Ablation) -> list[str]:
    values = record.accuracies(group.network, group.protocol)
    changed = "the base" if base is record else differences(record, base) if base is not None else record.name
    return [changed, *_number(Spread.of(values) if values else None), *cost(book, [record])]


def differences(record: RunRecord, base: RunRecord) -> str:
    """The settings in which two runs differ, and nothing that cannot change the result."""
    now, then = record.config.model_dump(), base.config.model_dump()
    said = [_change(key, then[key], now[key]) for key in now if key not in NOT_THE_RESULT and now[key] != then[key]]
    return "; ".join(said) or "the same settings"


def _change(key: str, then: Any, now: Any) -> str:
    if isinstance(now, dict) and isinstance(then, dict):
        keys = [k for k in {**then, **now} if then.get(k) != now.get(k)]
        return "; ".join(_change(f"rate of {k}" if key == "rates" else k, then.get(k), now.get(k)) for k in keys)
    return f"{key} {'–' if then is None else then} → {'–' if now is None else now}"


def pipe_table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [headings, ["---"] * len(headings), *([cell.replace("|", "\\|") for cell in line] for line in lines)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def _title(name: str) -> str:
    """`cifar10-1` -> `CIFAR-10, 1`."""
    data, _, count = name.partition("-")
    return f"{NAMES.get(data, data)}, {count}"
