"""`felb certify`: what is proven, with and without a result, and what is refused."""


def test_a_result_is_proven_optimal(felb, in_folder):
    assert felb("fit", "zoo", "-k", "2", "-o", "pair").code == 0
    told = felb("certify", "zoo", "--result", "pair")
    assert told.code == 0
    assert "271" in told.out
    assert "optimal" in told.out
    found = felb("certify", "zoo", "--result", "pair", "--json").json
    assert (found["lower"], found["errors"], found["gap"], found["optimal"]) == (271, 271, 0.0, True)


def test_a_rank_alone_has_a_bound_but_no_gap(felb, in_folder):
    found = felb("certify", "zoo", "-k", "10", "--json").json
    assert 0 < found["lower"] <= 39
    assert found["gap"] is None
    assert found["optimal"] is False


def test_a_rank_is_needed_and_must_be_that_of_the_result(felb, in_folder):
    assert felb("certify", "zoo").code == 1
    felb("fit", "zoo", "-k", "2", "-o", "pair")
    refused = felb("certify", "zoo", "-k", "3", "--result", "pair")
    assert refused.code == 1
    assert "2" in refused.err
    assert felb("certify", "nothing.csv", "-k", "3").code == 1
