"""conformance.py REPORT [OTHER]: counts the tests in a JUnit report of Kubernetes' e2e.test, and removes those that did not run.

Fails if a test failed, if none ran, or if one that passed in the report OTHER did not pass in this one.
"""
import sys
import xml.etree.ElementTree as ElementTree


def passed(root):
    return {test.get("name") for test in root.iter("testcase") if test.get("status") == "passed" and "[It]" in test.get("name")}


tree = ElementTree.parse(sys.argv[1])
root = tree.getroot()
failed = []
for suite in root.iter("testsuite"):
    for test in list(suite.iter("testcase")):
        if test.get("status") in ("skipped", "pending"):
            suite.remove(test)
        elif test.get("status") != "passed":
            failed.append(test.get("name"))
tree.write(sys.argv[1])
missing = sorted(passed(ElementTree.parse(sys.argv[2]).getroot()) - passed(root)) if len(sys.argv) > 2 else []
for name in failed:
    print("failed:", name)
for name in missing:
    print("passed in the other run, but not in this one:", name)
print(f"{len(passed(root))} passed, {len(failed)} failed")
sys.exit(1 if failed or missing or not passed(root) else 0)
