"""Replaces the interpreter by the command `warpline`, which is in this package."""

import os
import signal
import sys

from . import prefix


def main():
    # The interpreter ignores these, and programs would inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    program = os.path.join(prefix, "bin", "warpline")
    try:
        os.execv(program, ["warpline", *sys.argv[1:]])
    except OSError as why:
        sys.exit(f"warpline: cannot run {program}: {why.strerror}; install the package again")


if __name__ == "__main__":
    main()
