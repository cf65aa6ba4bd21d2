"""Train networks on a condensed set and test them on the real test images: mean ± std, n, and what it cost."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from tinyset.cli.common import Common, DataFlags, read_data
from tinyset.errors import UserError

if TYPE_CHECKING:
    from tinyset.cli.console import Console
    from tinyset.condensed import CondensedSet
    from tinyset.data.imageset import Splits
    from tinyset.interrupts import Stop


@dataclass(kw_only=True)
class Args(Common, DataFlags):
    artifact: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="ARTIFACT ...")]
    """One or more condensed sets: folders, or names of shipped ones."""
    data: str | None = None
    """The real images, as for `condense` (default: the source the set names)."""
    network: str = "convnet3"
    """Networks, separated by commas: convnet3, resnet18, vgg11, convnet3:width=64, package.module:factory, ..."""
    protocol: str | None = None
    """Protocols, separated by commas: kfs, kfs-aug, kfs-cutmix, dc, dsa, idc, steps:N (default: the set's own)."""
    repeats: int = 1
    """Trainings of each cell, from the seeds seed, seed+1, ..."""
    baselines: str | None = None
    """Rows at equal storage, separated by commas: random, random-uint8, kfs-0, full."""
    robustness: bool = False
    """Also test under noise, blur, contrast and shift."""
    budget_steps: str | None = None
    """Instead: accuracy along these training steps (100,1000,5000, or `paper`: 100 to 20,000) with the augmentation of
    --protocol (default: of kfs-aug); a chart with --out."""
    storage_curve: bool = False
    """Instead: accuracy against bytes, for coarser numbers and fewer decoders or codes."""
    results: str | None = None
    """The file of finished measurements (default: results.jsonl in the set's folder, or the cache)."""
    fresh: bool = False
    """Measure again what is already in the results."""
    compile: Literal["auto", "always", "never"] = "auto"
    """torch.compile (default: where the training is long enough)."""
    format: Literal["table", "markdown", "latex"] = "table"
    """How the table is printed."""
    out: str | None = None
    """A folder for table.md, table.tex, results.json and charts."""


def run(args: Args, console: "Console") -> int:
    from tinyset.condensed import load
    from tinyset.data.load import BENCHMARKS
    from tinyset.interrupts import Stop, signals_to
    from tinyset.machine import set_threads
    from tinyset.processes import team

    if not args.artifact:
        raise UserError("Name a condensed set to evaluate.")
    if len(set(args.artifact)) < len(args.artifact):
        raise UserError("The same condensed set is named twice.")
    steps = parse_steps(args.budget_steps)
    sets = [load(path) for path in args.artifact]
    source = args.data or sets[0].config.source
    if args.data is None and source not in BENCHMARKS:  # a path inside a stranger's file is not followed
        raise UserError(f"--data: the condensed set was made of {source or 'unnamed images'!r}; name the real images.")
    set_threads(args.threads)
    with signals_to(Stop()) as stop:
        data = read_data(source, args, console, args.seed)
        found = measure(args, sets, data, steps, console, stop)
    if team().leads:
        report(args, found, console)
    return 0


def measure(
    args: Args, sets: "list[CondensedSet]", data: "Splits", steps: list[int], console: "Console", stop: "Stop"
) -> dict[str, Any]:
    """The JSON object: `rows`, each of a `kind`: table, budget or storage."""
    from tinyset.evaluation import accuracy_along, evaluate, list_corruptions, storage_curve

    options: dict[str, Any] = {
        "repeats": args.repeats,
        "seed": args.seed,
        "device": args.device,
        "compile": None if args.compile == "auto" else args.compile == "always",
        "results": None if args.results is None else Path(args.results),
        "fresh": args.fresh,
        "progress": console.progress,
        "stop": stop,
    }
    networks, baselines = split_networks(args.network), split(args.baselines)
    protocols = split(args.protocol)
    names: list[str | None] = [None] if len(sets) == 1 else [*set_names(args.artifact)]
    parts: list[tuple[str, Any]] = []
    if steps:
        labels = [name or condensed.config.method for name, condensed in zip(names, sets, strict=True)]
        beside: dict[str, Any] = {"baselines": baselines, "augmentation": augmentation_along(protocols)}
        for network in networks:
            parts.append(("budget", accuracy_along(sets, data, network, steps, names=labels, **beside, **options)))
    for condensed in sets if args.storage_curve else ():
        for network in networks:
            for protocol in protocols or [condensed.protocol]:
                parts.append(("storage", storage_curve(condensed, data, network, protocol, **options)))
    if not parts:
        corruptions = list_corruptions() if args.robustness else ()
        for i, (condensed, name) in enumerate(zip(sets, names, strict=True)):
            made = evaluate(
                condensed,
                data,
                networks,
                protocols or None,
                baselines=baselines if i == 0 else (),
                corruptions=corruptions,
                name=name,
                **options,
            )
            parts.append(("table", made))
    rows = [{"kind": kind, **row.to_dict()} for kind, made in parts for row in made.rows]
    return {"data": data.name, "class_names": list(data.class_names), "results": str(parts[0][1].results), "rows": rows}


def augmentation_along(protocols: list[str]) -> str:
    """What --budget-steps takes of --protocol, its augmentation and its batch; the lengths are its own."""
    from tinyset.protocols import BATCH, protocol

    if len(protocols) > 1:
        raise UserError(f"--budget-steps goes with one protocol, not {len(protocols)}.")
    wanted = protocol(protocols[0] if protocols else "kfs-aug")
    if wanted.cutmix and wanted.augmentation != "flip-shift":
        raise UserError(
            f"--budget-steps cannot follow the augmentation of {wanted.name}; kfs, kfs-aug and kfs-cutmix can be."
        )
    batch = "" if wanted.batch == BATCH else f":batch={wanted.batch}"
    return ("cutmix" if wanted.cutmix else wanted.augmentation) + batch


def report(args: Args, found: dict[str, Any], console: "Console") -> None:
    from tinyset.files import write_atomic, write_json
    from tinyset.report import tables

    rows = found["rows"]
    if args.out is not None:
        folder = Path(args.out)
        write_atomic(folder / "table.md", tables.markdown(rows))
        write_atomic(folder / "table.tex", tables.latex(rows))
        write_json(folder / "results.json", found)
        charts(rows, folder)
    console.json(found)
    printed = {"table": tables.text, "markdown": tables.markdown, "latex": tables.latex}[args.format]
    console.print(printed(rows).rstrip("\n"))


def charts(rows: list[dict[str, Any]], folder: Path) -> None:
    from tinyset.report.charts import budget_chart, storage_chart

    for kind, chart in (("budget", budget_chart), ("storage", storage_chart)):
        of_kind = [row for row in rows if row["kind"] == kind]
        for network in dict.fromkeys(row["network"] for row in of_kind):
            safe = "".join(letter if letter.isalnum() else "-" for letter in network)
            chart([row for row in of_kind if row["network"] == network], folder / f"{kind}-{safe}", network)


def split(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def split_networks(text: str) -> list[str]:
    """Commas separate networks, and also the options of one: `vgg11,convnet3:width=64,norm=batch` is two."""
    networks: list[str] = []
    for part in split(text):
        if "=" in part and ":" not in part and networks:
            networks[-1] += "," + part
        else:
            networks.append(part)
    if not networks:
        raise UserError("--network: name one.")
    return networks


def parse_steps(text: str | None) -> list[int]:
    if text is None:
        return []
    if text == "paper":
        from tinyset.evaluation.along import STEPS

        return list(STEPS)
    try:
        return [int(part.replace("_", "")) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--budget-steps {text}: write whole numbers, 100,1000,5000, or `paper`.") from None


def set_names(paths: tuple[str, ...]) -> list[str]:
    """What tells several artifacts apart: the run's folder, or the whole path where folders repeat."""
    short = [Path(path).parent.name if Path(path).name == "artifact" else Path(path).name for path in paths]
    return short if len(set(short)) == len(short) else list(paths)
