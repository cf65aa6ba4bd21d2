"""Search hyper-parameters (hp) or ConvNets (nas) on a condensed set and confirm the best few on real images."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from tinyset.cli.common import Common, DataFlags, read_data
from tinyset.errors import UserError

if TYPE_CHECKING:
    from tinyset.cli.console import Console

ONLY = {"trials": "hp", "network": "hp", "points": "nas", "batch": "nas"}  # flags of one kind of search


@dataclass(kw_only=True)
class Args(Common, DataFlags):
    kind: tyro.conf.Positional[Literal["hp", "nas"]]
    """hp: rate, momentum, weight decay, batch, augmentation, CutMix; nas: depth, width, norm, activation, pooling."""
    artifact: str
    """The condensed set to search on."""
    data: str
    """The real images, as for `condense`. Their test split is not opened."""
    trials: int | None = None
    """hp: trainings on each set (default: 16)."""
    network: str | None = None
    """hp: the network to train (default: convnet3)."""
    points: int | None = None
    """nas: networks, a seeded sample of the space (default: 24)."""
    batch: int | None = None
    """nas: images of a training step (default: 256)."""
    space: str | None = None
    """A YAML file that changes the space, for example `width: [8, 16]` or `rate: [0.001, 0.1]`."""
    steps: int = 300
    """Training steps on the condensed set and on the selections beside it."""
    real_per_class: int = 500
    """Real images of each class that candidates are confirmed on."""
    real_steps: int = 1000
    """Training steps on them."""
    confirm: int = 4
    """How many of the best of each set are trained on the real images."""
    all_real: bool = False
    """Train every candidate on the real images: the rank correlation is then over all, and nothing is saved."""
    beside: str | None = None
    """Selections of real images at the same bytes: random, herding, or none (default: random; nas: both)."""
    validation: float = 0.1
    """Share of the training split that scores are measured on."""
    repeats: int = 1
    """Trainings behind every score, from the seeds seed, seed+1, ..."""
    out: str | None = None
    """A folder for results.json, table.md and a chart; a search that was stopped or killed goes on there."""


def run(args: Args, console: "Console") -> int:
    for name, kind in ONLY.items():
        if getattr(args, name) is not None and args.kind != kind:
            raise UserError(f"--{name} is a flag of `tinyset search {kind}`.")
    from tinyset.condensed import load
    from tinyset.downstream.arena import SearchSettings
    from tinyset.downstream.search import search_hyper_parameters, search_networks
    from tinyset.downstream.space import ConvNets, HyperParameters
    from tinyset.interrupts import Stop, signals_to
    from tinyset.machine import set_threads

    given: dict[str, Any] = {name: value for name in ONLY if (value := getattr(args, name)) is not None}
    search: Any = search_hyper_parameters if args.kind == "hp" else search_networks
    space = (HyperParameters if args.kind == "hp" else ConvNets).parse(read_space(args.space), f"--space {args.space}")
    beside = args.beside or ("random" if args.kind == "hp" else "random,herding")
    settings = SearchSettings(
        steps=args.steps,
        real_per_class=args.real_per_class,
        real_steps=args.real_steps,
        validation=args.validation,
        beside=tuple(name.strip() for name in beside.split(",")) if beside != "none" else (),
        confirm=args.confirm,
        all_real=args.all_real,
        repeats=args.repeats,
        seed=args.seed,
    )
    set_threads(args.threads)
    artifact = load(args.artifact)
    with signals_to(Stop()) as stop:
        found = search(
            artifact,
            read_data(args.data, args, console, args.seed),
            space=space,
            settings=settings,
            out=None if args.out is None else Path(args.out),
            device=args.device,
            progress=console.progress,
            stop=stop,
            **given,
        )
    report(args, found, console)
    return 0


def read_space(path: str | None) -> dict[str, Any]:
    from tinyset.config import load_yaml

    if path is None:
        return {}
    try:
        return load_yaml(Path(path).read_text(encoding="utf-8"), f"--space {path}")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--space {path} cannot be read: {error}.") from None


def report(args: Args, found: dict[str, Any], console: "Console") -> None:
    from tinyset.files import write_atomic, write_json
    from tinyset.machine import environment
    from tinyset.report import tables

    rows = found["rows"]
    if args.out is not None:
        from tinyset.report.charts import search_chart

        folder = Path(args.out)
        write_json(folder / "results.json", found)
        write_json(folder / "env.json", environment())
        write_atomic(folder / "table.md", tables.markdown(rows))
        search_chart(rows, found["candidates"], folder / "chart", f"{found['data']}: {sentence(found)}")
    console.json(found)
    console.print(tables.text(rows).rstrip("\n"))
    console.print(
        f"\n{sentence(found)[:1].upper() + sentence(found)[1:]}; scores on {found['validation_images']:,} images"
    )
    console.print("of the training split. Found on the condensed set: " + words(rows[0]["answer"], args.kind))


def sentence(found: dict[str, Any]) -> str:
    real = found["rows"][-1]
    return f"{found['steps']} steps against {found['real_steps']} on {real['images']:,} real images"


def words(answer: dict[str, Any], kind: str) -> str:
    if kind == "nas":
        return str(answer["network"])
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in answer.items() if key != "network")
