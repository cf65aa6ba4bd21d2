"""Turn a labelled image dataset into a file of kilobytes that trains models almost as well as the original."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from tinyset.cli.common import Common, DataFlags, read_data
from tinyset.config import CondenseConfig, parse_bytes, parse_duration
from tinyset.errors import UserError

if TYPE_CHECKING:
    from tinyset.cli.console import Console
    from tinyset.data.imageset import ImageSet
    from tinyset.progress import Progress


@dataclass(kw_only=True)
class Args(Common, DataFlags):
    source: tyro.conf.Positional[str]
    """cifar10, cifar100, svhn, tinyimagenet, mnist, fashionmnist, streetdigits, a folder of class folders, a .npz, ..."""
    out: str | None = None
    """The run's folder: config.yaml, metrics.jsonl, checkpoints, artifact/."""
    images_per_class: str | None = None
    """The storage budget in full-size images of each class: 10, or 1,5,... in class order, or a YAML file of names."""
    params_per_class: int | None = None
    """The same budget in numbers per class."""
    budget_bytes: str | None = None
    """The same budget as a hard limit on the size of the file: 100kB."""
    method: str | None = None
    """random, herding, kmeans, dc, dsa, dm, cafe, mtt, idc, kip, kfr or kfs (default)."""
    parameterization: Literal["pixels", "tiles", "codes"] | None = None
    """How synthetic images are stored (default: the method's)."""
    objective: str | None = None
    """What they are asked to match: distribution, gradient, features, trajectory, kernel (default: the method's)."""
    init: Literal["noise", "real"] | None = None
    """What step 0 is made of (default: the method's)."""
    start: str | None = None
    """A smaller condensed set of the same classes to begin with, by name or folder: its decoders, its codes, and more codes.
    Several, separated by commas, stand side by side as families, each code with the decoders it was made for."""
    recipe: str = "plain"
    """plain (KFS for minutes), fast (kfr, the most accurate per CPU-minute), best (kfr, the most accurate), paper, another
    shipped recipe, or a .yaml file; flags override it."""
    steps: int | None = None
    """Steps of the outer loop."""
    networks: int | None = None
    """Random networks in the embedding bank."""
    network: str | None = None
    """The network to match with, for example convnet3 or convnet3:width=64."""
    real_per_class: int | None = None
    """Real images of each class behind a mean of the bank (default: all)."""
    batch: str | None = None
    """Synthetic images per class and step: full, or a number (the unbiased sampled step)."""
    decoder: Literal["auto", "low", "high"] | None = None
    """Low-R (12-9-6-3) or High-R (12-6-3) decoders."""
    decoders: int | None = None
    """Number of decoders."""
    codes: int | None = None
    """Codes per class, overriding the budget's arithmetic."""
    storage: Literal["float32", "float16", "int8"] | None = None
    """How the numbers are stored."""
    pretrain_steps: int | None = None
    """Steps of the auto-encoder that gives codes and decoders their start."""
    option: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """KEY=VALUE for the objective, may be repeated; see the method's page."""
    rate: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """NAME=NUMBER, a learning rate: codes=0.1, decoders=0.01, images=1.0; may be repeated."""
    time_limit: str | None = None
    """Stop cleanly after this long, set-up included: 90s, 10m, 2h."""
    memory_limit: str | None = None
    """Memory for activations: 2GB. Decides between one and two passes, never the result's meaning."""
    chunk: int | None = None
    """Images per forward pass (default: a rule of shapes)."""
    precision: Literal["float32", "bf16"] | None = None
    """Of the embedding passes: float32 (default), or bf16 by torch's autocast, for GPUs that are faster in it."""
    compile: Literal["auto", "always", "never"] | None = None
    """torch.compile (default: where the run is long enough)."""
    checkpoint_every: int | None = None
    """Steps between checkpoints."""
    resume: bool = False
    """Go on from the last checkpoint; a run that has not begun is started."""
    overwrite: bool = False
    """Replace the run in --out."""
    dry_run: bool = False
    """Say what would be stored, held in memory and how long it would take, and do nothing."""
    tune: bool = False
    """Measure a few chunk sizes first and write the best one into the run's config."""
    track: bool = False
    """Also write TensorBoard files into the run's folder (extra `[track]`)."""


