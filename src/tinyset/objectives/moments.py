"""What kernel regression needs to know about the real features of a random network: two sums, whatever N is.

    class sums  s_c = sum_{n in c} g(x_n)   (C x F),        second moment  G = sum_n g(x_n) g(x_n)'   (F x F)

Stored per network like the bank: computed once, reused by every later run, a build that is killed goes on where it was.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tinyset.data.imageset import ImageSet
from tinyset.engine import Embedder
from tinyset.errors import RunError
from tinyset.files import load_tree, lock, save_tree
from tinyset.interrupts import Interrupted, Stop
from tinyset.networks import reset, weights_hash
from tinyset.progress import Progress, Silent
from tinyset.rng import derive, generator

FORMAT = 1


@dataclass(frozen=True)
class Moment:
    sums_CF: torch.Tensor
    second_FF: torch.Tensor
    counts_C: torch.Tensor  # real images per class behind the sums


class Moments:
    """The moments of one dataset under seeded random networks. `embed` carries the network; its weights are swapped."""

    def __init__(
        self,
        real: ImageSet,
        network: str,
        embed: Embedder,
        *,
        root: Path,
        seed: int = 0,
        real_per_class: int | None = None,
        keep_bytes: int = 1 << 30,
        progress: Progress | None = None,
    ) -> None:
        self.real = real
        self.embed = embed
        self.seed = seed
        self.real_per_class = real_per_class
        self.keep_bytes = keep_bytes
        self.progress = progress or Silent()
        self.identity: dict[str, Any] = {
            "format": FORMAT,
            "data": real.fingerprint,
            "stats": [list(v) for v in real.stats],
            "network": network,
            "seed": seed,
            "real_per_class": real_per_class,
            "dtype": str(embed.dtype),
        }
        self.folder = root / "moments" / f"{derive(0, repr(sorted(self.identity.items()))):016x}"
        self._kept: dict[int, Moment] = {}

    def path(self, k: int) -> Path:
        return self.folder / f"network-{k:05d}.safetensors"

    def load(self, k: int) -> Moment:
        """Put the weights of network k into `embed` and return its moments."""
        reset(self.embed.network, generator(self.seed, "moments network", k))
        if k not in self._kept:
            tree = load_tree(self.path(k), "moments file")
            if tree.get("identity") != self.identity:
                raise RunError(f"The moments file {self.path(k)} belongs to other data or another network: delete it.")
            if tree["hash"] != weights_hash(self.embed.network):
                raise RunError(f"{self.path(k)} was made with other weights (another torch or platform): delete it.")
            found = Moment(*(tree[name].to(self.embed.device) for name in ("sums", "second", "counts")))
            if (len(self._kept) + 1) * found.second_FF.nbytes > self.keep_bytes:
                return found
            self._kept[k] = found
        return self._kept[k]

    def ensure(self, networks: int, stop: Stop) -> int:
        """Compute what is missing; returns how many there are (fewer where `stop` said so, but at least one)."""
        missing = [k for k in range(networks) if not self.path(k).exists()]
        if not missing:
            return networks
        waiting = partial(stop.leave, f"while another process computes {self.folder}")
        guard = lock(self.folder / ".lock", wait=True, busy="", meanwhile=waiting)  # then we find them done
        try:
            self.progress.start("moments", networks)
            for k in missing:
                if stop.reason and k == 0:
                    raise Interrupted(f"The first real features were not computed ({stop.reason}).", stop.exit_code)
                if stop.reason:
                    return k
                if not self.path(k).exists():
                    self._compute(k)
                self.progress.update(k + 1)
        finally:
            guard.release()
        return networks

    @torch.no_grad()
    def _compute(self, k: int) -> None:
        reset(self.embed.network, generator(self.seed, "moments network", k))
        chosen = [members[self._order(c, len(members))] for c, members in enumerate(self.real.by_class)]
        index = torch.cat(chosen)
        sums: torch.Tensor | float = 0.0
        second: torch.Tensor | float = 0.0
        for rows in index.split(self.embed.chunk):
            features = self.embed(self.real.images[rows].to(self.embed.device))
            onehot = torch.nn.functional.one_hot(self.real.labels[rows], self.real.classes).to(features)
            sums = sums + (onehot.T @ features).double()
            second = second + features.T @ features
        tree = {"identity": self.identity, "hash": weights_hash(self.embed.network), "sums": sums, "second": second}
        save_tree(self.path(k), {**tree, "counts": torch.tensor([len(rows) for rows in chosen])})

    def _order(self, class_: int, count: int) -> torch.Tensor:
        """Which real images of a class are looked at: all, or `real_per_class` of them, the same for every network."""
        if self.real_per_class is None or self.real_per_class >= count:
            return torch.arange(count)
        order = torch.randperm(count, generator=generator(self.seed, "moments images", class_))
        return order[: self.real_per_class].sort().values
