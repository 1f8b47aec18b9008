"""Count the phrases that readers had to read twice, and fail if there are more of them than allowed.

    python .ci/words.py            # one line per pattern: count and limit in Python, count and limit in Markdown
    python .ci/words.py --show     # the places as well
    python .ci/words.py --show avgk_dask/engine

Lower a limit when phrases disappear. Raise it only for a sentence that a colleague would say aloud.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]

#: Name, pattern, the most in Python files, the most in Markdown, text and HTML files.
PATTERNS = [
    ("what is held", r"\b[Ww]hat (is|was|were|are|it|they|lies|has|had|stands|cannot|can|comes|does|must|may|will)\b", 7, 4),
    ("told", r"\b(told|tells|telling|[Tt]ell)\b", 4, 0),
    ("Where the ... (as 'if')", r"^\s*(Where (the|a|an|it|there|no|not|one)\b)", 0, 0),
    ("; None where", r"(;( \w+)?|\b(None|NaN|none|0)) where\b", 9, 4),
    ("is no probability", r"(?<!\b[Tt]here )\b(is|are|was|were) (no|none)\b|\bnone of\b", 4, 2),
    ("so many", r"\bso (many|few|much|large|little)\b", 6, 0),
    ("Of each budget, ...", r"(^|[.:;\"] )(\s*)Of (each|few|more|several|a|the|all|both|these|two)\b", 1, 0),
    ("one value a sample", r"\b(one|two|ten|\d+|values?|rows?|columns?|bytes|labels?|integers?|numbers?|tasks?) an? (sample|class|row|score|task|chunk|budget|group|value|column|band|key)\b", 1, 0),
    ("beside, behind", r"\b([Bb]eside|[Bb]ehind)\b", 3, 0),
    ("as it is", r"\bas (it|they) (is|are|was|were|stands?)\b", 3, 0),
    ("nobody, whoever", r"\b([Nn]obody|[Ww]hoever|[Ww]hichever|stands)\b|, too\b", 3, 0),
]  # fmt: skip
#: How often a variable, parameter or attribute may be called this.
NAMES = {"found": 1}


def tracked_files(paths: list[str]) -> list[pathlib.Path]:
    """Return the text files that git tracks below some paths, without this one."""
    command = ["git", "-C", str(ROOT), "ls-files", "--", *paths]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    files = [ROOT / name for name in names if name.endswith((".py", ".md", ".rst", ".html", ".ipynb"))]
    return [file for file in files if file != pathlib.Path(__file__).resolve() and file.is_file()]


def find_places(files: list[pathlib.Path], pattern: re.Pattern[str]) -> list[tuple[pathlib.Path, int, str]]:
    """Return (file, line number, line) of each line in which a pattern occurs."""
    return [
        (file, number, line.strip())
        for file in files
        for number, line in enumerate(file.read_text("utf-8").split("\n"), 1)
        if pattern.search(line)
    ]


def main(arguments: list[str]) -> int:
    """Print the counts; return 1 if one is above its limit."""
    show, paths = "--show" in arguments, [a for a in arguments if a != "--show"]
    files, status = tracked_files(paths), 0
    python = [file for file in files if file.suffix == ".py"]
    pages = [file for file in files if file.suffix != ".py"]
    names = [
        (f"the name {name}", rf"(?<![\w.\"'`]){name}(?=( =|:| in\b|, .* = )[^=])", most, 0)
        for name, most in NAMES.items()
    ]
    for title, text, most_python, most_pages in PATTERNS + names:
        pattern = re.compile(text)
        for where, among, most in (("Python", python, most_python), ("pages", pages, most_pages)):
            if title.startswith("the name") and where == "pages":
                continue
            places = find_places(among, pattern)
            over = len(places) > most
            status |= over
            print(f"{'!' if over else ' '} {title:28} {where:7} {len(places):5} of at most {most}")
            if show:
                for file, number, line in places:
                    print(f"      {file.relative_to(ROOT)}:{number}: {line}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
