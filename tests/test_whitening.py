"""Whitened images: the filter does what it says, goes with the set, and is refused where it is none."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tinyset
from tests.conftest import toy_images
from tinyset.batches import Batches, Normaliser
from tinyset.condensed import CondensedSet
from tinyset.data.imageset import ImageSet, Splits
from tinyset.downstream.merge import merge
from tinyset.downstream.model import load_model
from tinyset.downstream.train import train
from tinyset.errors import UserError
from tinyset.evaluation.sets import from_artifact
from tinyset.exchange.writers import export
from tinyset.protocols import protocol
from tinyset.rng import generator
from tinyset.training import predict
from tinyset.whitening import SIDE, Filter, check, fit, numbers, whitened

TINY: dict[str, Any] = dict(
    method="kfr",
    steps=2,
    networks=2,
    network="convnet3:width=4",
    pretrain_steps=5,
    compile="never",
    params_per_class=2000,
    decoders=2,
    threads=1,
)
LOOK = {"matching_steps": 1, "pool": 1, "pool_steps": 1, "real_batch": 20}


@pytest.fixture(scope="module")
def smooth() -> ImageSet:
    """Neighbouring pixels and the three colours say much the same."""
    coarse = torch.rand(80, 1, 10, 10, generator=generator(0, "smooth"))
    grey = torch.nn.functional.interpolate(coarse, size=(24, 24), mode="bilinear")
    noise = 0.05 * torch.randn(80, 3, 24, 24, generator=generator(0, "noise"))
    return ImageSet(((grey + noise).clamp(0, 1) * 255).to(torch.uint8), torch.arange(80) % 2, ("even", "odd"))


@pytest.fixture
def made(toy: Splits) -> CondensedSet:
    return tinyset.condense(toy.train, recipe=None, options=LOOK | {"whiten": 0.1}, **TINY)


def correlation(images: torch.Tensor, other: torch.Tensor) -> float:
    return float(np.corrcoef(images.flatten(), other.flatten())[0, 1])


def test_what_neighbours_and_colours_have_in_common_is_gone(smooth: ImageSet) -> None:
    images = Normaliser(smooth.stats, torch.uint8, "cpu")(smooth.images)
    after = whitened(images, torch.tensor(fit(smooth, 0.01)))
    for maps, above, below in ((images, 0.7, 1.0), (after, -0.2, 0.2)):
        assert above < correlation(maps[..., 1:], maps[..., :-1]) < below  # side by side
        assert above < correlation(maps[:, 0], maps[:, 1]) < below  # red and green
    assert after.std() == pytest.approx(float(images.std()), rel=0.05)


def test_a_large_ridge_leaves_the_images_as_they_are(smooth: ImageSet) -> None:
    images = Normaliser(smooth.stats, torch.uint8, "cpu")(smooth.images)
    torch.testing.assert_close(whitened(images, torch.tensor(fit(smooth, 1e6))), images, atol=1e-3, rtol=0)


def test_the_filter_is_a_sum_over_mirrored_borders(smooth: ImageSet) -> None:
    kernel = torch.tensor(fit(smooth, 0.1)).double()
    images = torch.rand(2, 3, 7, 8, generator=generator(0, "images")).double()
    wide = np.pad(images.numpy(), ((0, 0), (0, 0), (2, 2), (2, 2)), mode="reflect")
    naive = np.zeros((2, 3, 7, 8))
    for b, c, y, x in np.ndindex(naive.shape):
        naive[b, c, y, x] = (wide[b, :, y : y + SIDE, x : x + SIDE] * kernel[c].numpy()).sum()
    np.testing.assert_allclose(whitened(images, kernel).numpy(), naive, rtol=1e-12, atol=1e-12)


def test_small_images_have_a_small_filter_and_equal_ones_a_finite_one() -> None:
    assert numbers(fit(toy_images(shape=(1, 4, 6)), 0.1)) == 9
    flat = ImageSet(torch.full((8, 3, 8, 8), 7, dtype=torch.uint8), torch.arange(8) % 2, ("a", "b"))
    assert torch.tensor(fit(flat, 0.1)).isfinite().all()


def test_batches_are_whitened_before_they_are_augmented(smooth: ImageSet) -> None:
    normalisation = (*smooth.stats, fit(smooth, 0.1))
    plain = protocol("steps:2:none")
    batch, labels = Batches(smooth.images, smooth.labels, plain, normalisation, True, 0).at(0)
    order = torch.randperm(80, generator=generator(0, "epoch", 0))
    expected = Normaliser(normalisation, torch.uint8, "cpu")(smooth.images[order[: len(batch)]])
    torch.testing.assert_close(batch, expected)
    assert torch.equal(labels, smooth.labels[order[: len(batch)]])
    shifted, _ = Batches(smooth.images, smooth.labels, protocol("steps:2"), normalisation, True, 0).at(0)
    assert (shifted == 0).all(1).any()  # what a shift leaves empty is zero, not whitened


def test_the_set_takes_its_filter_along(made: CondensedSet, toy: Splits, tmp_path: Path) -> None:
    assert made.normalisation == (*toy.train.stats, fit(toy.train, 0.1)) and made.stats == toy.train.stats
    loaded = tinyset.load(made.save(tmp_path / "set"))
    assert loaded.config.whitening == made.config.whitening and loaded.ledger()["whitening_numbers"] == 225
    assert "whitened by a 5 x 5 filter" in (tmp_path / "set" / "README.md").read_text()
    seen = torch.cat([batch for batch, _ in loaded.loader(train=False)])
    torch.testing.assert_close(seen, Normaliser(made.normalisation, torch.float32, "cpu")(made.decode()[0]))
    assert from_artifact(loaded).normalisation == made.normalisation


def test_numpy_and_every_export_know_it(made: CondensedSet, toy: Splits, tmp_path: Path) -> None:
    assert toy.test is not None
    example: dict[str, Any] = {"__name__": "example"}
    exec((Path(__file__).parents[1] / "examples" / "read_with_numpy.py").read_text(), example)
    images, _, config = example["read"](made.save(tmp_path / "set"))
    for pixels in (images, toy.test.images.numpy().astype(np.float32) / 255):
        expected = made.normalise(torch.from_numpy(pixels)).numpy()
        np.testing.assert_allclose(example["normalised"](pixels, config), expected, atol=1e-4)
    arrays = np.load(export(made, tmp_path / "set.npz", "npz"))
    np.testing.assert_allclose(arrays["whitening"], np.array(made.config.whitening, np.float32))
    tree = torch.load(export(made, tmp_path / "set.pt", "pt"), weights_only=True)
    assert torch.equal(tree["whitening"], torch.tensor(made.config.whitening))
    folder = export(made, tmp_path / "folder", "imagefolder")
    assert json.loads((folder / "classes.json").read_text())["whitening"] == json.loads(json.dumps(config["whitening"]))


def test_without_one_the_file_says_nothing_of_it(toy: Splits, tmp_path: Path) -> None:
    made = tinyset.condense(toy.train, recipe=None, options=LOOK, **TINY)
    made.save(tmp_path / "set")
    assert "whitening" not in json.loads((tmp_path / "set" / "config.json").read_text())
    assert made.normalisation == toy.train.stats and "whitening_numbers" not in made.ledger()


def test_the_networks_of_a_condensation_see_whitened_images(made: CondensedSet, toy: Splits) -> None:
    plain = tinyset.condense(toy.train, recipe=None, options=LOOK, **TINY)
    assert made.fingerprint != plain.fingerprint


def test_a_trained_network_whitens_what_it_is_given(made: CondensedSet, toy: Splits, tmp_path: Path) -> None:
    assert toy.test is not None
    model = train(made, "convnet3:width=4", "steps:3")
    again = load_model(model.save(tmp_path / "model.safetensors"))
    expected = predict(model.network, toy.test.images, normalisation=made.normalisation)
    assert torch.equal(again.predict(toy.test.images), expected)
    assert again.card.whitening == made.config.whitening


def test_what_begins_with_such_a_set_whitens_too(made: CondensedSet, toy: Splits, tmp_path: Path) -> None:
    start = str(made.save(tmp_path / "set"))
    with pytest.raises(UserError, match="whitened: only kfr goes on with it"):
        tinyset.condense(toy.train, recipe=None, options=LOOK, start=start, **TINY)
    further = tinyset.condense(toy.train, recipe=None, options=LOOK | {"whiten": 0.1}, start=start, **TINY)
    still = tinyset.condense(toy.train, recipe=None, options=LOOK, start=start, **TINY | {"steps": 0})
    assert further.config.whitening == still.config.whitening == made.config.whitening
    plain = tinyset.condense(toy.train, recipe=None, options=LOOK, **TINY).save(tmp_path / "plain")
    both = TINY | {"steps": 0, "params_per_class": 5000, "decoders": None}
    with pytest.raises(UserError, match="different filters"):
        tinyset.condense(toy.train, recipe=None, options=LOOK, start=f"{start},{plain}", **both)
    with pytest.raises(UserError, match="different whitening filters"):
        merge(made, tinyset.load(plain))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ((((1.0, 0.0), (0.0, 1.0)),) * 3, "odd side"),
        (((((1.0,),) * 2,) * 3,) * 3, "odd side"),
        (((((float("nan"),),),) * 3,) * 3, "finite"),
        (((((1.0,),),) * 2,) * 3, "3 x 3 x 1 x 1"),
        (((((1.0,) * 33,) * 33,) * 3,) * 3, "odd side"),
        ((), "odd side"),
    ],
)
def test_a_strangers_filter_is_checked(kernel: Filter, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(kernel, (3, 16, 16))


def test_a_damaged_file_is_one_sentence(made: CondensedSet, tmp_path: Path) -> None:
    folder = made.save(tmp_path / "set")
    values = json.loads((folder / "config.json").read_text())
    values["whitening"][0][0] = values["whitening"][0][0][:-1]
    (folder / "config.json").write_text(json.dumps(values | {"checksum": ""}))
    with pytest.raises(UserError, match="whitening needs"):
        tinyset.load(folder)
