"""Training epochs of the evaluation: ConvNet-3, SGD, batch 256, flips and shifts."""

import torch
import torch.nn.functional as F

from benchmarks.contenders import Run
from benchmarks.contenders.shapes import CLASSES, IMAGE, NETWORK, STATS, real_images
from tinyset.networks import build

IMAGES, BATCH, PAD = 2048, 256, 4


def ours() -> Run:
    from tinyset.protocols import protocol
    from tinyset.training import train

    real = real_images(IMAGES)
    network = build(NETWORK, channels=3, image_size=IMAGE[1:], classes=CLASSES)
    one_epoch = protocol("kfs-aug").model_copy(update={"epochs": 1})

    def run() -> float:
        return train(
            network, real.images, real.labels, one_epoch, normalisation=STATS, mirror=True, seed=0, compile=True
        ).images_seen

    run()
    return run


class Augmented(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Flip and shift image by image, as a torchvision transform would."""

    def __init__(self) -> None:
        real = real_images(IMAGES)
        self.images, self.labels = real.images, real.labels
        self.mean, self.std = (torch.tensor(v).view(3, 1, 1) for v in STATS)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image = (self.images[index].float() / 255 - self.mean) / self.std
        if torch.rand(()) < 0.5:
            image = image.flip(2)
        top, left = torch.randint(0, 2 * PAD + 1, (2,)).tolist()
        image = F.pad(image, (PAD, PAD, PAD, PAD))[:, top : top + IMAGE[1], left : left + IMAGE[2]]
        return image, self.labels[index]


def plain() -> Run:
    network = build(NETWORK, channels=3, image_size=IMAGE[1:], classes=CLASSES)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    loader = torch.utils.data.DataLoader(Augmented(), batch_size=BATCH, shuffle=True)

    def run() -> float:
        for images, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(network(images), labels).backward()
            optimizer.step()
        return IMAGES

    run()
    return run
