"""Distribution matching: equation (1); the bias of equation (2) and the covariance of equation (3) by enumeration.

Legend: n = D M images of a class's grid, b of them in a sample, e_i their embeddings, mu the real mean, C classes.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest
import torch
from toys import check_resume, drawn_network, normalised

from tinyset import rng
from tinyset.data.imageset import ImageSet
from tinyset.objectives.distribution import DistributionMatching
from tinyset.parameterizations.base import Parameterization
from tinyset.parameterizations.codes import Codes
from tinyset.parameterizations.pixels import Pixels
from tinyset.progress import Silent

C, M, D = 3, 2, 2
N_GRID = M * D
STAGES = {"stages": [0, 2], "stage_steps": 2, "stage_batch": 8}
Groups = tuple[list[torch.Tensor], list[torch.Tensor] | None]
Make = Callable[..., Any]


@pytest.fixture
def grid() -> Codes:
    """2 codes x 2 decoders in each of 3 classes."""
    made = Codes((3, 8, 8), (M,) * C, (4, 2, 2), (4, 2, 3), D)
    draw = rng.generator(1, "codes")
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw))
    return made.double()


def flat(gradients: Iterable[torch.Tensor]) -> torch.Tensor:
    return torch.cat([g.reshape(-1) for g in gradients])


def embeddings(real: ImageSet, synthetic: Parameterization, step: int = 0) -> list[torch.Tensor]:
    """Of each class, n x F, one image at a time, under the network of `step`."""
    g = drawn_network(5, "network", step)
    return [
        torch.cat([g.features(normalised(real, synthetic.decode(c, torch.tensor([i])))) for i in range(count)])  # type: ignore[operator]
        for c, count in enumerate(synthetic.counts)
    ]


def real_embeddings(real: ImageSet) -> list[torch.Tensor]:
    g = drawn_network(5, "network", 0)
    return [g.features(normalised(real, real.images[index].double() / 255)).detach() for index in real.by_class]  # type: ignore[operator]


def gradient_of(loss: torch.Tensor, synthetic: Parameterization) -> torch.Tensor:
    return flat(torch.autograd.grad(loss, list(synthetic.parameters()), retain_graph=True))


def equation_1(e: Sequence[torch.Tensor], mu: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack([0.5 * (m - x.mean(0)).square().sum() for x, m in zip(e, mu, strict=True)]).mean()


def spread(e: Sequence[torch.Tensor]) -> torch.Tensor:
    """The braces of equation (2): 1/C sum_c 1/2 { 1/n sum_i e_i.e_i - 1/n^2 sum_ij e_i.e_j }."""
    return torch.stack([0.5 * (x.square().sum() / len(x) - (x @ x.T).sum() / len(x) ** 2) for x in e]).mean()


def step_gradient(objective: DistributionMatching, synthetic: Parameterization, groups: Groups) -> torch.Tensor:
    """The gradient of one step whose samples are given, the same for every class."""
    objective._groups = lambda count, step, class_: groups  # type: ignore[method-assign]
    for parameter in synthetic.parameters():
        parameter.grad = None
    objective.step(synthetic, 0)
    return flat(p.grad for p in synthetic.parameters() if p.grad is not None)


def samples(size: int) -> list[torch.Tensor]:
    return [torch.tensor(chosen) for chosen in combinations(range(N_GRID), size)]


def expectation(gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(gradients)).mean(0)


@pytest.fixture
def exact(make: Make, grid: Codes, real: ImageSet) -> tuple[DistributionMatching, torch.Tensor]:
    """An objective with the mean of all real images at step 0, and the gradient of equation (1)."""
    objective = make("distribution", grid, real="batch", real_batch=1000)
    mu = [e.mean(0) for e in real_embeddings(real)]
    return objective, gradient_of(equation_1(embeddings(real, grid), mu), grid)


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10 * float(b.abs().max()))


@pytest.mark.parametrize("scale", ["mean", "sum"])
def test_the_full_batch_is_equation_1(make: Make, grid: Codes, real: ImageSet, scale: str) -> None:
    objective = make("distribution", grid, real="batch", real_batch=1000, scale=scale)
    losses = objective.step(grid, 3)
    g = drawn_network(5, "network", 3)
    mu = [g.features(normalised(real, real.images[i].double() / 255)).mean(0) for i in real.by_class]  # type: ignore[operator]
    loss = equation_1(embeddings(real, grid, 3), mu) * (1 if scale == "mean" else 2 * C)
    assert losses.total == pytest.approx(loss.item(), rel=1e-12)
    assert sum(losses.per_class) * (1 / C if scale == "mean" else 2) == pytest.approx(losses.total, rel=1e-12)
    close(flat(p.grad for p in grid.parameters() if p.grad is not None), gradient_of(loss, grid))


def test_the_bank_gives_the_same_means(make: Make, grid: Codes, real: ImageSet) -> None:
    objective = make("distribution", grid, networks=2)
    losses = objective.step(grid, 0)
    first = int(torch.randperm(2, generator=rng.generator(5, "network order", 0))[0])
    g = drawn_network(0, "bank network", first)
    mu = [g.features(normalised(real, real.images[i].double() / 255)).mean(0) for i in real.by_class]  # type: ignore[operator]
    e = [g.features(normalised(real, grid.decode(c))) for c in range(C)]  # type: ignore[operator]
    assert losses.total == pytest.approx(equation_1(e, mu).item(), rel=1e-10)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_two_independent_samples_are_unbiased(
    exact: tuple[DistributionMatching, torch.Tensor], grid: Codes, size: int
) -> None:
    objective, full = exact
    pairs = product(samples(size), samples(size))  # every ordered pair is equally likely, equal ones included
    close(expectation([step_gradient(objective, grid, ([a, b], None)) for a, b in pairs]), full)


def test_two_halves_of_one_permutation_are_biased(
    exact: tuple[DistributionMatching, torch.Tensor], grid: Codes, real: ImageSet
) -> None:
    """The control: never overlapping, they leave out e_i . e_i, and the bias is -1/(n - 1) times equation (2)."""
    objective, full = exact
    halves = [(a, torch.tensor(sorted(set(range(N_GRID)) - set(a.tolist())))) for a in samples(N_GRID // 2)]
    found = expectation([step_gradient(objective, grid, ([a, b], None)) for a, b in halves])
    assert (found - full).norm() > 0.01 * full.norm()
    close(found - full, -gradient_of(spread(embeddings(real, grid)), grid) / (N_GRID - 1))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_remedy_of_the_paper_is_unbiased(
    exact: tuple[DistributionMatching, torch.Tensor], grid: Codes, size: int
) -> None:
    """Means over all, back-propagation through S, scaled by D M / |S|: raw gradients, before any optimizer."""
    objective, full = exact
    everything = torch.arange(N_GRID)
    close(expectation([step_gradient(objective, grid, ([everything], [s])) for s in samples(size)]), full)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_one_sample_used_twice_has_the_bias_of_equation_2(
    exact: tuple[DistributionMatching, torch.Tensor], grid: Codes, real: ImageSet, size: int
) -> None:
    """b = 1 is equation (2); b without replacement have (n - b) / (b (n - 1)) of it, and the full batch has none."""
    objective, full = exact
    found = expectation([step_gradient(objective, grid, ([s], None)) for s in samples(size)])
    share = (N_GRID - size) / (size * (N_GRID - 1))
    bias = gradient_of(spread(embeddings(real, grid)), grid)
    torch.testing.assert_close(found - full, share * bias, rtol=1e-9, atol=1e-11 * float(bias.abs().max()))
    assert bias.norm() > 0.01 * full.norm()


@pytest.mark.parametrize("axis", ["codes", "decoders"])
def test_sampling_codes_or_decoders_alone_is_biased_alike(
    exact: tuple[DistributionMatching, torch.Tensor], grid: Codes, real: ImageSet, axis: str
) -> None:
    """One code with all decoders (one decoder with all codes): equation (2) with that axis's means for embeddings."""
    objective, full = exact
    images = torch.arange(N_GRID).view(M, D)  # image i is code i // D through decoder i % D
    rows = list(images if axis == "codes" else images.T)
    found = expectation([step_gradient(objective, grid, ([row], None)) for row in rows])
    means = [x.view(M, D, -1).mean(1 if axis == "codes" else 0) for x in embeddings(real, grid)]
    close(found - full, gradient_of(spread(means), grid))


