"""MTT: 0 where the student arrives, 1 where it does not move, second order as written; experts are stored once."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call
from toys import check_by_differences, check_resume, drawn_network, normalised

from tinyset import rng
from tinyset.data.imageset import ImageSet
from tinyset.errors import RunError
from tinyset.interrupts import Interrupted, Stop
from tinyset.objectives.base import Context
from tinyset.objectives.experts import Experts, put_weights, split_weights, take_weights
from tinyset.objectives.trajectory import match_trajectory, student_step
from tinyset.parameterizations.base import Parameterization
from tinyset.parameterizations.pixels import Pixels

SMALL = {"experts": 2, "last_start": 1, "expert_epochs": 1, "student_steps": 3, "expert_batch": 18, "expert_rate": 0.1}


def experts(real: ImageSet, root: Path, **changes: Any) -> Experts:
    context = Context(real=real, network="convnet2:width=4", seed=0, device=torch.device("cpu"))
    options = {"rate": 0.1, "batch": 10, "epoch_steps": None, "augment": "none", "seed": 0, **changes}
    network = drawn_network(0, "any", spec="convnet2:width=4").float()
    return Experts(context, network, root=root, **options)


def naive(
    real: ImageSet,
    synthetic: Parameterization,
    start: torch.Tensor,
    target: torch.Tensor,
    rate: torch.Tensor,
    steps: int,
) -> torch.Tensor:
    """All N steps in one graph, then the ratio of two sums."""
    network = drawn_network(0, "any")
    images = torch.cat([synthetic.decode(c) for c in range(3)])
    labels = torch.repeat_interleave(torch.arange(3), torch.tensor(synthetic.counts))
    theta = start.clone().requires_grad_()
    for _ in range(steps):
        logits = functional_call(network, split_weights(network, theta), (normalised(real, images),))
        theta = theta - rate * torch.autograd.grad(F.cross_entropy(logits, labels), theta, create_graph=True)[0]
    above = sum((a - b) ** 2 for a, b in zip(theta, target, strict=True))
    below = sum((a - b) ** 2 for a, b in zip(start, target, strict=True))
    return above / below


def test_equals_a_naive_unrolled_loop(make: Callable[..., Any], real: ImageSet, synthetic: Pixels) -> None:
    objective = make("trajectory", synthetic, **SMALL, student_rate=0.3)
    loss = objective.step(synthetic, 0).total
    draw = rng.generator(5, "expert", 0)
    expert, t = int(torch.randint(2, (1,), generator=draw)), int(torch.randint(2, (1,), generator=draw))
    start, target = objective.experts.load(expert, t), objective.experts.load(expert, t + 1)
    rate = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    expected = naive(real, synthetic, start, target, rate, 3)
    assert loss == pytest.approx(expected.item(), rel=1e-9)
    images, of_rate = torch.autograd.grad(expected, [synthetic.images, rate])
    torch.testing.assert_close(synthetic.images.grad, images, rtol=1e-7, atol=1e-12)
    torch.testing.assert_close(objective.rate.grad, of_rate, rtol=1e-7, atol=1e-12)


def test_gradcheck_of_one_student_step() -> None:
    network = drawn_network(0, "any")
    theta = take_weights(network).requires_grad_()
    images = torch.rand(2, 3, 8, 8, generator=rng.generator(0, "x"), dtype=torch.float64, requires_grad=True)
    targets = torch.eye(3, dtype=torch.float64)[[0, 2]].requires_grad_()
    alpha = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)

    def after(theta: torch.Tensor, images: torch.Tensor, targets: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
        return student_step(network, theta, (images, targets), alpha, graph=True)

    assert torch.autograd.gradcheck(after, (theta, images, targets, alpha), fast_mode=True)


def test_gradient_of_the_whole_step_by_differences(make: Callable[..., Any], synthetic: Pixels) -> None:
    objective = make("trajectory", synthetic, **SMALL, student_batch=4, augment="color_crop_scale_rotate")
    objective.step(synthetic, 0)
    of_images, of_rate = synthetic.images.grad, objective.rate.grad
    check_by_differences(objective, synthetic, synthetic.images, of_images)
    check_by_differences(objective, synthetic, objective.rate, of_rate)


def test_zero_where_the_student_arrives_and_one_where_it_did_not_move(real: ImageSet, synthetic: Pixels) -> None:
    network = drawn_network(0, "any")
    start = take_weights(network)
    batch = (normalised(real, synthetic.decode(0)).detach(), synthetic.targets(0))
    alpha = nn.Parameter(torch.tensor(0.1, dtype=torch.float64))
    theta = start
    for _ in range(2):
        theta = student_step(network, theta.detach().requires_grad_(), batch, alpha, graph=False).detach()
    still = nn.Parameter(torch.tensor(0.0, dtype=torch.float64))
    assert match_trajectory(network, start, theta, lambda n: batch, 2, alpha, []) == 0
    assert match_trajectory(network, start, theta, lambda n: batch, 2, still, []) == 1


def test_memory_does_not_grow_with_the_student_steps(make: Callable[..., Any], synthetic: Pixels) -> None:
    """What autograd keeps alive at once, at any time of a step."""
    objective = make("trajectory", synthetic, **SMALL)

    def most_alive(steps: int) -> int:
        object.__setattr__(objective, "options", objective.options.model_copy(update={"student_steps": steps}))
        alive = most = 0

        class Held:
            def __init__(self, tensor: torch.Tensor) -> None:
                nonlocal alive, most
                self.tensor = tensor
                alive += tensor.numel()
                most = max(most, alive)

            def __del__(self) -> None:
                nonlocal alive
                alive -= self.tensor.numel()

        with torch.autograd.graph.saved_tensors_hooks(Held, lambda held: held.tensor):
            objective.step(synthetic, 0)
        return most

    assert most_alive(12) <= 1.05 * most_alive(3)


def test_experts_learn_and_survive_a_second_look(real: ImageSet, tmp_path: Path) -> None:
    ours = experts(real, tmp_path)
    assert ours.ensure(2, 3, Stop()) == 2 and ours.size(3) == 2
    images = normalised(real, real.images / 255)

    def loss(weights: torch.Tensor) -> float:
        put_weights(ours.learner.network, weights)
        with torch.no_grad():
            return F.cross_entropy(ours.learner.network(images), real.labels).item()

    assert loss(ours.load(0, 3)) < loss(ours.load(0, 1)) < loss(ours.load(0, 0))
    assert not torch.equal(ours.load(0, 0), ours.load(1, 0))
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("epoch-*")}
    assert experts(real, tmp_path).ensure(2, 3, Stop()) == 2
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("epoch-*")} == stamps


def test_a_killed_build_goes_on_with_the_same_bytes(real: ImageSet, tmp_path: Path) -> None:
    whole, killed = experts(real, tmp_path / "whole"), experts(real, tmp_path / "killed")
    whole.ensure(2, 3, Stop())
    killed.ensure(1, 1, Stop())  # one expert, one epoch, then the process is gone
    experts(real, tmp_path / "killed").ensure(2, 3, Stop())
    for expert in (0, 1):
        for epoch in range(4):
            assert torch.equal(whole.load(expert, epoch), killed.load(expert, epoch))


def test_other_options_are_other_experts(real: ImageSet, tmp_path: Path) -> None:
    folders = {
        experts(real, tmp_path, **change).folder
        for change in ({}, {"rate": 0.2}, {"batch": 12}, {"epoch_steps": 2}, {"augment": "crop"}, {"seed": 1})
    }
    assert len(folders) == 6


def test_a_stop_keeps_what_is_whole(real: ImageSet, tmp_path: Path) -> None:
    stop = Stop()
    stop.catch(15, None)
    with pytest.raises(Interrupted, match="first expert"):
        experts(real, tmp_path).ensure(2, 2, stop)
    experts(real, tmp_path).ensure(1, 2, Stop())
    assert experts(real, tmp_path).ensure(3, 2, stop) == 1


def test_a_damaged_expert_is_named(real: ImageSet, tmp_path: Path) -> None:
    ours = experts(real, tmp_path)
    ours.ensure(1, 1, Stop())
    path = ours.path(0, 1)
    path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    with pytest.raises(RunError, match=r"epoch-001.safetensors is damaged"):
        ours.load(0, 1)


def _build(real: ImageSet, root: Path) -> None:
    torch.set_num_threads(1)
    experts(real, root).ensure(2, 2, Stop())


def test_two_processes_build_one_buffer(real: ImageSet, tmp_path: Path) -> None:
    alone = experts(real, tmp_path / "alone")
    alone.ensure(2, 2, Stop())
    spawn = multiprocessing.get_context("fork")
    builders = [spawn.Process(target=_build, args=(real, tmp_path / "shared")) for _ in range(2)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(60)
        assert builder.exitcode == 0
    shared = experts(real, tmp_path / "shared")
    assert all(torch.equal(shared.load(i, e), alone.load(i, e)) for i in range(2) for e in range(3))


def test_resume_is_exact(make: Callable[..., Any], real: ImageSet) -> None:
    check_resume(
        make,
        "trajectory",
        lambda: Pixels.create(real, (2, 1, 3), "real", rng.generator(0, "start")),
        **SMALL,
        student_batch=4,
        augment="color_crop_cutout_flip_scale_rotate",
    )
