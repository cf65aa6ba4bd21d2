"""The embedding bank: mean embeddings of the real images of each class under K seeded random networks.

    mu_{k,c} = 1/N_c sum_n g_k(x_{c,n})          g_k: the network of seed k

Computed once, stored, reused by every later run on the same data; asking for more networks computes only the new ones.
Networks are re-created from their seeds and checked against a stored hash of their weights.
"""

import time
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from torch import nn

from tinyset.data.imageset import ImageSet
from tinyset.engine import COMPILE_FROM_IMAGES, Embedder, even_chunk
from tinyset.errors import RunError
from tinyset.files import cache_dir, load_tree, lock, save_tree
from tinyset.interrupts import Stop
from tinyset.networks import build, reset, weights_hash
from tinyset.processes import team
from tinyset.progress import Progress, Silent
from tinyset.rng import derive, generator

SHARD = 64  # networks per file
SAVE_EVERY_S = 20.0  # a killed build loses at most this much work; what is stored does not depend on it
FORMAT = 1


class Weights(Protocol):
    """Where the weights of network k come from, if not from its seed: networks that were trained."""

    identity: dict[str, Any]

    def ensure(self, networks: int, stop: Stop) -> int:
        """Have the first `networks` of them; returns how many there are."""

    def put(self, network: nn.Module, k: int) -> None: ...


