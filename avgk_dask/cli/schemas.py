"""The JSON Schema of the output of each command with ``--json``; ``avgk schema COMMAND`` prints it.

Result Datasets are described by the tables of ``results.registry``, whose variables with ``always`` are required. Other
documents are lists of properties, and a property of several commands is declared once. Numbers that JSON cannot represent
are the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

from collections.abc import Mapping

from ..results.registry import (
    BREAKDOWN,
    CONFORMAL_METHODS,
    COVERAGE,
    PAIRED,
    PAIRS,
    TIES,
    TRANSFERRED,
    VARIABLES,
    Variable,
)

Schema = dict[str, object]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"

_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_SIZE: Schema = {"type": "integer", "minimum": 1}
_NUMBER: Schema = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
_BUDGET: Schema = {"type": "number", "exclusiveMinimum": 0}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _one_of(*values: object) -> Schema:
    return {"enum": list(values)}


#: Schemas of properties by name; a command may override one.
_PROPERTIES: dict[str, Schema] = {
    **dict.fromkeys(("store", "file", "source", "made_by", "dtype", "message", "rounding", "truncated", "encoding"), _TEXT),
    **dict.fromkeys(("labels", "kind", "report"), _TEXT),
    **dict.fromkeys(("converged", "has_labels", "has_manifest", "ok", "soft"), _FLAG),
    **dict.fromkeys(("n_samples", "n_classes", "levels"), _SIZE),
    **dict.fromkeys(("n_above", "n_ties", "n_kept", "n_labelled", "n_labels", "n_left_out", "n_pairs", "n_nan"), _COUNT),
    **dict.fromkeys(("n_chunks", "n_missing_chunks", "n_bytes", "n_stored_bytes", "n_rows_sampled"), _COUNT),
    **dict.fromkeys(("reads", "n_reads", "n_iterations", "k_reg", "seed"), _COUNT),
    **dict.fromkeys(("task_memory", "merge_memory", "client_memory", "memory_limit"), _COUNT),
    **dict.fromkeys(("threshold", "alpha", "penalty", "nll_before", "nll_after", "low", "high", "ambiguity"), _NUMBER),
    **dict.fromkeys(("class_names", "ignored", "codecs", "advice"), _list(_TEXT)),
    **dict.fromkeys(("chunks", "shards"), _list(_SIZE)),
    "k": _BUDGET,
    "ties": _one_of(*TIES),
    "method": _one_of(*CONFORMAL_METHODS),
}  # fmt: skip


def _object(names: str, description: str = "", **special: Schema) -> Schema:
    """Return the schema of an object with exactly the named properties; those with ``?`` may be null."""
    known, properties = _PROPERTIES | special, {}
    for name in names.split():
        bare = name.removesuffix("?")
        properties[bare] = known[bare] if name == bare else {"anyOf": [known[bare], {"type": "null"}]}
    return {
        "type": "object",
        **({"description": description} if description else {}),
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_VARIABLE = _object(
    "dims dtype data attrs",
    "One array of the result: its values nested along the dimensions.",
    dims=_list(_TEXT),
    data={
        "anyOf": [_NUMBER, {"type": "array"}],
        "description": 'Numbers, nested as deep as there are dimensions; "NaN", "Infinity" and "-Infinity" are text.',
    },
    attrs={"type": "object"},
)
_FINGERPRINT: Schema = {"type": "string", "description": "SHA-256 of the manifest of the stored scores."}


def _dataset(
    names: str, table: Mapping[str, Variable], attrs: str = "n_samples n_classes n_labelled store reads", **special: Schema
) -> Schema:  # fmt: skip
    """Return the schema of a result Dataset with these variables, the required ones of a table, and these attributes."""
    needed = {name: _PROPERTIES[name] for name in attrs.split()} | special
    return _object(
        "variables coords attrs",
        "An xarray Dataset; avgk_dask.results.datasets.from_json gives it back.",
        variables={
            "type": "object",
            "required": [*names.split(), *(name for name, variable in table.items() if variable.always)],
            "additionalProperties": _VARIABLE,
        },
        coords=_list(_TEXT),
        attrs={
            "type": "object",
            "properties": {"score_kind": _TEXT, "fingerprint": _FINGERPRINT} | needed,
            "required": list(needed),
        },
    )


#: Errors are "NaN" without labels, and variables that need an integer k for a fractional k.
_RESULT = _dataset("k", VARIABLES)
_COVERED = _dataset(
    "size", COVERAGE,
    method=_TEXT, alpha=_NUMBER, by=_one_of("none", "class", "group"), n_calibration=_SIZE, confidence=_NUMBER,
)  # fmt: skip
#: One number, or one for each class.
_EACH: Schema = {"anyOf": [_NUMBER, _list(_NUMBER)]}
_DAMAGED: Schema = {
    "description": "The store key of a chunk, and what is wrong with it.",
    **_list(_TEXT), "minItems": 2, "maxItems": 2,
}  # fmt: skip

_BODIES: dict[str, Schema] = {
    "evaluate": _RESULT,
    "compare": _dataset("k model other rule average_k_error top_k_error", PAIRED, store=_list(_TEXT)),
    "breakdown": _dataset("k group", BREAKDOWN, by=_one_of("class", "group")),
    "pairs": _dataset("pair", PAIRS, "n_samples n_classes store reads k n_pairs"),
    "threshold": _list(_object("k threshold n_above n_ties n_kept", "One budget.")),
    "transfer": _dataset(
        "k", TRANSFERRED, n_calibration_samples=_SIZE, calibration_store=_TEXT, calibration_reads=_COUNT,
        guarantee=_one_of("none", "expected"),
    ),
    "calibrate": _object(
        "file method temperature? nll_before nll_after n_reads n_iterations converged message",
        "The fit; the file holds what was fitted.",
        method=_one_of("temperature", "vector", "matrix"), temperature=_BUDGET,
    ),
    "conformal": _object(
        "file? method alpha by? groups? threshold rank n_calibration n_classes penalty k_reg seed? reads result?",
        "The predictor, and what its sets are on the second store, where there is one.",
        by=_one_of("class", "group"), groups=_list({"type": "integer"}), threshold=_EACH, rank=_EACH, n_calibration=_EACH,
        result=_COVERED,
    ),
    "sets": _object(
        "store rule k? threshold? n_above? n_ties? n_kept? ties? method? alpha? source made_by n_left_out n_samples n_classes "
        "format n_labels",
        "What was written; all but store are attributes of the new store, too.",
        rule=_one_of("average", "top", "threshold", "conformal"), format=_one_of("booleans", "indices"),
    ),
    "ingest": _object(
        "store n_samples n_classes has_labels rounding? class_names? ignored n_chunks n_bytes",
        "The new store, which was verified.",
    ),
    "info": _object(
        "store zarr_format n_samples n_classes truncated? dtype rounding? encoding? chunks shards? codecs n_chunks n_bytes "
        "n_stored_bytes? n_missing_chunks? has_manifest labels? values? task_memory merge_memory client_memory memory_limit "
        "reads advice",
        zarr_format=_one_of(2, 3, None), values=_object("kind low? high? n_nan n_rows_sampled"), reads=_TEXT,
    ),
    "verify": _object(
        "ok n_chunks n_bytes has_manifest damaged",
        "Printed where chunks are damaged, too; the exit status is then 1.",
        damaged=_list(_DAMAGED),
    ),
    "join": _object("store n_samples n_classes has_labels"),
    "simulate": _object(
        "store n_samples n_classes example? seed dtype ambiguity levels? soft", example=_one_of(1, 2, 3, 4)
    ),
    "demo": _object("store report result", result=_RESULT),
}  # fmt: skip

SCHEMAS: dict[str, Schema] = {
    name: {"$schema": _DRAFT, "title": f"avgk {name} --json", **body} for name, body in _BODIES.items()
}
