"""Writes expectations.tsv from a run over all cases, or those of the named entries: read the difference before you commit it.

Usage: python tests/conformance/update.py [name or pattern ...]     # the lines of other entries stay
"""

import pathlib
import subprocess
import sys

if __name__ == "__main__":
    runner = pathlib.Path(__file__).with_name("run.py")
    names = ["--op", *sys.argv[1:]] if sys.argv[1:] else []
    sys.exit(subprocess.run([sys.executable, str(runner), "parity", "--update", *names]).returncode)
