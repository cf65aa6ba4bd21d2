"""Follow a run in the browser while it works: loss, ETA and sample images on a page of this machine only."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from tinyset.cli.common import Common

if TYPE_CHECKING:
    from tinyset.cli.console import Console


@dataclass(kw_only=True)
class Args(Common):
    run: tyro.conf.Positional[str]
    """The folder of a run (`condense --out`), working or finished."""
    port: int = 0
    """The port on 127.0.0.1 (default: a free one)."""
    open: bool = False
    """Open the page in the browser."""
    once: bool = False
    """Say where the run is now and end; no page."""


def run(args: Args, console: "Console") -> int:
    from tinyset.cli.console import span
    from tinyset.report.following import Following

    following = Following(Path(args.run))
    if args.once:
        state = following.state()
        console.json({key: value for key, value in state.items() if key != "curve"})
        left = "" if state["eta_s"] is None else f", {span(state['eta_s'])} left"
        loss = "" if state["loss"] is None else f", loss {state['loss']:.4g}"
        console.print(f"{state['name']}: {state['status']}, step {state['done']} of {state['steps']}{loss}{left}")
        return 0
    return serve(following, args, console)


def serve(following: "Following", args: Args, console: "Console") -> int:  # type: ignore[name-defined]  # noqa: F821
    from tinyset.interrupts import Stop, signals_to
    from tinyset.report.watching import HOST, server

    made = server(following, args.port)
    url = f"http://{HOST}:{made.server_port}/"
    console.json({"url": url, "run": args.run})
    console.print(f"{url}   (Ctrl-C ends it; the run goes on)")
    if args.open:
        import webbrowser

        webbrowser.open(url)
    made.timeout = 0.2
    with made, signals_to(Stop()) as stop:
        while not stop.reason:
            made.handle_request()
    return stop.exit_code
