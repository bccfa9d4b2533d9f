"""Results of checks: what each prints, and its line in the results file."""
import json
import re
import time


class Skip(Exception):
    """The check cannot run on this machine; the message gives the reason."""


class Fail(Exception):
    """The check failed; the message gives the expected and the actual value."""


def skip(reason):
    raise Skip(reason)


def expect(condition, message):
    if not condition:
        raise Fail(message)


class Report:
    def __init__(self, arguments):
        self.results, self.match, self.time_limit = arguments.results, arguments.match, arguments.time_limit
        self.count = {"PASS": 0, "FAIL": 0, "SKIP": 0}
        self.details = {}  # of the running check, for the results
        self.deadline = None

    def start_call(self):
        """After the time limit, counted from now, no further check starts."""
        self.deadline = time.monotonic() + self.time_limit

    def record(self, line):
        """Appends a line to the results, so that a run that is cut off loses nothing."""
        with open(self.results, "a") as file:
            file.write(json.dumps(line) + "\n")

    def check(self, section, name, function):
        """Runs a check, a function that returns its figures or raises Skip or Fail, and records the result."""
        if not re.search(self.match, name):
            return
        start = time.monotonic()
        self.details = {}
        try:
            if start > self.deadline:
                raise Skip(f"not run: the time limit of {self.time_limit:g} s for a call has passed")
            status, figure = "PASS", function() or ""
        except Skip as reason:
            status, figure = "SKIP", str(reason)
        except Fail as reason:
            status, figure = "FAIL", str(reason)
        print(f"{status}  {section}: {name}{': ' if figure else ''}{figure}", flush=True)
        self.count[status] += 1
        self.record({"section": section, "check": name, "status": status, "figure": figure,
                     "seconds": round(time.monotonic() - start, 1), **self.details})
