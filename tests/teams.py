"""Teams of forked processes with the variables that torchrun would set: torch is imported once for all of them.

`python -m tests.teams FOLDER` makes the runs that `test_processes.py` looks at.
"""

import json
import os
import signal
import sys
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: forks of a process with threads are not safe

from tests.faults.lab import Child, Done, Hurt, Lab, lines

STEPS = ["--steps", "8", "--chunk", "5", "--checkpoint-every", "3"]
CASES = {
    "kfs": (1, 2, 3, 4, 7),  # three classes: from four processes on they share the chunks of a class
    "pairs": (1, 7),
    "subset": (1, 4),
    "dm": (1, 4),
    "tiles": (1, 2),
    "kernels": (1, 2),
    "mtt": (1, 2),
}
FLAGS = {
    "kfs": [],
    "pairs": ["--batch", "12"],
    "subset": ["--batch", "12", "--option", "sampling=subset"],
    "dm": ["--method", "dm", "--images-per-class", "8"],
    "tiles": ["--method", "dm", "--parameterization", "tiles", "--images-per-class", "3"],
    "kernels": ["--network", "convnet3:width=16", "--compile", "always"],
    "mtt": [
        *("--method", "mtt", "--option", "experts=3", "--option", "expert_epochs=1"),
        *("--option", "student_steps=2", "--option", "last_start=1", "--option", "epoch_steps=2"),
    ],
}

PATIENCE_S = 120.0  # a test machine may be busy; nobody is expected to need it
STORES: list[object] = []  # they live as long as the program


def spawn(lab: Lab, size: int, arguments: list[str], cache: Path, hurt: Hurt | None = None) -> list[Child]:
    """The processes of a team, in the order of their ranks. Their store is ours, as it is torchrun's."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    STORES.append(store)
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": str(size)}
    place |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    children, before = [], dict(os.environ)
    for rank in range(size):
        os.environ.update(place | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        children.append(lab.spawn(arguments, cache, hurt))
    os.environ.clear()
    os.environ.update(before)
    return children


def team(lab: Lab, size: int, arguments: list[str], cache: Path) -> list[Done]:
    return [child.wait(PATIENCE_S) for child in spawn(lab, size, arguments, cache)]


def make(folder: Path) -> None:
    """All runs under `folder`, and `words.json`: what each process of each team left."""
    lab, words = Lab(folder), dict[str, list[Done]]()
    for case, sizes in CASES.items():
        for size in sizes:
            name = f"{case}-{size}"
            cache = lab.fresh("cache")  # banks, auto-encoders and experts are made by the team too
            words[name] = team(lab, size, lab.condense(folder / name, *STEPS, *FLAGS[case]), cache)
            (folder / f"cache-{name}").symlink_to(cache)
    cache = lab.fresh("cache")
    flags = ["--steps", "40", "--chunk", "5"]
    words["uncut-1"] = team(lab, 1, lab.condense(folder / "uncut", *flags), cache)
    for again in (1, 3):
        run = folder / f"cut-{again}"
        children = spawn(lab, 2, lab.condense(run, *flags), cache, Hurt(slow_s=0.01))
        children[1].until(lambda run=run: lines(run / "metrics.jsonl") >= 10)  # type: ignore[misc]
        children[1].signal(signal.SIGKILL)
        words[f"dead-{again}"] = [child.wait(PATIENCE_S) for child in children]
        words[f"resumed-{again}"] = team(lab, again, lab.condense(run, *flags, "--resume"), cache)
    words["full folder"] = team(lab, 2, lab.condense(folder / "uncut", *flags), cache)
    words["objective"] = team(lab, 2, lab.condense(folder / "never", "--method", "dsa"), cache)
    words["selection"] = team(lab, 2, lab.condense(folder / "never", "--method", "random"), cache)
    words["verb"] = team(lab, 2, ["inspect", str(folder / "uncut" / "artifact")], cache)
    words["typo"] = team(lab, 2, ["condense", str(lab.data), "--stepz", "3"], cache)
    for size in (1, 2):
        results = ["--results", str(folder / f"results-{size}.jsonl")]
        words[f"evaluate-{size}"] = team(lab, size, lab.evaluate(folder / "uncut" / "artifact", *results), lab.fresh())
    words["evaluate-again"] = team(lab, 2, lab.evaluate(folder / "uncut" / "artifact", *results), lab.fresh())
    found = {name: [done.__dict__ for done in members] for name, members in words.items()}
    (folder / "words.json").write_text(json.dumps(found))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
