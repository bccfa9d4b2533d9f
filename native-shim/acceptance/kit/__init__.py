"""Parts of the acceptance kit. `checks` has a file for each section; the files here are what the checks share."""
import os

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # of run, and of the scripts that checks run
MIB = 1 << 20
