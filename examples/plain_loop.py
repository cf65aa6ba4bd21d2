"""Train on a condensed set with a plain PyTorch loop and test on real images.

python plain_loop.py run/artifact streetdigits
"""

import sys

import torch

import tinyset
from tinyset.networks import build


def main(artifact, source, name="convnet3:width=32", epochs=200):
    ds = tinyset.load(artifact)
    channels, height, width = ds.image_shape
    network = build(name, channels=channels, image_size=(height, width), classes=len(ds.class_names))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    for images, targets in ds.loader(epochs=epochs):  # normalised and augmented as the set's protocol says
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(images), targets).backward()
        optimizer.step()

    test = tinyset.load_images(source).test
    network.eval()
    with torch.no_grad():
        predicted = torch.cat([network(ds.normalise(part)).argmax(1) for part in test.images.split(500)])
    accuracy = (predicted == test.labels).float().mean().item()
    print(f"{100 * accuracy:.1f} % of {len(test):,} test images")
    return accuracy


if __name__ == "__main__":
    main(*sys.argv[1:3])
