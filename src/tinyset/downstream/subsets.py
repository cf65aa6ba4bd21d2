"""How well any part of a condensed set matches the real means, from inner products alone: no network is run twice.

    L(S) = 1/2 E_k | mu_k - 1/|S| sum_{i in S} e_{k,i} |^2  =  1/2 ( s - 2 mean_{i in S} h_i + mean_{i,j in S} G_ij )
    s = E_k |mu_k|^2,   h_i = E_k <mu_k, e_{k,i}>,   G_ij = E_k <e_{k,i}, e_{k,j}>

| symbol | here |
|---|---|
| mu_k, e_{k,i} | the real mean of a class and the embedding of its synthetic image i under network k of the bank |
| S | the images that are kept: some codes through some decoders |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch

from tinyset.bank import Bank
from tinyset.condensed import CondensedSet
from tinyset.progress import Progress


@dataclass(frozen=True)
class Match:
    """s, h, G of the items of one class (or, averaged, of all)."""

    square: float
    cross: torch.Tensor  # n
    gram: torch.Tensor  # n x n

    def loss(self, kept: Sequence[int]) -> float:
        at = torch.tensor(list(kept))
        return float(0.5 * (self.square - 2 * self.cross[at].mean() + self.gram[at][:, at].mean()))

    def fewer(self, count: int) -> list[int]:
        """`count` items: one after the other the one whose loss is felt least is dropped."""
        kept = torch.arange(len(self.cross))
        while len(kept) > count:
            n = len(kept) - 1
            gram, cross = self.gram[kept][:, kept], self.cross[kept]
            rest = gram.sum() - 2 * gram.sum(1) + gram.diagonal()  # of the pairs that stay when an item goes
            losses = -2 * (cross.sum() - cross) / n + rest / n**2
            at = int(losses.argmin())
            kept = torch.cat([kept[:at], kept[at + 1 :]])
        return kept.tolist()

    def by_code(self, decoders: int, kept: Sequence[int]) -> "Match":
        """Items are codes: each the mean of its images under the decoders `kept`."""
        cross, gram, at = self.cross.view(-1, decoders), _four(self.gram, decoders), torch.tensor(list(kept))
        return Match(self.square, cross[:, at].mean(1), gram[:, at][:, :, :, at].mean((1, 3)))

    def by_decoder(self, decoders: int) -> "Match":
        """Items are decoders: each the mean of the images of all codes under it."""
        return Match(self.square, self.cross.view(-1, decoders).mean(0), _four(self.gram, decoders).mean((0, 2)))

    def __add__(self, other: "Match") -> "Match":
        return Match(self.square + other.square, self.cross + other.cross, self.gram + other.gram)


def _four(gram: torch.Tensor, decoders: int) -> torch.Tensor:
    codes = len(gram) // decoders
    return gram.view(codes, decoders, codes, decoders)


def total(matches: Sequence[Match]) -> Match:
    return reduce(Match.__add__, matches)


@torch.no_grad()
def matches(condensed: CondensedSet, bank: Bank, networks: int, progress: Progress, task: str) -> list[Match]:
    """The match of every class with the first `networks` networks of the bank."""
    classes = len(condensed.class_names)
    images = [condensed.images(c) for c in range(classes)]
    found: list[Match] = []
    progress.start(task, networks)
    for k in range(networks):
        means = bank.load(k).double().cpu()
        for c in range(classes):
            parts = [bank.embed(chunk.to(bank.embed.device)).cpu() for chunk in images[c].split(bank.embed.chunk)]
            e = torch.cat(parts).double()
            one = Match(float(means[c] @ means[c]) / networks, e @ means[c] / networks, e @ e.T / networks)
            if k == 0:
                found.append(one)
            else:
                found[c] = found[c] + one
        progress.update(k + 1)
    return found
