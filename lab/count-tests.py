"""count-tests.py FOLDER: counts the tests in JUnit XML; prints the failed ones, then "N passed, M failed, K skipped".

Fails if a test failed or none ran. It counts <testcase> elements, since Surefire, Failsafe and CTest define the sums
in <testsuite> differently.
"""
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

passed = skipped = 0
failed = []
for file in sorted(pathlib.Path(sys.argv[1]).rglob("*.xml")):
    try:
        root = ElementTree.parse(file).getroot()
    except ElementTree.ParseError as error:
        failed.append(f"{file.name}: cannot parse the report ({error}); its run was probably killed")
        continue
    for test in root.iter("testcase"):
        if test.find("failure") is not None or test.find("error") is not None or test.get("status") == "fail":
            failed.append(f"{file.parent.name}: {test.get('classname')}: {test.get('name')}")
        elif test.find("skipped") is not None or test.get("status") in ("disabled", "notrun"):
            skipped += 1
        else:
            passed += 1
for name in failed:
    print("failed:", name)
print(f"{passed} passed, {len(failed)} failed, {skipped} skipped")
sys.exit(1 if failed or passed == 0 else 0)
