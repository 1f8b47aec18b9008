"""Print the lowest declared version of every library of pyproject.toml, as constraints for pip."""

import pathlib
import re
import tomllib

project = tomllib.loads((pathlib.Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
extras = {name: lines for name, lines in project["optional-dependencies"].items() if name != "test"}
declared = [*project["dependencies"], *(line for lines in extras.values() for line in lines)]
bounds: dict[str, str] = {}
for requirement in declared:
    if requirement.startswith(f"{project['name']}["):
        continue
    match = re.fullmatch(r"([\w.-]+)(?:\[[\w,.-]+\])?>=([\w.]+)", requirement)
    if not match:
        raise SystemExit(f"pyproject.toml: a library must be declared as name>=version; got {requirement!r}")
    name, bound = match.groups()
    if bounds.setdefault(name, bound) != bound:
        raise SystemExit(f"pyproject.toml: {name} must have one lower bound; got {bounds[name]} and {bound}")
print("\n".join(f"{name}=={bound}" for name, bound in bounds.items()))
