"""Files from strangers: mutated artifacts and settings load, or are refused with one sentence.

Mutations are drawn on three levels: bytes, the header and values of valid files, and whole values that are wrong in
known ways. Checksums are left out of the artifacts, so that what is behind them is reached.
"""

import json
import math
import random
import signal
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.lab import Lab
from tests.faults.tally import Tally, fault
from tinyset.errors import MOST_LETTERS, TinysetError

STRANGE: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 7, 255, 1 << 24, 1 << 31, 1 << 63, 1 << 64, 10**30, -(10**18), 0.5, -0.0, 1e308),
    *(
        math.nan,
        math.inf,
        -math.inf,
        "",
        " ",
        "0",
        "../../etc/passwd",
        "/etc/passwd",
        "\x00",
        "\n\n",
        "\x1b[31mred",
        "é",
    ),
    *(
        "<script>alert(1)</script>",
        "$(touch /tmp/x)",
        "con",
        "a" * 5000,
        "\ud800",
        [],
        {},
        [[]],
        [0],
        [1, 2, 3],
        [-1],
        ["a"],
    ),
    *([1 << 40], {"a": {"a": {}}}, [[1, 2], [3]], {"": 1}, "codes", "pixels", "tiles", "float16", "int8", 3, 16, 12),
]
DTYPES = ["F64", "F32", "F16", "BF16", "I64", "I32", "I8", "U8", "BOOL", "C64", "F8_E4M3", "U16", "X9", "", 3, None]
YAML = [
    *(
        "a: &a [*a]",
        "<<: *a",
        "? [1]\n: 2",
        "!!python/object/apply:os.system ['true']",
        "2001-99-99",
        "\t",
        "- ",
        ": ",
        "{",
        "}",
    ),
    *(
        "1:60",
        "0x",
        "!!binary x",
        "%YAML 9.9",
        "---\n",
        "...",
        "&a",
        "*b",
        "| \n",
        ">",
        "'",
        '"',
        "\x00",
        "\x85",
        "\U0001f600",
    ),
]


class Mutator(random.Random):
    def bytes_of(self, data: bytes) -> bytes:
        """A few flips, cuts, doublings and insertions."""
        made = bytearray(data)
        for _ in range(self.randint(1, 4)):
            at = self.randrange(len(made) + 1)
            kind = self.randrange(5)
            if kind == 0 and made:
                made[at % len(made)] ^= 1 << self.randrange(8)
            elif kind == 1:
                made[at:at] = self.randbytes(self.randint(1, 16))
            elif kind == 2:
                del made[at : at + self.randint(1, 64)]
            elif kind == 3:
                made[at:at] = made[max(0, at - 32) : at]
            elif self.random() < 0.3:
                del made[at:]
        return bytes(made)

    def value(self, tree: Any) -> Any:
        """`tree` with one value somewhere in it replaced, removed or doubled."""
        if isinstance(tree, dict) and tree and self.random() < 0.9:
            key = self.choice(list(tree))
            kind = self.random()
            if kind < 0.06:
                return {k: v for k, v in tree.items() if k != key}
            if kind < 0.1:
                return tree | {str(self.choice(STRANGE)): tree[key]}
            return tree | {key: self.value(tree[key])}
        if isinstance(tree, list) and tree and self.random() < 0.8:
            at = self.randrange(len(tree))
            kind = self.random()
            if kind < 0.1:
                return tree[:at] + tree[at + 1 :]
            if kind < 0.2:
                return [*tree, tree[at]]
            return [*tree[:at], self.value(tree[at]), *tree[at + 1 :]]
        if isinstance(tree, int | float) and not isinstance(tree, bool) and self.random() < 0.4:
            return self.choice([tree + 1, tree - 1, tree * 2, -tree, tree * 1000, float(tree), str(tree)])
        return self.choice(STRANGE)

    def safetensors(self, data: bytes) -> bytes:
        """A header whose length fits and whose words do not."""
        (size,) = struct.unpack("<Q", data[:8])
        header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
        for _ in range(self.randint(1, 2)):
            name = self.choice(list(header))
            kind = self.randrange(4)
            if kind == 0 and isinstance(header[name], dict) and "dtype" in header[name]:
                header[name] = header[name] | {"dtype": self.choice(DTYPES)}
            elif kind == 1:
                header[self.choice([*header, "codes", "images", "labels", "x" * 500, "../x", "\x00"])] = header.pop(
                    name
                )
            else:
                header[name] = self.value(header[name])
        text = json.dumps(header).encode("utf-8", "surrogatepass")
        length = len(text) if self.random() < 0.95 else self.choice([0, len(text) * 2, 1 << 40, 1 << 63])
        return struct.pack("<Q", length) + text + body

    def text(self, text: str) -> str:
        """Settings with a few lines that are wrong."""
        rows = text.splitlines()
        for _ in range(self.randint(1, 3)):
            at = self.randrange(len(rows))
            kind = self.randrange(6)
            if kind == 0:
                rows[at] = f"{rows[at].partition(':')[0]}: {self.choice(YAML)}"
            elif kind == 1:
                key = rows[at].partition(":")[0]
                rows[at] = f"{key}: {json.dumps(self.choice(STRANGE))}"
            elif kind == 2:
                rows.insert(at, self.choice(YAML))
            elif kind == 3:
                rows[at] = " " * self.randint(0, 9) + rows[at]
            elif kind == 4:
                rows.insert(at, rows[self.randrange(len(rows))])
            else:
                data = self.bytes_of(rows[at].encode())
                rows[at] = data.decode("utf-8", "replace")
        return "\n".join(rows)