def test_the_covariance_under_sampled_real_images_is_equation_3(make: Make, grid: Codes, real: ImageSet) -> None:
    """One real image per class, all N^C choices: 1/C^2 sum_c V_c^T { E[g g^T] - E[g] E[g]^T } V_c."""
    objective = make("distribution", grid, real="batch", real_batch=1)
    some = [x[:3] for x in real_embeddings(real)]  # N = 3
    everything: Groups = ([torch.arange(N_GRID)], None)
    gradients = []
    for chosen in product(range(3), repeat=C):
        means = torch.stack([x[n] for x, n in zip(some, chosen, strict=True)])
        objective._targets = lambda step, means=means: drawn_targets(objective, means)
        gradients.append(step_gradient(objective, grid, everything))
    stacked = torch.stack(gradients)
    found = stacked.T @ stacked / len(stacked) - torch.outer(stacked.mean(0), stacked.mean(0))

    expected = torch.zeros_like(found)
    for e, g in zip(embeddings(real, grid), some, strict=True):
        v = torch.stack([gradient_of(feature, grid) for feature in e.mean(0)])  # F x parameters
        covariance = g.T @ g / len(g) - torch.outer(g.mean(0), g.mean(0))
        expected += v.T @ covariance @ v / C**2
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12 * float(expected.abs().max()) + 1e-15)


