"""Fresh interpreters for tests of what happens at import, in a fork, or with other settings."""

import os
import subprocess
import sys
import textwrap


def run_python(code, **environment):
    """Runs a fresh interpreter; returns the finished process, output captured."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def printed(code, **environment):
    process = run_python(code, **environment)
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()
