"""Train a network on a condensed set and keep its weights: one safetensors file that knows its classes."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from tinyset.cli.common import Common, DataFlags, read_data
from tinyset.errors import UserError

if TYPE_CHECKING:
    from tinyset.cli.console import Console


@dataclass(kw_only=True)
class Args(Common, DataFlags):
    artifact: tyro.conf.Positional[str]
    """A condensed set's folder, or the name of a shipped one."""
    out: str
    """The file to write, for example model.safetensors."""
    network: str = "convnet3"
    """convnet3, resnet18, vgg11, convnet3:width=64, package.module:factory, ..."""
    protocol: str | None = None
    """kfs, kfs-aug, kfs-cutmix, dc, dsa, idc or steps:N (default: the set's own)."""
    data: str | None = None
    """Real images, as for `condense`: the accuracy on their test split is said."""
    compile: Literal["auto", "always", "never"] = "auto"
    """torch.compile (default: where the training is long enough)."""
    overwrite: bool = False
    """Replace the file that is there."""


def run(args: Args, console: "Console") -> int:
    if Path(args.out).is_dir() or (Path(args.out).exists() and not args.overwrite):
        raise UserError(f"--out {args.out} exists: choose another file or use --overwrite.")
    from tinyset.condensed import load
    from tinyset.downstream.train import train
    from tinyset.evaluation.rows import check
    from tinyset.interrupts import Stop, signals_to
    from tinyset.machine import pick_device, set_threads

    set_threads(args.threads)
    condensed, device = load(args.artifact), pick_device(args.device)
    with signals_to(Stop()) as stop:
        data = None if args.data is None else read_data(args.data, args, console, args.seed)
        if data is not None:
            check(condensed, data)
        if data is not None and data.test is None:
            raise UserError(f"--data {args.data} has no test split: keep a part of it for testing with --holdout 0.1.")
        model = train(
            condensed,
            args.network,
            args.protocol,
            seed=args.seed,
            device=device,
            compile=None if args.compile == "auto" else args.compile == "always",
            progress=console.progress,
            stop=stop,
        )
    path = model.save(args.out, overwrite=args.overwrite)
    found: dict[str, Any] = {"path": str(path), "bytes": path.stat().st_size, **model.card.model_dump(mode="json")}
    said = f"{path}: {args.network} after {model.card.steps:,} steps, {len(model.class_names)} classes, {found['bytes']:,} bytes"
    if data is not None and data.test is not None:
        right = model.predict(data.test.images, device) == data.test.labels
        found["accuracy"] = round(100 * right.float().mean().item(), 4)
        said += f"; {found['accuracy']:.1f} % of {len(data.test):,} test images right"
    console.json(found)
    console.print(said)
    return 0
