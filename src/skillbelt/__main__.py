"""The start of the command line: of the script `skillbelt`, and of `python -m skillbelt`.

Ctrl-C ends the process without a traceback, also while the command line is loaded.
"""

import _signal as signal  # type: ignore[import-not-found]  # `signal` takes 5 ms to load
from importlib import import_module

_waits = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _waits:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
start = import_module("skillbelt.cli").run_process
if _waits:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if __name__ == "__main__":
    start()
