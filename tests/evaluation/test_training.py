"""Training: the same seed, the same bytes; stopped anywhere and resumed, the same bytes; compiled equals eager."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tinyset.errors import RunError, UserError
from tinyset.interrupts import Interrupted, Stop
from tinyset.networks import build, reset, weights_hash
from tinyset.protocols import Protocol, list_protocols, protocol
from tinyset.rng import generator
from tinyset.training import Batches, TrainedStats, idle_biases, predict, train

STATS = ((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
SHORT = Protocol(name="short", epochs=4, batch=8, augmentation="flip-shift")


def _data(count: int = 20, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Class c is bright in the c-th stripe: learnable in a few steps."""
    labels = torch.arange(count) % classes
    images = torch.rand(count, 3, 16, 16, generator=generator(0, "data")) * 0.4
    for i, label in enumerate(labels.tolist()):
        images[i, :, 5 * label : 5 * label + 5] += 0.5
    return images, labels


def _network(seed: int = 0, spec: str = "convnet2:width=8") -> torch.nn.Module:
    network = build(spec, channels=3, image_size=(16, 16), classes=3)
    reset(network, generator(seed, "weights"))
    return network


def _train(network: torch.nn.Module, protocol: Protocol = SHORT, seed: int = 0, **options) -> TrainedStats:  # type: ignore[no-untyped-def]
    images, labels = options.pop("data", None) or _data()
    return train(network, images, labels, protocol, normalisation=STATS, mirror=False, seed=seed, **options)


class StopAfter(Stop):
    """Asks to stop at the k-th question."""

    def __init__(self, questions: int) -> None:
        super().__init__()
        self.questions = questions

    @property
    def reason(self) -> str | None:
        self.questions -= 1
        return "SIGTERM" if self.questions < 0 else None


def test_named_protocols() -> None:
    kfs = protocol("kfs")
    assert (kfs.epochs, kfs.batch, kfs.rate, kfs.momentum, kfs.weight_decay) == (200, 256, 0.01, 0.9, 5e-4)
    per_epoch = kfs.steps_per_epoch(1040)
    assert per_epoch == 5 and kfs.total_steps(1040) == 1000 and kfs.batch_size(10) == 10
    rates = [kfs.rate_at(epoch * per_epoch, 1040) for epoch in (0, 132, 133, 165, 166, 199)]
    assert rates == pytest.approx([0.01, 0.01, 0.002, 0.002, 0.0004, 0.0004])
    assert protocol("kfs-aug").augmentation == "flip-shift"
    dc, dsa, idc = protocol("dc"), protocol("dsa"), protocol("idc")
    assert [dc.rate_at(step, 10) for step in (149, 150)] == pytest.approx([0.01, 0.001])
    assert (dsa.epochs, dsa.augmentation, dsa.cutmix) == (1000, "dsa", 0)
    assert (idc.epochs, idc.batch, idc.augmentation, idc.cutmix) == (1000, 64, "dsa-nocutout", 0.5)
    assert protocol("steps:300").total_steps(1040) == 300 and protocol("steps:300").augmentation == "flip-shift"
    assert protocol("steps:300:none").augmentation == "none"
    for mixed in (protocol("kfs-cutmix"), protocol("steps:1000:cutmix")):  # 1,040 images: 200 epochs are 1,000 steps
        assert (mixed.augmentation, mixed.cutmix, mixed.total_steps(1040)) == ("flip-shift", 0.5, 1000)
    assert "kfs" in list_protocols()


def test_any_protocol_takes_batches_of_another_size() -> None:
    small = protocol("kfs-cutmix:batch=64")
    assert small == protocol("kfs-cutmix").model_copy(update={"name": "kfs-cutmix:batch=64", "batch": 64})
    assert small.total_steps(1040) == 200 * 17  # as many images, more steps
    assert protocol("steps:300:none:batch=64").total_steps(1040) == 300


@pytest.mark.parametrize(
    "name", ["nope", "steps:", "steps:0", "steps:banana", "steps:5:wobble", "kfs:batch=0", "nope:batch=64"]
)
def test_unknown_protocols_are_one_sentence(name: str) -> None:
    with pytest.raises(UserError, match="protocol"):
        protocol(name)


def test_the_last_batch_holds_the_rest_and_a_single_image_waits() -> None:
    assert SHORT.steps_per_epoch(20) == 3 and SHORT.steps_per_epoch(17) == 2 and SHORT.steps_per_epoch(16) == 2
    assert _train(_network()).images_seen == 4 * 20
    assert _train(_network(), data=_data(17)).images_seen == 4 * 16


def test_same_seed_same_bytes_and_it_learns() -> None:
    images, labels = _data(60)
    networks = [_network(), _network(), _network()]
    longer = Protocol(name="t", epochs=12, batch=16)
    for network, seed in zip(networks, (0, 0, 1), strict=True):
        _train(network, longer, seed, data=(images, labels))
    hashes = [weights_hash(network) for network in networks]
    assert hashes[0] == hashes[1] != hashes[2]
    predicted = predict(networks[0], images, normalisation=STATS, batch=32)
    assert (predicted == labels).float().mean() > 0.9


