"""One table on stdout and `benchmarks/latest.json`."""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.rows import ROWS, Row
from tinyset.files import write_json
from tinyset.machine import environment

LATEST = Path(__file__).parent / "latest.json"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", help=f"comma-separated rows: {','.join(ROWS)}")
    parser.add_argument("--out", type=Path, default=LATEST, help="where the JSON goes")
    parser.add_argument(
        "--busy", action="store_true", help="one thread, processor time: for a machine that is not idle"
    )
    args = parser.parse_args()
    if args.busy:
        os.environ.update(TINYSET_BENCH_BUSY="1", OMP_NUM_THREADS="1")
    names = args.only.split(",") if args.only else list(ROWS)
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"unknown row {unknown[0]!r}: choose among {', '.join(ROWS)}")
    began = time.time()
    rows = []
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows.append(ROWS[name]())
        print(line(rows[-1]), flush=True)
    report = {
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(began)),
        "seconds": round(time.time() - began),
        "load_average": round(os.getloadavg()[0], 2),
        "clock": "processor time, one thread" if args.busy else "wall",
        "machine": environment(),
        "rows": merged(args.out, rows),
    }
    write_json(args.out, report)
    print("\n" + table(rows))
    return 0


def merged(path: Path, rows: list[Row]) -> list[dict[str, object]]:
    """The rows of this run, and those of earlier runs that were not run now, in the order of the table."""
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    found = {row["name"]: row for row in old} | {row.name: asdict(row) for row in rows}
    return [found[name] for name in ROWS if name in found]


def line(row: Row) -> str:
    sign = "<" if row.lower_is_better else ">="
    return f"{row.name:<9} {row.value:8.2f}  {sign:>2} {row.target:<5g} {'met' if row.met else 'MISSED':<7} {row.what}"


def table(rows: list[Row]) -> str:
    lines = [f"{'row':<9} {'value':>8}     {'target':<5} {'':<7} what is measured"]
    for row in rows:
        lines.append(line(row))
        if row.why:
            lines.append(f"{'':<20} {row.why}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
