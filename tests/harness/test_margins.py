"""Margins as they are typed."""

from __future__ import annotations

import pytest

from harness.config import RunSpec
from harness.margins import parse_margins, with_margins
from harness.results import ResultDocument
from rag_core.errors import InvalidArgumentError, UnknownNameError


def test_names_take_the_form_of_results() -> None:
    assert parse_margins(["ndcg_cut@10=0.01", " mrr@10 = .02"]) == {"ndcg@10": 0.01, "mrr@10": 0.02}
    assert parse_margins(["ndcg@10=0.01", "ndcg@10=0.010"]) == {"ndcg@10": 0.01}
    assert parse_margins([]) == {}


@pytest.mark.parametrize(
    "text", ["ndcg@10", "ndcg@10=", "ndcg@10=x", "ndcg@10=0", "ndcg@10=1", "ndcg@10=nan"]
)
def test_what_is_no_margin_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"margin '{text}'; accepted: metric=number"):
        parse_margins([text])


def test_two_margins_for_one_metric_and_unknown_metrics_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"0\.01 and 0\.02 for ndcg@10"):
        parse_margins(["ndcg@10=0.01", "ndcg_cut@10=0.02"])
    with pytest.raises((InvalidArgumentError, UnknownNameError), match="nothing"):
        parse_margins(["nothing@10=0.01"])


def test_a_run_keeps_them_without_being_another_run() -> None:
    plain = RunSpec("mini", ("fake",))
    given = RunSpec("mini", ("fake",), margins=("ndcg@10=0.01",))
    assert given.digest == plain.digest
    assert RunSpec.from_dict(given.as_dict()) == given
    with pytest.raises(InvalidArgumentError, match="margin"):
        RunSpec("mini", ("fake",), margins=("x",))


def test_a_finished_result_may_be_judged_by_another(document: ResultDocument) -> None:
    assert with_margins(document, ()) is document
    judged = with_margins(document, ["ndcg@10=0.02"])
    assert judged.spec["margins"] == ["ndcg@10=0.02"]
    assert not document.spec["margins"]
    with pytest.raises(InvalidArgumentError):
        with_margins(document, ["ndcg@10"])