def settings(args: Args) -> dict[str, Any]:
    """The flags that were given, as keys of `CondenseConfig`."""
    flags: dict[str, Any] = {key: getattr(args, key) for key in CondenseConfig.model_fields if hasattr(args, key)}
    flags["images_per_class"] = images_per_class(args.images_per_class)
    flags["budget_bytes"] = None if args.budget_bytes is None else parse_bytes(args.budget_bytes)
    flags["batch"] = args.batch if args.batch in (None, "full") else whole(args.batch, "--batch")
    flags["time_limit_s"] = None if args.time_limit is None else parse_duration(args.time_limit)
    flags["memory_limit_bytes"] = None if args.memory_limit is None else parse_bytes(args.memory_limit)
    flags["options"] = dict(pair(item, "--option") for item in args.option) or None
    flags["rates"] = dict(pair(item, "--rate") for item in args.rate) or None
    return flags


def images_per_class(text: str | None) -> int | list[int] | dict[str, int] | None:
    if text is None:
        return None
    if text.endswith((".yaml", ".yml")):
        from tinyset.config import recipe

        return recipe(text)
    numbers = [whole(part, "--images-per-class") for part in text.split(",")]
    if min(numbers) < 1:
        raise UserError(f"--images-per-class {text}: every number must be 1 or more.")
    return numbers[0] if len(numbers) == 1 else numbers


def whole(text: str, flag: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UserError(f"{flag} {text}: {text!r} is not a whole number.") from None


def pair(text: str, flag: str) -> tuple[str, Any]:
    from tinyset.config import load_yaml

    key, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"{flag} {text}: write NAME=VALUE.")
    return key, load_yaml(f"v: {value}", flag)["v"]


def run(args: Args, console: "Console") -> int:
    from tinyset.condensation import run as condense
    from tinyset.interrupts import Stop, signals_to
    from tinyset.methods import resolve
    from tinyset.processes import team

    if args.out is None and not args.dry_run:
        raise UserError("missing --out: the folder of the run.")
    config = resolve(args.recipe, settings(args))
    progress: Progress = console.progress
    if args.track and args.out is not None and team().leads:
        from tinyset.report.track import Tracked

        progress = Tracked(progress, Path(args.out))
    with signals_to(Stop(config.time_limit_s)) as stop:
        data = read_data(args.source, args, console, args.seed)
        if args.dry_run or args.tune:
            config = team().first(lambda: planned(config, data.train, args, console))
        if args.out is None or args.dry_run:
            return 0
        try:
            outcome = condense(
                config,
                data,
                out=Path(args.out),
                resume=args.resume,
                overwrite=args.overwrite,
                progress=progress,
                stop=stop,
                recipe=args.recipe,
                command=console.command,
            )
        finally:
            progress.finish()
    ledger = outcome.condensed.ledger()
    console.json(
        {
            "artifact": str(outcome.condensed.path),
            "steps": outcome.steps,
            "resumed_from_step": outcome.resumed_from_step,
            "stopped": outcome.stopped,
            "seconds": round(outcome.seconds, 2),
            "loss": outcome.loss,
            **ledger,
        }
    )
    smaller = f", {ledger['compression']:,.0f}x smaller than the data" if ledger["compression"] else ""
    console.print(
        f"{outcome.condensed.path}: {len(outcome.condensed):,} synthetic images in {ledger['bytes']:,} bytes{smaller}"
        + (f" (stopped by the time limit after {outcome.steps} steps)" if outcome.stopped else "")
    )
    return 0


def planned(config: CondenseConfig, real: "ImageSet", args: Args, console: "Console") -> CondenseConfig:
    """`--tune` and `--dry-run`: the config as it would run, and the forecast for people or as JSON."""
    from tinyset.condensation import check
    from tinyset.machine import pick_device, set_threads
    from tinyset.plan import available_memory_bytes, forecast, refuse_what_does_not_fit
    from tinyset.starts import plan
    from tinyset.times import with_times
    from tinyset.tuning import calibrate, tune

    check(config, real)
    device = pick_device(config.device)
    set_threads(config.threads)
    sizes = plan(config, real)
    if args.tune and config.objective == "distribution":
        config = tune(config, real, forecast(config, real, sizes), device, console.note)
    if args.dry_run:
        made = forecast(config, real, sizes)
        if made.bytes_per_image:
            made = with_times(made, config, real, calibrate(config, real, made, device))
        console.json(made.as_json())
        console.print(*made.lines())
        refuse_what_does_not_fit(made, config, available_memory_bytes(device.type))
    return config