def one_sentence(error: TinysetError) -> str | None:
    text = str(error)
    if not text or len(text) > MOST_LETTERS or not text.isprintable():
        return f"not one printable sentence: {text[:300]!r}"
    return None


def fuzz_artifacts(count: int, folder: Path, seed: int = 0) -> tuple[int, list[str]]:
    """(how many of `count` loaded, what went wrong) for mutations of artifacts of every kind."""
    from tinyset.condensed import load

    bases = [(path, *read(path)) for path in sample_artifacts(folder)]
    draw, loaded, wrong = Mutator(seed), 0, []
    for i in range(count):
        path, config, tensors = bases[i % len(bases)]
        kind = draw.random()
        text = json.dumps(config).encode()
        if kind < 0.2:
            tensors = draw.bytes_of(tensors)
        elif kind < 0.5:
            tensors = draw.safetensors(tensors)
        elif kind < 0.9:
            made = draw.value(config)
            text = json.dumps(made).encode("utf-8", "surrogatepass")
        else:
            text = draw.bytes_of(text)
        (path / "config.json").write_bytes(text)
        (path / "condensed.safetensors").write_bytes(tensors)
        loaded += _try(lambda path=path: use(load(path)), f"artifact {i} of seed {seed}", wrong)  # type: ignore[misc]
    return loaded, wrong


def use(made: Any) -> None:
    """What everyone does with a set that was loaded."""
    made.ledger()
    image, label = made[0]
    assert tuple(image.shape) == made.image_shape and 0 <= label < len(made.class_names)


def read(path: Path) -> tuple[dict[str, Any], bytes]:
    config = json.loads((path / "config.json").read_text())
    config.pop("checksum", None)
    return config, (path / "condensed.safetensors").read_bytes()


def sample_artifacts(folder: Path) -> list[Path]:
    """One of each kind and precision, made of noise."""
    import torch

    from tinyset.condensed import CondensedSet, make_config
    from tinyset.parameterizations.codes import Codes
    from tinyset.parameterizations.labels import learn_labels
    from tinyset.parameterizations.pixels import Pixels
    from tinyset.parameterizations.tiles import Tiles

    shape = (3, 16, 16)
    codes = Codes(shape, (2, 3), (12, 2, 2), (12, 9, 6, 3), 2)
    soft = Pixels(shape, (2, 2))
    learn_labels(soft)
    made = [(codes, "float32"), (codes, "int8"), (soft, "float32"), (Tiles(shape, (1, 2)), "float16")]
    paths = []
    for i, (parameterization, precision) in enumerate(made):
        with torch.no_grad():
            for parameter in parameterization.parameters():
                parameter.copy_(torch.rand(parameter.shape, generator=torch.Generator().manual_seed(i)))
        config = make_config(
            kind=parameterization.kind,
            spec=parameterization.spec(),
            class_names=["cat", "dog"],
            image_shape=shape,
            mean=[0.5] * 3,
            std=[0.2] * 3,
            precision=precision,
            nominal_params_per_class=768.0,
            source="noise",
            condense={"method": "kfs", "network": "convnet3"},
        )
        paths.append(CondensedSet(parameterization, config).save(folder / f"fuzz-{i}", overwrite=True))
    return paths


def fuzz_settings(count: int, folder: Path, seed: int = 0) -> tuple[int, list[str]]:
    """The same for recipes and for the config.yaml of a run."""
    import yaml

    from tinyset.config import recipe, recipes
    from tinyset.methods import resolve

    texts = [yaml.safe_dump(recipe(name), sort_keys=False) for name in recipes()]
    whole = resolve("plain", {"images_per_class": 1}).model_dump(mode="json")
    texts.append(yaml.safe_dump(whole, sort_keys=False))
    draw, path, loaded, wrong = Mutator(seed), folder / "recipe.yaml", 0, []
    for i in range(count):
        text = texts[i % len(texts)]
        kind = draw.random()
        if kind < 0.5:
            data = draw.text(text).encode("utf-8", "replace")
        elif kind < 0.9:
            data = json.dumps(draw.value(draw.value(whole))).encode("utf-8", "surrogatepass")  # JSON is YAML
        else:
            data = draw.bytes_of(text.encode())
        path.write_bytes(data)
        loaded += _try(lambda: resolve(str(path), {}), f"settings {i} of seed {seed}", wrong)
    return loaded, wrong


def _try(action: Callable[[], Any], name: str, wrong: list[str]) -> bool:
    try:
        action()
        return True
    except TinysetError as error:
        if (problem := one_sentence(error)) is not None:
            wrong.append(f"{name}: {problem}")
    except Exception as error:
        wrong.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
    return False


@fault("fuzz", "fuzzed artifacts and settings, in a process of 4 GB")
def fuzz(lab: Lab, tally: Tally) -> None:
    for what, count in (("artifacts", 10_000), ("settings", 10_000)):
        for seed in (1, 2):
            folder = lab.fresh()
            done = lab.run(
                ["call", "tests.faults.fuzz:in_a_fork", what, str(count // 2), str(folder), str(seed)], folder
            )
            tally.tried += count // 2
            if done.code == -signal.SIGKILL or not done.out.startswith("{"):
                tally.failures.append(f"{what}: {done}")
                continue
            tally.failures += done.json["wrong"]
            if not 0 < done.json["loaded"] < count // 2:
                tally.failures.append(f"{done.json['loaded']} of {count // 2} {what} loaded: the mutations are no test")


def in_a_fork(what: str, count: str, folder: str, seed: str) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    loaded, wrong = globals()[f"fuzz_{what}"](int(count), Path(folder), int(seed))
    json.dump({"loaded": loaded, "wrong": wrong[:20]}, sys.stdout)
