"""Print the table of examples/README.md: the paper's claims and the examples' measurements.

python examples/make_table.py examples/results
"""

import argparse
import json
import pathlib
import sys


def cell(value):
    """Return a value as the text of a table's cell: numbers to four digits."""
    if isinstance(value, float):
        value = f"{value:.4g}"
    return str(value).replace("|", "\\|")


def make_table(folder, name="[0-9][0-9]_"):
    """Return the Markdown table of all claims in a folder's JSON files whose names begin so, in the order of the names."""
    lines = ["| example | claim | paper | ours | agrees |", "|---|---|---|---|---|"]
    for path in sorted(folder.glob(f"{name}*.json")):
        results = json.loads(path.read_text())
        for claim in results["claims"]:
            cells = [
                results["example"][:2],
                claim["claim"],
                claim["paper"],
                claim["ours"],
                {True: "yes", False: "**no**", None: "not stated"}[claim["agrees"]],
            ]
            lines.append(f"| {' | '.join(cell(each) for each in cells)} |")
    return "\n".join(lines)


def main(argv=None):
    """Print the table of a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, nargs="?", default="examples-out", help="where the examples wrote")
    print(make_table(pathlib.Path(parser.parse_args(argv).folder)))


if __name__ == "__main__":
    main(sys.argv[1:])
