"""count-tests.py FOLDER [SKIPPED [VERSION DOCUMENT]]: counts the tests in JUnit XML, and says where the time went.

Prints the slowest suites and steps, the failed tests, those that passed at their second try, and at last "N passed, M failed, K skipped". FOLDER has the
reports, Maven's log with milliseconds before each line (maven.log), and the times of the lab's steps ("steps": lines of
"SECONDS<tab>DESCRIPTION").

Fails if a test failed, if none ran, or if not exactly SKIPPED tests (0 by default) were skipped for another reason than
that they run in the long tier only. With VERSION, of Kubernetes, any number may be skipped for such a reason: the version's
row of the table in DOCUMENT says how many and why. It counts <testcase> elements, since Surefire, Failsafe and CTest define
the sums in <testsuite> differently.
"""
import collections
import datetime
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

# A test that runs in the long tier only names this variable when it is skipped.
LONG_TIER = "ALIQUOT_LONG"
POM = "{http://maven.apache.org/POM/4.0.0}"


def seconds(element):
    return float(element.get("time", "0").replace(",", ""))


def is_of_the_long_tier(test):
    return any(LONG_TIER in ElementTree.tostring(reason, "unicode") for reason in test.iter())


def maven_steps(log):
    """The seconds of each goal: until the module's next one begins, or the module ends."""
    goals = collections.defaultdict(list)
    sums = {}
    for line in log.read_text(errors="replace").splitlines():
        if match := re.match(r"(\d+) \[INFO\] --- ([\w-]+):\S+:(\S+) \((.*)\) @ (\S+) ---", line):
            begin, plugin, goal, execution, module = match.groups()
            goals[module].append((int(begin) / 1000, f"{plugin}:{goal} ({execution})"))
        elif match := re.match(r"\d+ \[INFO\] (.*?) \.+ (?:SUCCESS|FAILURE) \[ *(?:(\d+):)?([\d.]+) (?:s|min)\]", line):
            sums[match[1]] = int(match[2] or 0) * 60 + float(match[3])
    for pom in pathlib.Path(__file__).resolve().parent.parent.glob("*/pom.xml"):
        project = ElementTree.parse(pom).getroot()
        module = project.findtext(POM + "artifactId")
        begins = [begin for begin, _ in goals[module]]
        ends = begins[1:] + [begin + sums.get(project.findtext(POM + "name"), 0) for begin in begins[:1]]
        yield from ((end - begin, f"{module} {goal}") for (begin, goal), end in zip(goals[module], ends))


TABLE = re.compile(
    r"(<!-- What ran on which Kubernetes: CONTRIBUTING.md says how the tests write these lines. -->\n)(.*?)"
    r"(<!-- End of what ran on which Kubernetes -->\n)", re.DOTALL)


def reason_of(skipped_test):
    """Surefire writes that of an assumption as the first line of the stack trace."""
    element = skipped_test.find("skipped")
    if element is None:
        return "no reason"
    text = element.get("message") or (element.text or "").strip().split("\n")[0]
    return text.rpartition("Assumption failed: ")[2] or "no reason"


def write_row(document, version, cells):
    """Replaces the row of this version, or adds it; the oldest version comes first."""
    text = document.read_text()
    if not TABLE.search(text):
        sys.exit(f"expected the two lines <!-- ... what ran on which Kubernetes ... --> in {document}, found none")
    lines = TABLE.search(text)[2].splitlines()
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in lines[2:]}
    rows[version] = "| " + " | ".join([version, *cells]) + " |"
    ordered = sorted(rows.items(), key=lambda row: [int(part) for part in row[0].split(".")])
    table = "\n".join(lines[:2] + [row for _, row in ordered]) + "\n"
    document.write_text(TABLE.sub(lambda match: match[1] + table + match[3], text))


def print_slowest(what, times):
    print(f"The slowest {what}:")
    for time, name in sorted(times, reverse=True)[:10]:
        print(f"{time:8.0f} s  {name}")
    print()


folder = pathlib.Path(sys.argv[1])
expected = int(sys.argv[2]) if len(sys.argv) > 2 else 0
version, document = sys.argv[3:5] if len(sys.argv) > 4 else (None, None)
passed = skipped = 0
failed = []
again = []
unexpected = []
reasons = collections.Counter()
suites = collections.Counter()
for file in sorted(folder.rglob("*.xml")):
    try:
        root = ElementTree.parse(file).getroot()
    except ElementTree.ParseError as error:
        failed.append(f"{file.name}: cannot parse the report ({error}); its run was probably killed")
        continue
    tests = list(root.iter("testcase"))
    if file.name.startswith("native-shim"):
        for test in tests:
            suites["native-shim " + test.get("name").partition(".")[0]] += seconds(test)
    else:
        suites[next(suite.get("name") for suite in root.iter("testsuite"))] += max(seconds(root), sum(map(seconds, tests)))
    if not tests:  # Surefire reports so a class whose @BeforeAll was skipped, as without a browser
        tests = [ElementTree.fromstring(f"<testcase classname='{root.get('name')}' name='all'><skipped/></testcase>")]
    for test in tests:
        name = f"{file.parent.name}: {test.get('classname')}: {test.get('name')}"
        if test.find("failure") is not None or test.find("error") is not None or test.get("status") == "fail":
            failed.append(name)
        elif test.find("skipped") is not None or test.get("status") in ("disabled", "notrun"):
            skipped += 1
            if not is_of_the_long_tier(test):
                unexpected.append(name)
                reasons[reason_of(test)] += 1
        else:
            passed += 1
            if test.find("flakyFailure") is not None or test.find("flakyError") is not None:
                again.append(name)
steps = list(maven_steps(folder / "maven.log")) if (folder / "maven.log").exists() else []
# CTest's report has the last try only; its output has each.
if (folder / "maven.log").exists():
    output = (folder / "maven.log").read_text(errors="replace")
    retried = set(re.findall(r"Test +#\d+: (\S+) \.+\*\*\*(?:Failed|Timeout|Exception)", output))
    again += (f"native-shim: {name}" for name in sorted(retried) if not any(name in failure for failure in failed))
if (folder / "steps").exists():
    for line in (folder / "steps").read_text().splitlines():
        time, _, what = line.partition("\t")
        steps.append((float(time), what))
print_slowest("suites", ((time, name) for name, time in suites.items()))
print_slowest("steps", steps)
for name in failed:
    print("failed:", name)
for name in again:
    print("passed at the second try:", name)
if version:
    expected = len(unexpected)
if version and passed:  # else the cluster did not start
    write_row(pathlib.Path(document), version, [
        str(passed + len(failed)),
        str(passed),
        ", ".join(f"`{name.split(': ', 1)[1].rsplit('.', 1)[-1].replace(': ', '.')}`" for name in failed) or "none",
        "; ".join(f"{count}: {reason}" for reason, count in reasons.items()) or "none",
        datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    ])
if len(unexpected) != expected:
    print(f"expected {expected} skipped tests beside those of the long tier, found {len(unexpected)}")
    for name in unexpected:
        print("skipped:", name)
print(f"{passed} passed, {len(failed)} failed, {skipped} skipped")
sys.exit(1 if failed or passed == 0 or len(unexpected) != expected else 0)
