"""The bank: class means equal to a naive loop, computed once, extended, resumed; damage and strangers are refused."""

import shutil
from pathlib import Path

import pytest
import torch

from tinyset import bank as bank_module
from tinyset import rng
from tinyset.bank import Bank, open_bank
from tinyset.data.imageset import ImageSet
from tinyset.engine import Embedder
from tinyset.errors import RunError
from tinyset.interrupts import Stop
from tinyset.networks import build, reset
from tinyset.progress import Silent

NETWORK = "convnet2:width=4"
CPU = torch.device("cpu")


class StopAfter(Stop):
    """Asked between networks; says "time" after `count` of them."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left = count

    @property
    def reason(self) -> str | None:
        self.left -= 1
        return "time" if self.left < 0 else None


class Rates(Silent):
    def __init__(self) -> None:
        self.seen: list[tuple[int, float]] = []

    def update(self, done: int, **values: float) -> None:
        self.seen.append((done, values["images_per_s"]))


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bank_module, "SHARD", 2)


def toy_images(seed: int = 0) -> ImageSet:
    """20 images of 3 classes of unequal size, mixed."""
    draw = rng.generator(seed, "toy")
    labels = torch.tensor([0] * 8 + [1] * 5 + [2] * 7)[torch.randperm(20, generator=draw)]
    images = torch.randint(0, 256, (20, 3, 8, 8), generator=draw, dtype=torch.uint8)
    return ImageSet(images, labels, ("a", "b", "c"))


@pytest.fixture
def real() -> ImageSet:
    return toy_images()


def bank(
    real: ImageSet,
    root: Path,
    *,
    per_class: int | None = None,
    network: str = NETWORK,
    chunk: int = 7,
    progress: Silent | None = None,
) -> Bank:
    made = build(network, channels=3, image_size=(8, 8), classes=3)
    embed = Embedder(made, real.stats, device=CPU, chunk=chunk, dtype=torch.float64)
    return Bank(real, network, embed, root=root, real_per_class=per_class, progress=progress)


def naive_means(real: ImageSet, k: int, index: torch.Tensor) -> torch.Tensor:
    network = build(NETWORK, channels=3, image_size=(8, 8), classes=3).double()
    reset(network, rng.generator(0, "bank network", k))
    mean, std = (torch.tensor(v, dtype=torch.float64).view(1, 3, 1, 1) for v in real.stats)
    sums = torch.zeros(3, 16, dtype=torch.float64)
    counts = torch.zeros(3, 1, dtype=torch.float64)
    for i in index.tolist():
        pixels = (real.images[i : i + 1].double() / 255 - mean) / std
        sums[real.labels[i]] += network.features(pixels)[0].detach()  # type: ignore[operator]
        counts[real.labels[i]] += 1
    return sums / counts


def shards(made: Bank) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(made.folder.glob("*.safetensors"))}


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_means_equal_a_naive_loop(real: ImageSet, tmp_path: Path, chunk: int) -> None:
    made = bank(real, tmp_path, chunk=chunk)
    assert made.ensure(3) == 3
    for k in (2, 0, 1):
        expected = naive_means(real, k, torch.arange(len(real)))
        torch.testing.assert_close(made.load(k), expected, rtol=1e-12, atol=1e-12)


def test_load_puts_the_weights_of_the_network_in_place(real: ImageSet, tmp_path: Path) -> None:
    made = bank(real, tmp_path)
    made.ensure(2)
    made.load(0)
    first = made.embed(real.images[:2])
    made.load(1)
    assert not torch.allclose(made.embed(real.images[:2]), first)
    made.load(0)
    assert torch.equal(made.embed(real.images[:2]), first)


def test_asking_for_more_computes_only_the_new_ones(real: ImageSet, tmp_path: Path) -> None:
    made = bank(real, tmp_path)
    made.ensure(4)
    before = shards(made)
    rates = Rates()
    more = bank(real, tmp_path, progress=rates)
    assert more.ensure(7) == 7
    assert [done for done, _ in rates.seen] == [5, 6, 7]
    assert all(rate > 0 for _, rate in rates.seen)
    after = shards(more)
    assert {name: after[name] for name in before} == before and len(after) == 4
    fewer = bank(real, tmp_path, progress=rates)
    assert fewer.ensure(2) == 2 and shards(fewer) == after and len(rates.seen) == 3


def test_a_half_full_file_is_filled_up(real: ImageSet, tmp_path: Path) -> None:
    step_by_step, at_once = (bank(real, tmp_path / name) for name in "ab")
    for networks in (1, 3, 4):
        step_by_step.ensure(networks)
    at_once.ensure(4)
    assert shards(step_by_step) == shards(at_once)


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_stopped_and_resumed_is_the_same_bank(real: ImageSet, tmp_path: Path, after: int) -> None:
    stopped, whole = (bank(real, tmp_path / name) for name in "ab")
    assert stopped.ensure(5, StopAfter(after)) == after
    assert bank(real, tmp_path / "a").size() == after
    assert bank(real, tmp_path / "a").ensure(5) == 5
    whole.ensure(5)
    assert shards(stopped) == shards(whole)


def test_fewer_real_images_are_the_first_of_more(real: ImageSet, tmp_path: Path) -> None:
    chosen = {n: set(bank(real, tmp_path, per_class=n)._rows()[0].tolist()) for n in (1, 3, 5)}
    assert chosen[1] < chosen[3] < chosen[5] and len(chosen[3]) == 9
    made = bank(real, tmp_path, per_class=3)
    made.ensure(1)
    expected = naive_means(real, 0, torch.tensor(sorted(chosen[3])))
    torch.testing.assert_close(made.load(0), expected, rtol=1e-12, atol=1e-12)


def test_every_identity_has_a_folder_of_its_own(real: ImageSet, tmp_path: Path) -> None:
    other = toy_images(seed=3)
    banks = [
        bank(real, tmp_path),
        bank(other, tmp_path),
        bank(real, tmp_path, per_class=3),
        bank(real, tmp_path, network="convnet2:width=5"),
    ]
    assert len({made.folder for made in banks}) == len(banks)


@pytest.mark.parametrize("at", [0, 20, 200, -1])
def test_a_damaged_file_is_refused_by_name(real: ImageSet, tmp_path: Path, at: int) -> None:
    made = bank(real, tmp_path)
    made.ensure(2)
    path = made._path(0)
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(bytes(content))
    fresh = bank(real, tmp_path)
    with pytest.raises(RunError, match=str(path)):
        fresh.load(0)
    with pytest.raises(RunError, match=str(path)):
        fresh.ensure(4)


def test_a_cut_off_file_is_refused_by_name(real: ImageSet, tmp_path: Path) -> None:
    made = bank(real, tmp_path)
    made.ensure(2)
    path = made._path(0)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(RunError, match=str(path)):
        bank(real, tmp_path).load(1)


def test_a_file_that_vanishes_between_two_steps_is_named(real: ImageSet, tmp_path: Path) -> None:
    made = bank(real, tmp_path)
    made.ensure(2)
    made.load(0)
    made._path(0).unlink()
    with pytest.raises(RunError, match=str(made._path(0))):
        made.load(1)


def test_a_foreign_file_is_refused_by_name(real: ImageSet, tmp_path: Path) -> None:
    ours, theirs = bank(real, tmp_path), bank(toy_images(seed=3), tmp_path)
    ours.ensure(2)
    theirs.ensure(2)
    shutil.copy(theirs._path(0), ours._path(0))
    with pytest.raises(RunError, match=f"{ours._path(0)} belongs to other data"):
        bank(real, tmp_path).load(0)


def test_a_missing_network_is_named(real: ImageSet, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="missing"):
        bank(real, tmp_path).load(0)
    made = bank(real, tmp_path)
    made.ensure(1)
    with pytest.raises(RunError, match="no network 1"):
        made.load(1)


def test_other_weights_than_the_stored_ones_are_noticed(
    real: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank(real, tmp_path).ensure(1)
    made = bank(real, tmp_path)
    monkeypatch.setattr(bank_module, "reset", lambda network, draw: reset(network, rng.generator(1, "other")))
    with pytest.raises(RunError, match="other weights"):
        made.load(0)


def test_the_command_lines_bank_is_found_again(real: ImageSet) -> None:
    first = open_bank(real, NETWORK, device=CPU, networks=2, real_per_class=4)
    assert first.ensure(2) == 2
    assert open_bank(real, NETWORK, device=CPU, networks=2, real_per_class=4).size() == 2