def drawn_targets(objective: DistributionMatching, means: torch.Tensor) -> tuple[torch.Tensor, None]:
    from tinyset.networks import reset

    reset(objective.embed.network, rng.generator(5, "network", 0))
    return means, None


def test_pairs_are_drawn_independently(make: Make, grid: Codes) -> None:
    """4 images, halves of 2: all 36 ordered pairs of samples come about equally often, equal ones included."""
    objective = make("distribution", grid, real="batch", batch=4)
    seen: dict[tuple[frozenset[int], ...], int] = {}
    draws = 3600
    for step in range(draws):
        groups, through = objective._groups(N_GRID, step, 0)
        assert through is None
        key = tuple(frozenset(group.tolist()) for group in groups)
        seen[key] = seen.get(key, 0) + 1
    assert len(seen) == 36
    chi_squared = sum((count - draws / 36) ** 2 / (draws / 36) for count in seen.values())
    assert chi_squared < 66.6  # 35 degrees of freedom, p = 0.001; the draws are a function of the seed


@pytest.mark.parametrize(("batch", "one"), [("full", True), (8, True), (7, False), (4, False)])
def test_a_batch_of_twice_the_grid_is_the_full_batch(make: Make, grid: Codes, batch: int | str, one: bool) -> None:
    groups, _ = make("distribution", grid, real="batch", batch=batch)._groups(N_GRID, 0, 0)
    assert (len(groups) == 1) == one


@pytest.mark.parametrize("sampling", ["pairs", "biased", "subset"])
@pytest.mark.parametrize("augment", ["none", "color_crop_cutout_flip_scale_rotate"])
def test_memory_decides_the_passes_and_not_the_result(make: Make, grid: Codes, sampling: str, augment: str) -> None:
    found = []
    for one_pass in (True, False):
        objective = make("distribution", grid, real="batch", batch=4, sampling=sampling, augment=augment)
        objective.one_pass = one_pass
        for parameter in grid.parameters():
            parameter.grad = None
        losses = objective.step(grid, 7)
        found.append((losses.total, flat(p.grad for p in grid.parameters() if p.grad is not None)))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-12)
    close(found[0][1], found[1][1])


def test_resumes_byte_for_byte(make: Make, real: ImageSet) -> None:
    def start() -> Pixels:
        return Pixels.create(real, (2, 2, 2), "real", rng.generator(3, "start")).double()

    check_resume(make, "distribution", start, networks=4)
    check_resume(make, "distribution", start, real="batch", real_batch=5, augment="color_flip")
    check_resume(make, "distribution", start, networks=4, **STAGES)


def apart(made: Codes) -> float:
    """The mean distance between two decoders."""
    rows = torch.cat([p.detach().reshape(D, -1) for p in made.decoders.parameter_list()], 1)
    return float(torch.pdist(rows).mean())


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_decoders_part_only_where_noise_told_them_apart(make: Make, real: ImageSet, noise: float) -> None:
    """Copies get equal gradients: without noise D decoders are one decoder for ever."""
    from tinyset.budget import CodePlan
    from tinyset.parameterizations.beginnings import create_codes

    plan = CodePlan("low", (12, 9, 6, 3), (12, 1, 1), (M,) * C, D, (192,) * C)
    made = create_codes(
        real,
        plan,
        pretrain_steps=20,
        pretrain_batch=16,
        pretrain_rate=0.01,
        noise=noise,
        seed=0,
        device=torch.device("cpu"),
        cache=None,
        progress=Silent(),
    ).double()
    objective = make("distribution", made, networks=8)
    groups = made.groups()
    optimizer = torch.optim.Adam([{"params": groups[n], "lr": r} for n, r in (("codes", 0.1), ("decoders", 0.01))])
    before = apart(made)
    for step in range(50):
        optimizer.zero_grad()
        objective.step(made, step)
        optimizer.step()
    if noise == 0:
        assert apart(made) < 1e-12
    else:
        assert apart(made) > 2 * before > 0
    assert math.isfinite(apart(made))


def test_a_bank_of_networks_at_stages_of_their_training(real: ImageSet, grid: Codes, make: Make) -> None:
    """Network k is expert k // 2 at stage k % 2: stage 0 has the weights it was drawn with, stage 2 has moved from them."""
    objective = make("distribution", grid, networks=4, **STAGES)
    weights = []
    for k in range(4):
        means = objective.bank.load(k)
        network = objective.embed.network
        naive = [network.features(normalised(real, real.images[i].double() / 255)).mean(0) for i in real.by_class]
        assert torch.allclose(means, torch.stack(naive), atol=1e-9)
        weights.append(flat(network.parameters()))
    assert torch.equal(weights[0], flat(drawn_network(0, "expert", 0).parameters()))
    assert not torch.allclose(weights[0], weights[1]) and not torch.allclose(weights[0], weights[2])
    plain = make("distribution", grid, networks=4)
    assert plain.bank.folder != objective.bank.folder
