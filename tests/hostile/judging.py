"""The allowed outcomes of a damaged input: one AvgkError that names the file, or the right answer."""

from __future__ import annotations

import pathlib
import re
import shutil

import avgk_dask as avgk


def evaluate(path):
    return avgk.evaluate(path, k=[0.5, 1], straddle=False).drop_attrs()


def threshold(path):
    threshold = avgk.threshold(path, 1)
    return threshold.value, threshold.n_above, threshold.n_ties, threshold.n_kept


def ingest(path):
    out = pathlib.Path(path).with_name(f"{pathlib.Path(path).name}-ingested")
    try:
        avgk.ingest(path, out=out)
    except avgk.AvgkError:
        assert not out.exists(), "a failed ingest left files"
        raise
    result = evaluate(out)
    shutil.rmtree(out)
    return result


def verify(path):
    verification = avgk.verify(path)
    return "ok" if verification.ok else str(verification.damaged)


def info(path):
    info = avgk.info(path)
    return {name: info[name] for name in ("n_samples", "n_classes", "dtype", "labels", "values")}


#: Reading functions, by name; their values can be compared with those of a sound store.
READERS = {"evaluate": evaluate, "threshold": threshold, "info": info, "verify": verify, "ingest": ingest}


def outcome(call, *arguments):
    """Return the outcome of a call: ("refused", its text) or ("answer", its value); anything else is a failure."""
    try:
        return "answer", call(*arguments)
    except avgk.AvgkError as error:
        check_error(error, arguments[0])
        return "refused", str(error)


def check_error(error, path):
    """Assert that an error is one line that names the file and says what to do."""
    text = str(error)
    assert "\n" not in text
    named = pathlib.Path(path).name in text or re.search(r"\bsample \d", text)
    assert named or isinstance(error, avgk.BudgetError), text
    assert re.search(r"[.?](\s[A-Z].*)?$", text), text
    assert len(text) < 1500, text


def equal(a, b):
    return a.identical(b) if hasattr(a, "identical") else a == b


def answers(path):
    """Return the answer of each reader for a sound store; only truncated stores are not ingested."""
    outcomes = {name: outcome(call, path) for name, call in READERS.items()}
    refused = [name for name, (kind, _) in outcomes.items() if kind == "refused"]
    assert refused == (["ingest"] if pathlib.Path(path).name == "truncated" else [])
    return {name: value for name, (_, value) in outcomes.items()}


def judge(path, sound, *, may_change=False, readers=READERS):
    """Assert that each reader refuses a damaged store or gives the answer of the sound one.

    ``may_change`` is for stores without a manifest, in which changed metadata cannot be detected: any answer is allowed, but
    no exception of another package.
    """
    outcomes = {name: outcome(call, path) for name, call in readers.items()}
    wrong = [
        name
        for name, (kind, value) in outcomes.items()
        if kind == "answer" and name != "verify" and not may_change and not equal(value, sound[name])
    ]
    assert not wrong, f"silently wrong: {wrong}"
    return outcomes
