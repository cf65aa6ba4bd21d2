"""`python -m tests.faults [--only NAME,...] [--record FILE]`: a table of faults, and exit code 1 if one was not survived."""

import argparse
import os
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: forks of a process with threads are not safe

from tests.faults import damage, disks, fuzz, kills, memory, stops, teams, writers
from tests.faults.lab import laboratory
from tests.faults.tally import SCENARIOS, Tally, suffer

WIDTH = 86
MODULES = (kills, stops, teams, disks, damage, writers, memory, fuzz)  # importing them fills SCENARIOS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", help="names, separated by commas, or parts of names")
    parser.add_argument("--list", action="store_true", help="the names")
    parser.add_argument("--record", type=Path, help="write the table as JSON")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{name:<18} {what}" for name, (what, _) in SCENARIOS.items()))
        return 0
    wanted = arguments.only.split(",") if arguments.only else [""]
    names = [name for name in SCENARIOS if any(part in name for part in wanted)]
    if not names:
        parser.error(f"--only {arguments.only}: the names are {', '.join(SCENARIOS)}")
    began = time.monotonic()
    rows = []
    print(f"{'fault':<{WIDTH}} {'tried':>6} {'survived':>9} {'s':>6}", flush=True)
    with laboratory() as lab:
        for name in names:
            rows.append(suffer(name, lab))
            print(line(rows[-1]), flush=True)
    seconds = time.monotonic() - began
    tried, failed = sum(row.tried for row in rows), sum(len(row.failures) for row in rows)
    print(f"{'all':<{WIDTH}} {tried:>6} {tried - failed:>9} {seconds:>6.0f}")
    if arguments.record is not None:
        record(arguments.record, rows, seconds)
    return 1 if failed else 0


def line(row: Tally) -> str:
    what = SCENARIOS[row.name][0]
    if row.skipped is not None:
        return f"{what:<{WIDTH}} {'-':>6} {'skipped':>9} {row.seconds:>6.1f}  {row.skipped}"
    text = f"{what:<{WIDTH}} {row.tried:>6} {row.survived:>9} {row.seconds:>6.1f}"
    return text + "".join(f"\n    {row.name}: {failure}" for failure in row.failures)


def record(path: Path, rows: list[Tally], seconds: float) -> None:
    from tinyset.files import write_json
    from tinyset.machine import environment

    table = [
        {
            "name": row.name,
            "fault": SCENARIOS[row.name][0],
            "tried": row.tried,
            "survived": row.survived,
            "skipped": row.skipped,
            "failures": row.failures,
            "seconds": round(row.seconds, 1),
        }
        for row in rows
    ]
    write_json(path, {"seconds": round(seconds, 1), "rows": table, "environment": environment()})


if __name__ == "__main__":
    sys.exit(main())
