"""What a notebook shows of a model: a summary and figures."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from felb import Asso, FederatedBMF, GreConD
from felb.data import load, partition
from felb.errors import InputError

pytest.importorskip("matplotlib")

ZOO = load("zoo")


@pytest.fixture(scope="module")
def model():
    return FederatedBMF(4, effort="fast", random_state=0).fit(ZOO, groups=partition.even(101, 3))


def image_of(figure):
    """Return the matrix that the first axes of a figure show."""
    return np.asarray(figure.axes[0].images[0].get_array())


def test_components_are_drawn_by_name_and_all_of_them(model):
    figure = model.plot.components()
    names = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    shown = image_of(figure)
    for row, features in zip(shown, model.component_features(), strict=True):
        assert {name for name, cell in zip(names, row, strict=True) if cell} == set(features)
    few = model.plot.components(max_features=3)
    assert image_of(few).shape == (4, 3)
    assert "more features are not shown" in few.axes[0].get_title(loc="left")


def test_the_residual_counts_what_is_wrong(model):
    figure = model.plot.reconstruction(ZOO)
    data, made, residual = (np.asarray(axes.images[0].get_array()) for axes in figure.axes[:3])
    assert data.sum() == ZOO.nnz
    assert np.count_nonzero(data != made) == np.count_nonzero(residual >= 3)
    assert np.count_nonzero(data != made) == model.counts_.fp + model.counts_.fn


def test_rounds_are_drawn_and_a_method_without_rounds_says_so(model):
    figure = model.plot.rounds()
    assert any(axes.lines for axes in figure.axes)
    with pytest.raises(InputError, match="rounds"):
        GreConD(3).fit(ZOO).plot.rounds()


def test_stability_takes_means_and_intervals(model):
    found = SimpleNamespace(mean=np.array([0.9, 0.8, 0.7, 0.6]), interval=np.array([[0.5, 1.0]] * 4))
    axes = model.plot.stability(found).axes[0]
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), found.mean)
    with pytest.raises(InputError, match=r"felb\.stability"):
        model.plot.stability()
    with pytest.raises(InputError, match="has 4"):
        model.plot.stability(SimpleNamespace(mean=np.ones(3), interval=np.ones((3, 2))))


def test_figures_are_not_kept_and_can_be_saved(model, tmp_path):
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    model.plot.components().savefig(tmp_path / "components.png")
    assert (tmp_path / "components.png").stat().st_size > 1000
    assert pyplot.get_fignums() == before


def test_before_the_fit_there_is_nothing_to_draw():
    with pytest.raises(NotFittedError):
        _ = Asso(3).plot


def test_a_notebook_shows_the_components_and_escapes_names(model):
    html = model._repr_mimebundle_()["text/html"]
    assert html == (model._repr_html_() if callable(model._repr_html_) else model._repr_html_)
    for features in model.component_features():
        assert ", ".join(features).replace("<", "&lt;").replace(">", "&gt;") in html
    assert "F1" in html
    assert model._repr_mimebundle_()["text/plain"] == repr(model)
    hostile = Asso(2).fit(ZOO.with_columns([f"<script>{i}" for i in range(17)]))
    assert "<script>" not in hostile._repr_mimebundle_()["text/html"]


def test_before_the_fit_a_notebook_shows_what_scikit_learn_shows():
    assert "sk-top-container" in Asso(3)._repr_mimebundle_()["text/html"]


def test_progress_is_shown_on_request_only(capsys):
    seen = []
    quick = FederatedBMF(3, effort="fast", random_state=0)
    quick.fit(ZOO, on_round=lambda progress: seen.append(len(progress.history)))
    assert capsys.readouterr().err == ""
    U = quick.fit_transform(ZOO, on_round=lambda progress: seen.append(len(progress.history)), verbose=True)
    told = capsys.readouterr().err
    assert "rounds" in told
    assert f"{len(quick.history_)}/{len(quick.history_)}" in told
    assert seen == [*range(1, len(quick.history_) + 1)] * 2
    np.testing.assert_array_equal(U, quick.transform(ZOO))
