"""The first table of the KFS paper (Lee et al. 2022): test accuracies of ConvNet-3 at equal storage, for the column beside ours."""

IMAGES_PER_CLASS = (1, 10, 50)

PUBLISHED: dict[str, dict[str, tuple[float | None, ...]]] = {
    "random":  {"svhn": (14.6, 35.1, 70.9), "cifar10": (14.4, 26.0, 43.4), "cifar100": (4.2, 14.6),  "tinyimagenet": (1.4, 5.0)},
    "herding": {"svhn": (20.9, 50.5, 72.6), "cifar10": (21.5, 31.6, 40.4), "cifar100": (8.4, 17.3),  "tinyimagenet": (2.8, 6.3)},
    "dc":      {"svhn": (31.2, 76.1, 82.3), "cifar10": (28.3, 44.9, 53.9), "cifar100": (12.8, 25.2)},
    "dsa":     {"svhn": (27.5, 79.2, 84.4), "cifar10": (28.8, 52.1, 60.6), "cifar100": (13.9, 32.3)},
    "dm":      {"svhn": (20.3, 73.5, 84.2), "cifar10": (26.0, 48.9, 63.0), "cifar100": (11.4, 29.7), "tinyimagenet": (3.9, 12.9)},
    "kip":     {"svhn": (57.3, 75.0, 80.5), "cifar10": (49.9, 62.7, 68.6), "cifar100": (15.7, 28.3)},
    "cafe":    {"svhn": (42.9, 77.9, 82.3), "cifar10": (31.6, 50.9, 62.3), "cifar100": (14.0, 31.5)},
    "mtt":     {"cifar10": (46.3, 65.3, 71.6), "cifar100": (24.3, 40.1), "tinyimagenet": (8.8, 23.2)},
    "idc":     {"svhn": (68.1, 87.3, 90.2), "cifar10": (50.0, 67.5, 74.5), "cifar100": (None, 44.8)},
    "kfs":     {"svhn": (82.9, 91.4, 92.2), "cifar10": (59.8, 72.0, 75.0), "cifar100": (40.0, 50.6), "tinyimagenet": (22.7, 27.8)},
}  # fmt: skip
FULL_DATA = {"svhn": 95.4, "cifar10": 84.8, "cifar100": 56.2, "tinyimagenet": 37.6}


def published(data: str, images_per_class: object, method: str) -> float | None:
    """The paper's accuracy in percent, None where its table has no such cell."""
    if method == "full":
        return FULL_DATA.get(data)
    cells = PUBLISHED.get(method, {}).get(data, ())
    by_budget = dict(zip(IMAGES_PER_CLASS, cells, strict=False))
    return by_budget.get(images_per_class) if isinstance(images_per_class, int) else None
