"""Checks that #include directions follow the house: a room includes only itself and the rooms that CMakeLists.txt says it USES,
and what those use.

The table is read from the room(...) lines of CMakeLists.txt; rooms that CMake builds otherwise are listed here. Usage:
python scripts/check_includes.py [ROOT]
"""

import pathlib
import re
import sys

# Rooms outside room(...): what they may include.
OTHERS = {
    "aten": ["ops", "hostcalls", "quirks", "cache", "pjrt", "layout", "hlo"],
    "cli": ["pilot", "report", "ops", "pjrt"],
}
TORCH_ROOMS = {"aten", "c10d"}
TORCH = re.compile(r'#include [<"](ATen|c10|torch|caffe2)/')
PJRT_HEADER = re.compile(r'#include [<"](pjrt_c_api\.h|xla/)')
EIGEN = re.compile(r'#include [<"]Eigen/')
INCLUDE = re.compile(r'#include "([a-z0-9_]+)/')


def table(cmake):
    rooms = dict(OTHERS)
    for name, rest in re.findall(r"^room\((\w+)([^)]*)\)", cmake, re.MULTILINE):
        uses = re.search(r"USES((?:\s+[a-z]+)*)", rest)
        rooms[name] = uses.group(1).split() if uses else []
    return rooms


def reachable(room, rooms):
    found, todo = {room}, [room]
    while todo:
        for used in rooms.get(todo.pop(), []):
            if used not in found:
                found.add(used)
                todo.append(used)
    return found


def problems(root):
    rooms = table((root / "CMakeLists.txt").read_text())
    for path in sorted((root / "src").rglob("*.*")):
        if path.suffix not in (".h", ".cpp"):
            continue
        room = path.relative_to(root / "src").parts[0]
        if room not in rooms:
            yield f"{path}: the room '{room}' is not in CMakeLists.txt"
            continue
        allowed = reachable(room, rooms)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            where = f"{path.relative_to(root)}:{number}"
            if TORCH.search(line) and room not in TORCH_ROOMS:
                yield f"{where}: only {', '.join(sorted(TORCH_ROOMS))} may see torch"
            elif PJRT_HEADER.search(line) and room != "pjrt":
                yield f"{where}: only pjrt may see the C API"
            elif EIGEN.search(line) and room != "hostcalls":
                yield f"{where}: only hostcalls may see Eigen"
            elif (found := INCLUDE.search(line)) and found.group(1) in rooms and found.group(1) not in allowed:
                yield f"{where}: '{room}' may not include '{found.group(1)}' (it may: {', '.join(sorted(allowed))})"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[1]
    found = list(problems(root))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