class Bank:
    """The bank of one dataset under one kind of network. `embed` carries the network whose weights are swapped."""

    def __init__(
        self,
        real: ImageSet,
        network: str,
        embed: Embedder,
        *,
        root: Path,
        seed: int = 0,
        real_per_class: int | None = None,
        weights: Weights | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.real = real
        self.embed = embed
        self.weights = weights
        self.seed = seed
        self.progress = progress or Silent()
        self.real_per_class = real_per_class
        self.identity: dict[str, Any] = {
            "format": FORMAT,
            "data": real.fingerprint,
            "stats": [list(v) for v in real.stats],
            "network": network,
            "seed": seed,
            "real_per_class": real_per_class,
            "dtype": str(embed.dtype),
        }
        if embed.precision != "float32":
            self.identity["precision"] = embed.precision
        if weights is not None:
            self.identity["weights"] = weights.identity
        self.folder = root / "banks" / f"{derive(0, repr(sorted(self.identity.items()))):016x}"
        self._hashes: dict[int, list[str]] = {}  # of the files that were found whole; the means stay on the disk
        self._checked: set[int] = set()

    def load(self, k: int) -> torch.Tensor:
        """Put the weights of network k into `embed` and return its class means, C x F."""
        number, at = divmod(k, SHARD)
        hashes = self._whole(number)
        if at >= len(hashes):
            raise RunError(f"The bank {self.folder} has no network {k}.")
        self._put(k)
        if k not in self._checked:
            if weights_hash(self.embed.network) != hashes[at]:
                raise RunError(
                    f"Network {k} of the bank {self.folder} was drawn with other weights than here (another torch or "
                    "platform): delete that folder to compute it again."
                )
            self._checked.add(k)
        return self._stored(number, at).to(self.embed.device)

    def size(self) -> int:
        """How many networks are stored."""
        count = 0
        while self._path(count // SHARD).exists():
            stored = len(self._whole(count // SHARD))
            count += stored
            if stored < SHARD:
                break
        return count

    def ensure(self, networks: int, stop: Stop | None = None) -> int:
        """Compute what is missing up to `networks`; returns how many are there (fewer where `stop` said so).

        A team's processes compute a network each and the first one writes them: the files are those of one process.
        """
        us, stop = team(), stop or Stop()
        if self.weights is not None:
            networks = self.weights.ensure(networks, stop)
        if us.first(self.size) >= networks:
            return networks
        guard = self._lock(stop) if us.leads else None
        try:
            have = us.first(self._look_again)
            index, labels = self._rows()
            self.progress.start("bank", networks)
            shard: dict[str, Any] = {}
            saved = time.monotonic()
            while have < networks and not stop.reason_of_all(us):
                began, k = time.monotonic(), have + us.rank
                made = us.to_first(self._network(k, index, labels) if k < networks else None)
                for at, (means, weights) in enumerate(filter(None, made), have):  # on the first process
                    if not shard or at % SHARD == 0:
                        shard = self._read(at // SHARD) if at % SHARD else self._empty()
                    shard["means"].append(means)
                    shard["hashes"].append(weights)
                    if (at + 1) % SHARD == 0 or at + 1 == networks or time.monotonic() - saved > SAVE_EVERY_S:
                        self._write(at // SHARD, shard)
                        saved = time.monotonic()
                have = min(have + us.size, networks)
                self.progress.update(have, images_per_s=us.size * len(index) / max(time.monotonic() - began, 1e-9))
            if have % SHARD and shard:
                self._write(have // SHARD, shard)
            us.first(lambda: None)  # all is written
            if not us.leads:
                self._hashes.clear()
        finally:
            if guard is not None:
                guard.release()
        return min(have, networks)

    def _lock(self, stop: Stop) -> FileLock:
        waiting = partial(stop.leave, f"while another process builds {self.folder}")
        return lock(self.folder / ".lock", wait=True, busy="", meanwhile=waiting)  # then we find it done

    def _look_again(self) -> int:
        self._hashes.clear()
        return self.size()

    def _put(self, k: int) -> None:
        if self.weights is None:
            reset(self.embed.network, generator(self.seed, "bank network", k))
        else:
            self.weights.put(self.embed.network, k)

    def _network(self, k: int, index: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, str]:
        """The class means under network k, and the hash of its weights."""
        self._put(k)
        return self._means(index, labels), weights_hash(self.embed.network)

    def _rows(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Indices of the images that are embedded, class after class, and their labels."""
        chosen = []
        for c, members in enumerate(self.real.by_class):
            if self.real_per_class is not None and self.real_per_class < len(members):
                order = torch.randperm(len(members), generator=generator(self.seed, "bank images", c))
                members = members[order[: self.real_per_class].sort().values]
            chosen.append(members)
        index = torch.cat(chosen)
        return index, self.real.labels[index]

    @torch.no_grad()
    def _means(self, index: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """One pass over the real images. They come class after class: a class's sum is a sum of runs, in float64."""
        sums = torch.zeros(self.real.classes, 0, dtype=torch.float64, device=self.embed.device)
        for rows, of in zip(index.split(self.embed.chunk), labels.split(self.embed.chunk), strict=True):
            embedding = self.embed(self.real.images[rows].to(self.embed.device))
            if not sums.numel():
                sums = sums.new_zeros(self.real.classes, embedding.shape[1])
            classes, lengths = torch.unique_consecutive(of, return_counts=True)
            for c, run in zip(classes.tolist(), embedding.split(lengths.tolist()), strict=True):
                sums[c] += run.sum(0, dtype=torch.float64)
        counts = torch.bincount(labels, minlength=self.real.classes).to(sums)
        return (sums / counts[:, None]).to(self.embed.dtype).cpu()

    def _path(self, shard: int) -> Path:
        return self.folder / f"shard-{shard:05d}.safetensors"

    def _whole(self, number: int) -> list[str]:
        """The weight hashes of a file, which is read and checked when it is first asked for."""
        if number not in self._hashes:
            self._hashes[number] = self._read(number)["hashes"]
        return self._hashes[number]

    def _read(self, number: int) -> dict[str, Any]:
        path = self._path(number)
        shard = load_tree(path, "bank file")
        if shard.get("identity") != self.identity:
            raise RunError(f"The bank file {path} belongs to other data or another network: delete it.")
        return shard

    def _stored(self, number: int, at: int) -> torch.Tensor:
        """One network's means: a bank of 16 GB is not read into memory."""
        path = self._path(number)
        try:
            with safe_open(str(path), framework="pt") as file:
                means: torch.Tensor = file.get_tensor(f"/means/{at}")
        except (OSError, SafetensorError) as error:
            raise RunError(f"The bank file {path} was whole a moment ago and cannot be read now: {error}.") from error
        return means

    def _empty(self) -> dict[str, Any]:
        return {"identity": self.identity, "means": [], "hashes": []}

    def _write(self, number: int, shard: dict[str, Any]) -> None:
        save_tree(self._path(number), shard)
        self._hashes[number] = list(shard["hashes"])


def open_bank(
    real: ImageSet,
    network: str,
    *,
    device: torch.device,
    networks: int,
    real_per_class: int | None = None,
    progress: Progress | None = None,
) -> Bank:
    """A bank with an engine of its own, as the command line wants it."""
    channels, height, width = real.image_shape
    embedded = networks * sum(min(real_per_class or n, n) for n in real.counts)
    embed = Embedder(
        build(network, channels=channels, image_size=(height, width), classes=real.classes),
        real.stats,
        device=device,
        chunk=even_chunk(1 << 20, real.image_shape),
        compile=embedded >= COMPILE_FROM_IMAGES,
        note=(progress or Silent()).note,
    )
    return Bank(real, network, embed, root=cache_dir(), real_per_class=real_per_class, progress=progress)
