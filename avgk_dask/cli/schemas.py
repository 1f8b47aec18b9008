"""What each command prints with ``--json``, as JSON Schema: ``avgk schema COMMAND`` prints it.

Numbers that JSON cannot hold are the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

from ..results.registry import CONFORMAL_METHODS

Schema = dict[str, object]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"

_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_SIZE: Schema = {"type": "integer", "minimum": 1}
_NUMBER: Schema = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
_BUDGET: Schema = {"type": "number", "exclusiveMinimum": 0}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _object(description: str = "", **properties: Schema) -> Schema:
    """Return the schema of an object that has all these properties and no others."""
    said = {"description": description} if description else {}
    return {
        "type": "object",
        **said,
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_VARIABLE = _object(
    "One array of the result: its values nested along the dimensions.",
    dims=_list(_TEXT),
    dtype=_TEXT,
    data={
        "anyOf": [_NUMBER, {"type": "array"}],
        "description": 'Numbers, nested as deep as there are dimensions; "NaN", "Infinity" and "-Infinity" are text.',
    },
    attrs={"type": "object"},
)

_ATTRS = {"n_samples": _SIZE, "n_classes": _SIZE, "n_labelled": _COUNT, "store": _TEXT, "reads": _COUNT}
_FINGERPRINT: Schema = {"type": "string", "description": "SHA-256 of the manifest of the stored scores."}


def _dataset(variables: list[str], attrs: dict[str, Schema], *, labelled: bool = True) -> Schema:
    """Return the schema of a result Dataset that has these variables, and these attributes beside those all have."""
    needed = {name: kind for name, kind in _ATTRS.items() if labelled or name != "n_labelled"} | attrs
    return _object(
        "An xarray Dataset; avgk_dask.results.datasets.from_json gives it back.",
        variables={"type": "object", "required": variables, "additionalProperties": _VARIABLE},
        coords=_list(_TEXT),
        attrs={
            "type": "object",
            "properties": {"score_kind": _TEXT, "fingerprint": _FINGERPRINT} | needed,
            "required": list(needed),
        },
    )


#: Errors are "NaN" where there are no labels, and what needs an integer k where k is none.
_RESULT = _dataset(
    [
        "k", "threshold", "n_above", "n_ties", "n_kept", "average_set_size", "average_k_error", "top_k_error",
        "adaptive_gain", "relative_gain", "set_size_count",
    ],
    {},
)  # fmt: skip
_TRANSFERRED = _dataset(
    [
        "k", "threshold", "average_set_size", "average_set_size_stderr", "average_k_error",
        "own_threshold", "own_average_set_size", "own_average_k_error",
    ],
    {
        "n_calibration_samples": _SIZE, "calibration_store": _TEXT, "calibration_reads": _COUNT,
        "guarantee": {"enum": ["none", "expected"]},
    },
)  # fmt: skip

#: One number, or one for each class.
_EACH: Schema = {"anyOf": [_NUMBER, _list(_NUMBER)]}
_COVERED = _dataset(
    [
        "coverage", "coverage_stderr", "average_set_size", "n_hits", "hits_low", "hits_high", "p_value_low",
        "p_value_high", "size", "set_size_count", "set_hit_count", "size_coverage",
    ],
    {
        "method": _TEXT, "alpha": _NUMBER, "by": {"enum": ["none", "class", "group"]}, "n_calibration": _SIZE, "confidence": _NUMBER,
    },
)  # fmt: skip
_BROKEN_DOWN = _dataset(
    # "threshold", or with a threshold for each group "group_threshold", is there, too.
    ["k", "group", "n_samples", "n_labelled", "average_k_error", "average_k_error_low", "average_k_error_high",
     "top_k_error", "adaptive_gain", "average_set_size", "macro_average_k_error", "macro_top_k_error"],
    {"by": {"enum": ["class", "group"]}},
)  # fmt: skip
_COMPARED = _dataset(
    ["k", "model", "other", "rule", "average_k_error", "top_k_error", "difference", "difference_stderr", "discordant",
     "mcnemar_p", "mcnemar_p_adjusted", "average_against_top", "average_against_top_stderr"],
    {"store": _list(_TEXT)},
)  # fmt: skip

_BODIES: dict[str, Schema] = {
    "evaluate": _RESULT,
    "compare": _COMPARED,
    "breakdown": _BROKEN_DOWN,
    "pairs": _dataset(
        ["pair", "class_a", "class_b", "count", "n_sets_a", "n_sets_b"], {"k": _BUDGET, "n_pairs": _COUNT}, labelled=False
    ),
    "threshold": _list(
        _object("One budget.", k=_BUDGET, threshold=_NUMBER, n_above=_COUNT, n_ties=_COUNT, n_kept=_COUNT)
    ),
    "transfer": _TRANSFERRED,
    "calibrate": _object(
        "The fit; the file holds what was fitted.",
        file=_TEXT,
        method={"enum": ["temperature", "vector", "matrix"]},
        temperature=_or_null({"type": "number", "exclusiveMinimum": 0}),
        nll_before=_NUMBER,
        nll_after=_NUMBER,
        n_reads=_COUNT,
        n_iterations=_COUNT,
        converged=_FLAG,
        message=_TEXT,
    ),
    "conformal": _object(
        "The predictor, and what its sets are on the second store, where there is one.",
        file=_or_null(_TEXT),
        method={"enum": list(CONFORMAL_METHODS)},
        alpha=_NUMBER,
        by=_or_null({"enum": ["class", "group"]}),
        groups=_or_null(_list({"type": "integer"})),
        threshold=_EACH,
        rank=_EACH,
        n_calibration=_EACH,
        n_classes=_SIZE,
        penalty=_NUMBER,
        k_reg=_COUNT,
        seed=_or_null(_COUNT),
        reads=_COUNT,
        result=_or_null(_COVERED),
    ),
    "sets": _object(
        "What was written; all but store are attributes of the new store, too.",
        store=_TEXT,
        rule={"enum": ["average", "top", "threshold", "conformal"]},
        k=_or_null(_BUDGET),
        threshold=_or_null(_NUMBER),
        n_above=_or_null(_COUNT),
        n_ties=_or_null(_COUNT),
        n_kept=_or_null(_COUNT),
        ties=_or_null({"enum": ["first", "spread"]}),
        method=_or_null({"enum": list(CONFORMAL_METHODS)}),
        alpha=_or_null(_NUMBER),
        source=_TEXT,
        made_by=_TEXT,
        n_left_out=_COUNT,
        n_samples=_SIZE,
        n_classes=_SIZE,
        format={"enum": ["booleans", "indices"]},
        n_labels=_COUNT,
    ),
    "ingest": _object(
        "The new store, which was verified.",
        store=_TEXT,
        n_samples=_SIZE,
        n_classes=_SIZE,
        has_labels=_FLAG,
        rounding=_or_null(_TEXT),
        class_names=_or_null(_list(_TEXT)),
        ignored=_list(_TEXT),
        n_chunks=_COUNT,
        n_bytes=_COUNT,
    ),
    "info": _object(
        store=_TEXT,
        zarr_format={"enum": [2, 3, None]},
        n_samples=_SIZE,
        n_classes=_SIZE,
        truncated=_or_null(_TEXT),
        dtype=_TEXT,
        rounding=_or_null(_TEXT),
        encoding=_or_null(_TEXT),
        chunks=_list(_SIZE),
        shards=_or_null(_list(_SIZE)),
        codecs=_list(_TEXT),
        n_chunks=_COUNT,
        n_bytes=_COUNT,
        n_stored_bytes=_or_null(_COUNT),
        n_missing_chunks=_or_null(_COUNT),
        has_manifest=_FLAG,
        labels=_or_null(_TEXT),
        values=_or_null(
            _object(kind=_TEXT, low=_or_null(_NUMBER), high=_or_null(_NUMBER), n_nan=_COUNT, n_rows_sampled=_COUNT)
        ),
        task_memory=_COUNT,
        merge_memory=_COUNT,
        client_memory=_COUNT,
        memory_limit=_COUNT,
        reads=_TEXT,
        advice=_list(_TEXT),
    ),
    "verify": _object(
        "Printed where chunks are damaged, too; the exit status is then 1.",
        ok=_FLAG,
        n_chunks=_COUNT,
        n_bytes=_COUNT,
        has_manifest=_FLAG,
        damaged=_list({
            "description": "The store key of a chunk, and what is wrong with it.",
            **_list(_TEXT), "minItems": 2, "maxItems": 2,
        }),
    ),
    "join": _object(store=_TEXT, n_samples=_SIZE, n_classes=_SIZE, has_labels=_FLAG),
    "simulate": _object(
        store=_TEXT,
        n_samples=_SIZE,
        n_classes=_SIZE,
        example=_or_null({"enum": [1, 2, 3, 4]}),
        seed=_COUNT,
        dtype=_TEXT,
        ambiguity=_NUMBER,
        levels=_or_null(_SIZE),
        soft=_FLAG,
    ),
    "demo": _object(store=_TEXT, report=_TEXT, result=_RESULT),
}  # fmt: skip

SCHEMAS: dict[str, Schema] = {
    name: {"$schema": _DRAFT, "title": f"avgk {name} --json", **body} for name, body in _BODIES.items()
}
