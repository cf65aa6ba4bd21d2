"""Selections: herding equals brute force, k-means finds clusters, every choice is a different image of its class."""

import pytest
import torch

from tinyset import rng
from tinyset.data.imageset import ImageSet
from tinyset.errors import UserError
from tinyset.protocols import Protocol
from tinyset.selection import cluster, herding, kmeans, random_selection, select, trained_features

COUNTS = (3, 1, 4)


@pytest.fixture
def real() -> ImageSet:
    draw = rng.generator(0, "selection test")
    labels = torch.arange(60) % 3
    images = torch.randint(0, 128, (60, 3, 8, 8), generator=draw) + 40 * labels.view(-1, 1, 1, 1)
    return ImageSet(images.to(torch.uint8), labels, ("a", "b", "c"))


def check_choice(index: torch.Tensor, labels: torch.Tensor, counts: tuple[int, ...]) -> None:
    assert len(index) == len(set(index.tolist())) == sum(counts)
    assert torch.equal(labels[index], torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts)))


def test_herding_equals_brute_force() -> None:
    draw = rng.generator(1, "herding")
    features = torch.randn(40, 5, generator=draw)
    labels = torch.randint(0, 2, (40,), generator=draw)
    found = herding(features, labels, (6, 4))
    for c, count in enumerate((6, 4)):
        members = [i for i in range(40) if labels[i] == c]
        mean = sum(features[i].double() for i in members) / len(members)
        picked: list[int] = []
        for k in range(count):
            best, best_distance = -1, float("inf")
            for i in members:
                if i in picked:
                    continue
                total = sum((features[j].double() for j in picked), features[i].double())
                distance = float(((k + 1) * mean - total).square().sum())
                if distance < best_distance:
                    best, best_distance = i, distance
            picked.append(best)
        assert found[c].tolist() == picked


def test_herding_may_take_a_whole_class() -> None:
    features = torch.ones(4, 2)  # identical images: each still only once
    (chosen,) = herding(features, torch.zeros(4).long(), (4,))
    assert sorted(chosen.tolist()) == [0, 1, 2, 3]


def test_kmeans_finds_well_separated_clusters() -> None:
    draw = rng.generator(2, "clusters")
    middles = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    features = torch.cat([middle + torch.randn(20, 2, generator=draw) * 0.3 for middle in middles])
    centres = cluster(features.double(), 3, rng.generator(0, "start"))
    assert torch.cdist(middles.double(), centres).min(1).values.max() < 0.3
    (chosen,) = kmeans(features, torch.zeros(60).long(), (3,), seed=0)
    assert sorted((chosen // 20).tolist()) == [0, 1, 2]


def test_kmeans_of_identical_images_still_gives_different_ones() -> None:
    (chosen,) = kmeans(torch.zeros(5, 3), torch.zeros(5).long(), (4,), seed=0)
    assert len(set(chosen.tolist())) == 4


def test_random_is_seeded_and_of_the_right_classes(real: ImageSet) -> None:
    index = torch.cat(random_selection(real, COUNTS, seed=3))
    check_choice(index, real.labels, COUNTS)
    assert torch.equal(index, torch.cat(random_selection(real, COUNTS, seed=3)))
    assert not torch.equal(index, torch.cat(random_selection(real, COUNTS, seed=4)))


@pytest.mark.parametrize("name", ["random", "herding", "kmeans"])
def test_select_by_name(real: ImageSet, name: str) -> None:
    short = Protocol(name="short", steps=3, batch=32)
    index = select(name, real, COUNTS, seed=0, network="convnet2:width=4", training=short)
    check_choice(index, real.labels, COUNTS)
    assert torch.equal(index, select(name, real, COUNTS, seed=0, network="convnet2:width=4", training=short))


def test_features_are_those_of_a_trained_network(real: ImageSet) -> None:
    def features(steps: int) -> torch.Tensor:
        protocol = Protocol(name="t", steps=steps, batch=60, rate=0.05)
        return trained_features(real, "convnet2:width=4", seed=0, training=protocol)

    trained = features(40)
    assert trained.shape == (60, 4 * 2 * 2)
    centres = torch.stack([trained[real.labels == c].mean(0) for c in range(3)])
    nearest = torch.cdist(trained, centres).argmin(1)
    assert (nearest == real.labels).float().mean() > 0.8
    assert not torch.equal(trained, features(1))


def test_bad_requests_are_one_sentence(real: ImageSet) -> None:
    with pytest.raises(UserError, match="'a' has 20 images; 21"):
        select("random", real, (21, 1, 1), seed=0)
    with pytest.raises(UserError, match="Unknown selection 'best'"):
        select("best", real, COUNTS, seed=0)
