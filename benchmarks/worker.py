"""`python -m benchmarks.worker NAME OPTIONS`: set up, say ready, then one measured round per line on stdin."""

import importlib
import json
import os
import sys
import time


def main() -> None:
    module, _, name = sys.argv[1].rpartition(".")
    out, sys.stdout = sys.stdout, sys.stderr  # whatever a library prints must not be read as an answer
    contender = getattr(importlib.import_module(f"benchmarks.contenders.{module}"), name)
    run = contender(**json.loads(sys.argv[2]))

    from tinyset.machine import peak_memory_bytes

    clock = time.process_time if os.environ.get("TINYSET_BENCH_BUSY") else time.perf_counter
    print(json.dumps("ready"), file=out, flush=True)
    for _ in sys.stdin:
        began = clock()
        amount = run()
        seconds = clock() - began
        print(
            json.dumps({"amount": amount, "seconds": seconds, "peak_bytes": peak_memory_bytes()}), file=out, flush=True
        )


if __name__ == "__main__":
    main()
