"""Programs that checks start."""
import json
import os
import subprocess
import threading

from kit.report import Fail, expect


class Program(subprocess.Popen):
    """A process that prints JSON objects, a line each, and may wait for lines of input."""

    def __init__(self, command, environment, timeout):
        super().__init__([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, env=environment)
        self.name, self.timeout = os.path.basename(self.args[0]), timeout

    def read_line(self):
        """Waits for the next line of output."""
        timer = threading.Timer(self.timeout, self.kill)
        timer.start()
        text = self.stdout.readline()
        timer.cancel()
        if not text:
            self.finish()
            raise Fail(f"{self.name} ended too early")
        return json.loads(text)

    def go_on(self):
        """Lets the process go on that waits for a line of input."""
        self.stdin.write("\n")
        self.stdin.flush()

    def finish(self):
        """Closes the input, waits for the end, and returns the last line of output."""
        try:
            output, errors = self.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            self.stop()
            raise Fail(f"{self.name} did not end within {self.timeout:g} s")
        expect(self.returncode == 0, f"{self.name} failed: {(errors or output).strip()[-300:] or self.returncode}")
        return json.loads(output.strip().splitlines()[-1])

    def stop(self):
        """Kills the process if it still runs."""
        if self.poll() is None:
            self.kill()
            self.communicate()
