"""The checks of the lint stage, on trees made for them."""

import pathlib
import subprocess
import sys

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"


def house(tmp_path, files):
    (tmp_path / "CMakeLists.txt").write_text("room(hlo)\nroom(ops USES hlo)\nroom(pjrt SYSTEM_INCLUDES x)\n")
    for name, text in files.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return subprocess.run([sys.executable, SCRIPTS / "check_includes.py", tmp_path], capture_output=True, text=True)


def test_arrows_that_the_house_allows(tmp_path):
    done = house(
        tmp_path,
        {
            "hlo/a.h": "#include <vector>\n",
            "ops/b.cpp": '#include "hlo/a.h"\n#include "ops/b.h"\n',
            "pjrt/c.cpp": '#include "pjrt_c_api.h"\n',
            "aten/d.cpp": '#include <ATen/Tensor.h>\n#include "ops/b.h"\n',
        },
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_arrows_that_it_forbids(tmp_path):
    done = house(
        tmp_path,
        {
            "hlo/a.h": '#include "ops/b.h"\n',
            "ops/b.cpp": '#include "pjrt_c_api.h"\n#include <c10/core/Device.h>\n#include <Eigen/Core>\n',
            "attic/x.cpp": "",
        },
    )
    assert done.returncode == 1
    assert "'hlo' may not include 'ops'" in done.stdout
    assert "only pjrt may see the C API" in done.stdout
    assert "may see torch" in done.stdout
    assert "only hostcalls may see Eigen" in done.stdout
    assert "'attic' is not in CMakeLists.txt" in done.stdout


def counted(tmp_path, xml, status):
    (tmp_path / "a.xml").write_text(xml)
    return subprocess.run(
        [sys.executable, SCRIPTS / "count_tests.py", tmp_path, status], capture_output=True, text=True
    )


def test_counting_the_tests(tmp_path):
    good = '<testsuites><testsuite tests="3" failures="0" errors="0" skipped="1"/></testsuites>'
    done = counted(tmp_path, good, "0")
    assert (done.returncode, done.stdout) == (0, "2 passed, 0 failed, 1 skipped\n")
    done = counted(tmp_path, good, "1")
    assert done.returncode == 1 and "2 passed, 1 failed" in done.stdout
    done = counted(tmp_path, '<testsuites><testsuite tests="2" failures="1"/></testsuites>', "0")
    assert done.returncode == 1 and "1 passed, 1 failed" in done.stdout
    assert counted(tmp_path, "<testsuites/>", "0").returncode == 1  # no test ran
