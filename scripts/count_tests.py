"""Sums the results of every runner (gtest's and pytest's XML) into one closing line.

Usage: python scripts/count_tests.py RESULTS_FOLDER STATUS. Exits with 1 if STATUS is not 0, a test failed, or none ran.
"""

import pathlib
import sys
import xml.etree.ElementTree as ET


def main():
    folder, status = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    ran = failed = skipped = 0
    for path in sorted(folder.glob("*.xml")):
        root = ET.parse(path).getroot()
        for suite in root.iter("testsuite"):
            ran += int(suite.get("tests", 0))
            failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped += int(suite.get("skipped", 0)) + int(suite.get("disabled", 0))
    passed = ran - failed - skipped
    if status and not failed:
        print("a stage failed outside the tests: see above")
        failed = 1
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