@pytest.mark.parametrize("spec", ["convnet2:width=8", "convnet2:width=8,norm=batch"])
@pytest.mark.parametrize("stop_after", [0, 4, 7])
def test_stopped_and_resumed_ends_with_the_same_bytes(tmp_path: Path, spec: str, stop_after: int) -> None:
    whole = _network(spec=spec)
    _train(whole)
    path = tmp_path / "training.safetensors"
    part = _network(spec=spec)
    with pytest.raises(Interrupted, match=f"step {stop_after} of 12"):
        _train(part, checkpoint=path, stop=StopAfter(stop_after))
    resumed = _network(seed=5, spec=spec)  # its weights are replaced
    stats = _train(resumed, checkpoint=path)
    assert weights_hash(resumed) == weights_hash(whole) and stats.steps == 12 and stats.images_seen == 80


def test_killed_after_an_epoch_and_resumed(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def kill(_stats: TrainedStats, _network: torch.nn.Module) -> None:
        raise Killed

    path = tmp_path / "training.safetensors"
    with pytest.raises(Killed):
        _train(_network(), checkpoint=path, checkpoint_every_s=0, at_steps={8: kill})
    whole, resumed = _network(), _network()
    _train(whole)
    _train(resumed, checkpoint=path)
    assert weights_hash(resumed) == weights_hash(whole)


def test_a_foreign_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "training.safetensors"
    _train(_network(), checkpoint=path, checkpoint_every_s=0)
    with pytest.raises(RunError, match="another training"):
        _train(_network(), seed=1, checkpoint=path)


def test_probes_see_the_network_along_the_way_and_do_not_change_it() -> None:
    seen = []

    def probe(stats: TrainedStats, network: torch.nn.Module) -> None:
        seen.append((stats.steps, predict(network, _data()[0], normalisation=STATS)))

    plain, probed = _network(), _network()
    _train(plain)
    _train(probed, at_steps={1: probe, 12: probe})
    assert [step for step, _ in seen] == [1, 12] and weights_hash(plain) == weights_hash(probed)


def test_soft_labels_of_one_hot_rows_train_as_hard_ones() -> None:
    images, labels = _data()
    hard, soft = _network(), _network()
    _train(hard, data=(images, labels))
    _train(soft, data=(images, F.one_hot(labels, 3).float()))
    for a, b in zip(hard.parameters(), soft.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_cutmix_with_a_class_that_has_no_image() -> None:
    images, labels = _data()
    kept = labels < 2
    mixed = Protocol(name="t", epochs=1, batch=8, cutmix=1.0)
    assert _train(_network(), mixed, data=(images[kept], labels[kept])).steps == 2


@pytest.mark.parametrize("augmentation", ["none", "dsa", "dsa-nocutout"])
def test_bytes_and_floats_train_alike(augmentation: str) -> None:
    protocol = Protocol(name="t", epochs=2, batch=8, augmentation=augmentation, cutmix=0.5)  # type: ignore[arg-type]
    images, labels = _data()
    pixels = (images * 255).round().to(torch.uint8)
    one, other = _network(), _network()
    _train(one, protocol, data=(pixels, labels))
    _train(other, protocol, data=(pixels.float() / 255, labels))
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-4)


def test_an_exploding_loss_names_the_step() -> None:
    images, labels = _data()
    images[0] = float("nan")
    with pytest.raises(RunError, match="at step 12"):
        _train(_network(), data=(images, labels))


def test_predict_takes_any_number_of_images() -> None:
    network, images = _network(), _data(21)[0]
    whole = predict(network, images, normalisation=STATS)
    assert torch.equal(whole, predict(network, images, normalisation=STATS, batch=4))
    assert len(predict(network, images[:0], normalisation=STATS)) == 0


def test_biases_before_an_instance_norm_are_left_alone_and_nothing_else_notices() -> None:
    images, labels = _data()
    plain, quick = _network(), _network()
    assert len(idle_biases(quick)) == 2 and not idle_biases(_network(spec="convnet2:width=8,norm=batch"))
    before = [bias.clone() for bias in idle_biases(quick)]
    protocol = Protocol(name="t", epochs=2, batch=20)
    _train(quick, protocol)
    assert all(map(torch.equal, before, idle_biases(quick))) and all(p.requires_grad for p in quick.parameters())
    optimizer = torch.optim.SGD(plain.parameters(), 0.01, 0.9, weight_decay=5e-4)
    batches = Batches(images, labels, protocol, STATS, False, 0)
    for step in range(2):
        optimizer.param_groups[0]["lr"] = protocol.rate_at(step, 20)
        batch, targets = batches.at(step)
        optimizer.zero_grad()
        F.cross_entropy(plain(batch), targets).backward()
        optimizer.step()
    assert torch.allclose(plain(batch), quick(batch), atol=1e-4)


@pytest.mark.slow
def test_compiled_equals_eager() -> None:
    images, labels = _data(18)
    protocol = Protocol(name="t", epochs=3, batch=16)  # the rest of 2 images runs uncompiled
    eager, fast = (_network(spec="convnet1:width=8") for _ in range(2))
    _train(eager, protocol, data=(images, labels))
    _train(fast, protocol, data=(images, labels), compile=True)
    for a, b in zip(eager.parameters(), fast.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-4)
    predicted = predict(fast, images, normalisation=STATS, compile=True)
    assert torch.equal(predicted, predict(fast, images, normalisation=STATS))
    assert len(predicted) == len(labels)
