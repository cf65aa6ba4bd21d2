"""What a condensed set says to people: its README and its picture."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tinyset.artifact import ArtifactConfig, PrivacyReport
from tinyset.parameterizations.base import Parameterization
from tinyset.pictures import grid, short
from tinyset.whitening import numbers

CARD_TEXT = """# {title} condensed set

{size}.

```python
import tinyset
ds = tinyset.load("PATH")                     # a torch Dataset: ds[i] -> (float32 C x H x W in [0, 1], label)
for images, labels in ds.loader(epochs=200):  # normalised and augmented as recorded
    ...
```

- {how}
- pixels in [0, 1]; {stats}
- evaluation protocol: {protocol}
- stored numbers per class: {numbers}
- source fingerprint: {fingerprint}
- written by tinyset {library}
"""


def card(config: ArtifactConfig, ledger: Mapping[str, Any], images: int, privacy: PrivacyReport | None = None) -> str:
    """README.md of a set of so many images, with what `tinyset privacy` measured where it did."""
    smaller = ""
    if config.source_bytes:
        smaller = f", {ledger['compression']:,.0f}x smaller than the {config.source_images:,} images it stands for"
    overhead = f"{ledger['overhead_percent']:+.2f} % of the budget"
    begun = f" after {ledger['families']} sets were put side by side" if "families" in ledger else ""
    made = f"method {config.method}, {config.steps} steps{begun}, seed {config.seed}, recipe {config.recipe}"
    return CARD_TEXT.format(
        title=config.source or "A",
        size=f"{images:,} synthetic images of {ledger['classes']} classes in {ledger['bytes']:,} bytes{smaller}",
        how="; then ".join([made, *config.history]),
        stats=f"mean {config.mean}, std {config.std}{_filter(config)}; mirror images: {'yes' if config.mirror else 'no'}",
        protocol=config.protocol,
        numbers=f"{ledger['params_per_class']} ({overhead}), {config.precision}",
        fingerprint=config.source_fingerprint or "none",
        library=config.library,
    ) + ("" if privacy is None else privacy.section())


def _filter(config: ArtifactConfig) -> str:
    if config.whitening is None:
        return ""
    side = len(config.whitening[0][0])
    return f", then whitened by a {side} x {side} filter ({numbers(config.whitening)} numbers, in config.json)"


@torch.no_grad()
def preview(made: Parameterization, class_names: Sequence[str]) -> Any:
    """preview.png: up to ten images of up to twenty classes."""
    rows = []
    for c, name in enumerate(class_names[:20]):
        count = made.counts[c]
        index = torch.linspace(0, count - 1, min(10, count)).round().long()
        rows.append((short(name), list(made.decode(c, index))))
    return grid(rows)
