"""Train a network on a condensed set and keep it: the training of `evaluate`, to the same numbers for the same seed."""

import torch

from tinyset.condensed import CondensedSet
from tinyset.downstream.model import Model, ModelCard
from tinyset.evaluation.results import record_key
from tinyset.evaluation.sets import from_artifact
from tinyset.files import cache_dir
from tinyset.interrupts import Stop
from tinyset.machine import pick_device
from tinyset.networks import build, identity, redraw
from tinyset.progress import Progress
from tinyset.protocols import protocol as named_protocol
from tinyset.training import train as train_network
from tinyset.training import worth_compiling
from tinyset.version import __version__


def train(
    condensed: CondensedSet,
    network: str = "convnet3",
    protocol: str | None = None,
    *,
    seed: int = 0,
    device: torch.device | str = "auto",
    compile: bool | None = None,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> Model:
    """A network trained by `protocol` (default: the set's own). A training that was stopped goes on."""
    images = from_artifact(condensed)
    recipe = named_protocol(protocol or condensed.protocol)
    channels, height, width = condensed.image_shape
    made = build(network, channels=channels, image_size=(height, width), classes=len(condensed.class_names))
    redraw(made, network, seed, channels=channels, image_size=(height, width), classes=len(condensed.class_names))
    on = pick_device(device) if isinstance(device, str) else device
    fast = worth_compiling(made, recipe, len(images.images), on) if compile is None else compile
    key = record_key({"set": images.key, "network": identity(network), "protocol": recipe.model_dump(), "seed": seed})
    checkpoint = cache_dir() / "train" / f"{key}.safetensors"
    stats = train_network(
        made,
        images.images,
        images.targets,
        recipe,
        normalisation=images.normalisation,
        mirror=images.mirror,
        seed=seed,
        device=on,
        compile=fast,
        progress=progress,
        task=f"train {network}",
        stop=stop,
        checkpoint=checkpoint,
    )
    checkpoint.unlink(missing_ok=True)
    card = ModelCard(
        network=network,
        class_names=list(condensed.class_names),
        image_shape=condensed.image_shape,
        mean=condensed.config.mean,
        std=condensed.config.std,
        whitening=condensed.config.whitening,
        protocol=recipe.name,
        seed=seed,
        steps=stats.steps,
        artifact=images.key,
        library=__version__,
    )
    return Model(made.eval(), card)
