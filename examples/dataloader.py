"""A condensed set is a torch Dataset: DataLoader, samplers, `random_split` and transforms of your own work as usual.

python dataloader.py run/artifact
"""

import sys

import torch
from torch.utils.data import DataLoader, random_split

import tinyset


def main(artifact, epochs=20):
    ds = tinyset.load(artifact)  # ds[i] is (float32 C x H x W in [0, 1], label)
    held = max(1, len(ds) // 10)
    train, rest = random_split(ds, [len(ds) - held, held], generator=torch.Generator().manual_seed(0))
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(ds[0][0].numel(), len(ds.class_names)))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(epochs):
        for images, labels in DataLoader(train, batch_size=64, shuffle=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(ds.normalise(images)), labels).backward()
            optimizer.step()
    images, labels = next(iter(DataLoader(rest, batch_size=held)))
    accuracy = (network(ds.normalise(images)).argmax(1) == labels).float().mean().item()
    print(f"{100 * accuracy:.1f} % of {held} synthetic images that were left out")
    return accuracy


if __name__ == "__main__":
    main(sys.argv[1])
