"""Checks what no tool for a language sees: names of package registries' hosts, paths of one machine, notes left for later."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
RULES = {
    "the host of a package registry": re.compile(
        r"\b(pypi|pythonhosted|npmjs|registry\.npm|deb\.debian|files\.python)\.(org|com)\b"
    ),
    "a path of one machine": re.compile(r"(?<![\w.$}])/(work|root|home)/[a-z]"),
    "a note left for later": re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b"),
}


def main():
    found = []
    files = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout.split("\0")
    for name in filter(None, files):
        try:
            text = (ROOT / name).read_text()
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            found += [
                f"{name}:{number}: {what}: {line.strip()[:100]}" for what, rule in RULES.items() if rule.search(line)
            ]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
