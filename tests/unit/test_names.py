"""Names that stand in several places, because nothing may import them from one, are the same everywhere."""

from __future__ import annotations

import pytest

from grpc_ps.client.commands.programs import OUR_MODELS
from grpc_ps.client.shared.job_flags import CLIPS, MODES, OPTIMIZERS
from grpc_ps.client.shared.wire_form import WIRE_DTYPES, parse_compress
from grpc_ps.models import MODELS, load
from grpc_ps.protos.job_pb2 import Settings
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.rounds import rounds_for
from grpc_ps.psserver.lead.settings import CLIPS as LEADS_CLIPS
from grpc_ps.psserver.lead.settings import DEFAULTS, complete
from grpc_ps.psserver.optimizers import rule_for


def words(name: str) -> list[str]:
    """The words that the lead takes for a setting, as its refusal lists them."""
    with pytest.raises(Refusal) as caught:
        complete({name: "?"})
    return caught.value.detail.split("must be one of ")[1].split(", ")


def test_the_lead_takes_the_optimizers_that_there_are() -> None:
    assert words("optimizer") == list(OPTIMIZERS)
    for name in OPTIMIZERS:
        assert rule_for(Settings(**{**DEFAULTS, "optimizer": name})).update is not None
    with pytest.raises(KeyError):
        rule_for(Settings(**{**DEFAULTS, "optimizer": "?"}))


def test_each_mode_has_its_own_rounds() -> None:
    assert words("mode") == list(MODES)
    classes = {type(rounds_for(complete({"mode": mode}))).__name__ for mode in words("mode")}
    assert classes == {"AsyncRounds", "SyncRounds"}


def test_every_setting_has_a_default() -> None:
    assert set(DEFAULTS) == set(Settings.DESCRIPTOR.fields_by_name)


def test_the_kinds_of_clipping_are_those_of_the_lead() -> None:
    assert CLIPS == LEADS_CLIPS


def test_the_types_that_travel_are_those_of_the_lead() -> None:
    assert words("push_dtype") == words("pull_dtype") == list(WIRE_DTYPES)


@pytest.mark.parametrize("dtype", WIRE_DTYPES)
@pytest.mark.parametrize("text", ["", "topk:0.01", "topk:.33"])
def test_a_compression_is_one_for_the_lead_too(text: str, dtype: str) -> None:
    parse_compress(text, dtype)
    assert complete({"compress": text, "push_dtype": dtype})["compress"] == text


NO_COMPRESSIONS = ["topk:1.1", "topk:0", "topk:x", "?", "topk:1e-2", "topk:", "0.5", "topk:0.5"]


@pytest.mark.parametrize(
    ("text", "dtype"),
    [*((text, "float32") for text in NO_COMPRESSIONS), ("topk:0.34", "bfloat16"), ("topk:0.34", "float16")],
)
def test_what_is_no_compression_is_none_for_the_lead_either(text: str, dtype: str) -> None:
    with pytest.raises(ValueError, match="must be topk:RATIO") as ours:
        parse_compress(text, dtype)
    with pytest.raises(Refusal) as leads:
        complete({"compress": text, "push_dtype": dtype})
    assert leads.value.detail == f"compress {text!r}: {ours.value}"


def test_psctl_knows_our_models_by_the_names_that_a_status_shows() -> None:
    assert tuple(sorted(MODELS)) == OUR_MODELS
    assert [load(name)().name for name in OUR_MODELS] == list(OUR_MODELS)
