"""Many processes: the result of one, whatever their number; who dies is noticed; what cannot be divided is refused."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import toy_images
from tests.faults.lab import NETWORK, TINY, losses, tensors, write_data
from tests.faults.teams import killed
from tests.teams import CASES
from tinyset import processes, rng
from tinyset.bank import Bank
from tinyset.division import Division, OrderedSum
from tinyset.engine import Embedder
from tinyset.errors import UserError
from tinyset.interrupts import Stop
from tinyset.machine import pick_device
from tinyset.networks import build, reset
from tinyset.ownership import Ownership
from tinyset.parameterizations.codes import Codes
from tinyset.processes import Team

ROOT = Path(__file__).parents[1]
NO_GPU = "there is no CUDA device here"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teams")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.teams", str(folder)],
        cwd=ROOT,
        env=environment,
        timeout=600,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def words(made: Path) -> dict[str, list[dict[str, Any]]]:
    """What every process of every team left: its exit code, stdout and stderr."""
    return json.loads((made / "words.json").read_text())


def sentences(members: list[dict[str, Any]]) -> list[str]:
    said = "".join(member["err"] for member in members)
    assert "Traceback" not in said
    return [line for line in said.splitlines() if line.startswith("tinyset: ")]


MANY = [(case, size) for case, sizes in CASES.items() for size in sizes if size > 1]


@pytest.mark.parametrize(("case", "size"), MANY)
def test_the_result_is_that_of_one_process(made: Path, words: Any, case: str, size: int) -> None:
    one, many = made / f"{case}-1", made / f"{case}-{size}"
    assert [member["code"] for member in words[f"{case}-{size}"]] == [0] * size
    assert losses(many) == losses(one) and len(losses(one)) == 8
    assert tensors(many) == tensors(one)


@pytest.mark.parametrize("case", ["kfs", "mtt"])
def test_the_first_process_alone_speaks(words: Any, case: str) -> None:
    first, *others = words[f"{case}-2"]
    assert json.loads(first["out"])["steps"] == 8
    assert all(member["out"] == member["err"] == "" for member in others)


def cached(made: Path, name: str, pattern: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (made / f"cache-{name}").glob(pattern)}


@pytest.mark.parametrize(("case", "pattern"), [("kfs", "banks/*/shard-*"), ("mtt", "experts/*/*/epoch-*")])
def test_the_bank_and_the_experts_are_those_of_one_process(made: Path, case: str, pattern: str) -> None:
    one = cached(made, f"{case}-1", pattern)
    assert one
    for size in CASES[case][1:]:
        assert cached(made, f"{case}-{size}", pattern) == one


@pytest.mark.parametrize("again", [1, 3])
def test_who_dies_ends_the_run_which_goes_on_with_another_number(made: Path, words: Any, again: int) -> None:
    first, dead = words[f"dead-{again}"]
    assert dead["code"] == -signal.SIGKILL and first["code"] == 1
    assert sentences([first]) and "died or does not answer" in first["err"]
    assert [member["code"] for member in words[f"resumed-{again}"]] == [0] * again
    assert json.loads(words[f"resumed-{again}"][0]["out"])["resumed_from_step"] >= 6
    assert tensors(made / f"cut-{again}") == tensors(made / "uncut")
    assert losses(made / f"cut-{again}") == losses(made / "uncut")


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("full folder", "is not empty: use --overwrite or --resume"),
        ("objective", "--objective gradient is the work of one process: start it without torchrun"),
        ("selection", "--method random is the work of one process: start it without torchrun"),
        ("verb", "tinyset inspect is the work of one process: start it without torchrun"),
        ("typo", "--stepz"),
    ],
)
def test_a_refusal_is_one_sentence_of_the_whole_team(made: Path, words: Any, case: str, said: str) -> None:
    members = words[case]
    assert 2 in [member["code"] for member in members] and 0 not in [member["code"] for member in members]
    (sentence,) = sentences(members)
    assert said in sentence
    assert not (made / "never").exists()


def test_repeats_of_an_evaluation_are_divided(made: Path, words: Any) -> None:
    def numbers(size: int) -> Any:
        rows = map(json.loads, (made / f"results-{size}.jsonl").read_text().splitlines())
        return {row["key"]: row["confusion"] for row in rows}

    assert len(numbers(1)) == 3 and numbers(2) == numbers(1)
    (row,), (again,) = (json.loads(words[name][0]["out"])["rows"] for name in ("evaluate-2", "evaluate-again"))
    assert row["seeds"] == [0, 1, 2] and row["reused"] == 0 and again["reused"] == 3
    assert row["accuracy"] == json.loads(words["evaluate-1"][0]["out"])["rows"][0]["accuracy"]
    assert words["evaluate-2"][1]["out"] == ""


@pytest.mark.skipif(sys.platform != "linux", reason="looks for torchrun's workers in /proc")
def test_torchrun_restarts_a_killed_worker_and_the_result_is_the_same(tmp_path: Path) -> None:
    write_data(tmp_path / "small.npz")

    def command(out: str) -> list[str]:
        return ["condense", str(tmp_path / "small.npz"), "--out", str(tmp_path / out), *TINY, "--steps", "200"]

    cache = Path(os.environ["TINYSET_CACHE"])
    done = killed(command("team"), tmp_path / "team", cache, rank=1, restarts=1)
    assert done.code == 0, done.err[-2000:]
    assert done.json["resumed_from_step"] >= 15
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    alone = subprocess.run([sys.executable, "-m", "tinyset", *command("alone")], env=environment, timeout=240)
    assert alone.returncode == 0
    assert tensors(tmp_path / "team") == tensors(tmp_path / "alone")


# -- the parts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [[1] * 10, [3] * 7, [1, 9, 1, 1], [5, 1], [2, 2, 2]])
def test_every_class_has_one_process_and_the_load_is_even(chunks: list[int]) -> None:
    for size in range(1, len(chunks) + 1):
        shares = [Division.of(Team(rank, size), chunks).classes for rank in range(size)]
        assert [c for share in shares for c in share] == list(range(len(chunks)))
        if len(set(chunks)) == 1:
            assert max(map(len, shares)) == -(-len(chunks) // size)


def test_a_share_of_anything_is_a_run_and_nothing_is_left_out() -> None:
    for count in range(20):
        shares = [Team(rank, 7).share(count) for rank in range(7)]
        assert [i for share in shares for i in share] == list(range(count))


def test_an_ordered_sum_is_a_float64_loop() -> None:
    draw = rng.generator(0, "terms")
    terms = [[torch.randn(3, 2, generator=draw), torch.randn(4, generator=draw)] for _ in range(5)]
    total = OrderedSum(processes.ALONE, 5, terms[0])
    for at, term in enumerate(terms):
        total.add(at, [term[0], None if at == 2 else term[1]])
    first, second = total.total()
    assert first.dtype == torch.float64
    assert torch.equal(first, sum((term[0].double() for term in terms), torch.zeros(3, 2, dtype=torch.float64)))
    assert torch.equal(second, sum((terms[i][1].double() for i in (0, 1, 3, 4)), torch.zeros(4, dtype=torch.float64)))


def test_a_process_moves_the_rows_of_its_classes_and_keeps_their_state_only() -> None:
    synthetic = Codes((3, 8, 8), (2, 3, 1), (4, 2, 2), (4, 2, 3), 2)
    owned = Ownership(synthetic, Division(range(1, 3)), Team(1, 2))
    optimizer = torch.optim.Adam([owned.moved(p) for group in synthetic.groups().values() for p in group])
    for parameter in synthetic.parameters():
        parameter.grad = torch.ones_like(parameter)
    owned.hand_over()
    optimizer.step()
    assert torch.all(synthetic.codes[:2] == 0) and torch.all(synthetic.codes[2:] < 0)
    assert torch.all(synthetic.decoders.biases[0] < 0)
    state = optimizer.state_dict()["state"]
    assert state[0]["exp_avg"].shape[0] == 4 and synthetic.codes.grad is None
    whole = {
        0: {"exp_avg": torch.arange(6.0)[:, None, None, None].expand(synthetic.codes.shape), "step": torch.tensor(1.0)}
    }
    part = owned.own_state(whole)[0]
    assert part["exp_avg"][:, 0, 0, 0].tolist() == [2, 3, 4, 5] and part["step"] == 1


def test_alone_the_optimizer_has_the_parameters_themselves() -> None:
    synthetic = Codes((3, 8, 8), (2, 3), (4, 2, 2), (4, 2, 3), 2)
    owned = Ownership(synthetic, Division.everything(processes.ALONE, 2), processes.ALONE)
    assert owned.moved(synthetic.codes) is synthetic.codes


def test_what_one_process_was_told_all_were() -> None:
    class Heard(Team):
        def largest(self, number: int) -> int:
            return max(number, 1 + signal.SIGTERM)

    stop = Stop()
    assert stop.reason_of_all(Heard(0, 2)) == "SIGTERM" and stop.exit_code == 143


def test_without_torchrun_a_process_is_alone_and_nothing_is_initialised() -> None:
    assert processes.team() == processes.join() == Team(0, 1)
    assert not torch.distributed.is_initialized()


# -- GPUs and bf16 --------------------------------------------------------------------------------------------------


def embedder(precision: str, device: str = "cpu", chunk: int = 8) -> Embedder:
    network = build("convnet2:width=8", channels=3, image_size=(16, 16), classes=3)
    reset(network, rng.generator(0, "network"))
    return Embedder(network, toy_images().stats, device=torch.device(device), chunk=chunk, precision=precision)


def check_precision(device: str) -> None:
    images = torch.rand(8, 3, 16, 16, generator=rng.generator(1, "images")).to(device).requires_grad_()
    exact, rough = embedder("float32", device)(images), embedder("bf16", device)(images)
    error = float(((rough - exact).norm() / exact.norm()).detach())
    assert rough.dtype == torch.float32 and 0 < error < 0.02  # bf16 has 8 bits
    (gradient,) = torch.autograd.grad(rough.square().sum(), images)
    (wanted,) = torch.autograd.grad(exact.square().sum(), images)
    assert float((gradient - wanted).norm() / wanted.norm()) < 0.1


def test_bf16_is_float32_up_to_its_bits_on_the_cpu() -> None:
    check_precision("cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason=NO_GPU)
def test_bf16_is_float32_up_to_its_bits_on_the_gpu() -> None:
    check_precision("cuda")


def test_bf16_has_a_bank_of_its_own(tmp_path: Path) -> None:
    banks = [Bank(toy_images(), "n", embedder(precision), root=tmp_path) for precision in ("float32", "bf16")]
    assert banks[0].folder != banks[1].folder


def test_each_local_process_has_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": 5, "WORLD_SIZE": 8, "LOCAL_RANK": 1, "MASTER_ADDR": "a", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("cuda") == pick_device("auto") == torch.device("cuda", 1)
    assert pick_device("cuda:0") == torch.device("cuda", 0)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(UserError, match="has no GPU: 2 are here"):
        pick_device("cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason=NO_GPU)
def test_a_gpu_condenses_in_bf16(tmp_path: Path) -> None:
    from tinyset.cli import main

    write_data(tmp_path / "small.npz")
    flags = ["--network", NETWORK, "--networks", "2", "--pretrain-steps", "6", "--steps", "4", "--quiet"]
    for precision in ("float32", "bf16"):
        out = str(tmp_path / precision)
        words = ["condense", str(tmp_path / "small.npz"), "--out", out, "--device", "cuda", "--precision", precision]
        assert main([*words, *flags]) == 0
    exact, rough = (losses(tmp_path / precision)[-1][1] for precision in ("float32", "bf16"))
    assert rough == pytest.approx(exact, rel=0.1)
