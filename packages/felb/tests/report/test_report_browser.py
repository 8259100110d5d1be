"""The page as a browser shows it: real clicks, real keys, real widths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from browsing import DESK, PHONE, SCREENSHOTS, started_browser
from stored_runs import EVIL

from felb.analysis import Stability
from felb.report import build_result_page, gather
from felb.report.pages import build_comparison_page
from felb.runs.cells import CellRecord
from felb.runs.compare import Compared


@pytest.fixture(scope="module")
def browser():
    with started_browser() as started:
        yield started


@pytest.fixture(scope="module")
def file(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    labels = path.with_name("labels.txt")
    labels.write_text("".join(f"{EVIL if has else 'none'}\n" for has in run.U[:, 0]))
    match = np.random.default_rng(0).random((10, 20))
    stable = Stability(match, run.result.components.astype(float), None, 0)
    build_result_page(replace(gather(run.folder, labels=str(labels)), stability=stable)).write(path)
    return path


@pytest.fixture
def open_page(browser, file):
    """Open the page; at the end of the test, nothing may have gone wrong or been loaded."""
    contexts, complaints, requests = [], [], []

    def open_(width=DESK, theme="light", **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(file.as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
    assert {url for url in requests if not url.startswith("data:")} <= {file.as_uri()}


def shown(page):
    """Numbers of the components that are shown."""
    return page.locator("#components tbody tr:visible th").all_inner_texts()


def numbers(page, selector):
    return [float(value) for value in page.locator(selector).evaluate_all("all => all.map(one => one.dataset.order)")]


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_no_width_scrolls_sideways_and_all_figures_are_there(open_page, width, theme):
    page = open_page(width, theme)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"report-{width}-{theme}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    images = page.locator("#data-and-reconstruction img:visible")
    assert images.count() == 3
    assert all(images.evaluate_all("all => all.map(one => one.complete && one.naturalWidth > 100)"))
    charts = page.locator("#rounds img:visible")
    assert charts.count() >= 3
    boxes = charts.evaluate_all("all => all.map(one => [one.naturalWidth, one.getBoundingClientRect().width])")
    assert min(min(box) for box in boxes) > 250
    assert page.locator("#overlap .heat img:visible").count() == 1
    assert page.locator("#overlap .shares tbody td").count() == 20 * 20
    assert all(page.locator("img").evaluate_all("all => all.map(one => one.alt.length > 10)"))


def cut(page):
    """Captions of the tables, heat maps left out, that are wider than what shows them."""
    wide = "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.ariaLabel)"
    return page.locator(".scroll:not(.heat):visible").evaluate_all(wide)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_table_is_cut_on_a_phone(open_page, theme):
    page = open_page(PHONE, theme)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert cut(page) == []
    heading = page.locator("#components th", has_text="Size")
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "descending"


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    figures = {
        "f1": 0.8,
        "rmsd": 0.3,
        "precision": 0.9,
        "recall": 0.7,
        "coverage": 0.6,
        "errors": 150.0,
        "seconds": 0.5,
    }
    methods, numbers = ("bmf", "a-long-package.with_modules:AndAClass<b>", "asso+vote"), (5, 10, 20, 50)
    cells = {
        (method, k, seed): CellRecord(
            f"{method}{k}{seed}", "done", {n: v + k / 1000 + seed / 100 for n, v in figures.items()}
        )
        for method in methods
        for k in numbers
        for seed in range(3)
    }
    cells["asso+vote", 50, 0] = CellRecord("late", "timeout", message="no answer within 600 s")
    compared = Compared("zoo", (101, 17), methods, numbers, 3, 10, {"felb": "0", "machine": {"cores": 2}}, cells)
    path = tmp_path_factory.mktemp("comparison") / "comparison.html"
    build_comparison_page(compared).write(path)
    return path


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_page_of_a_comparison_fits_and_marks_the_best(browser, comparison, width, theme):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    page, complaints = context.new_page(), []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(comparison.as_uri())
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"comparison-{width}-{theme}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert cut(page) == []
    assert page.locator("#tables table").count() == 3
    assert page.locator("#tables tbody tr").count() == 9
    assert page.locator("#tables strong:visible").count() >= 12
    assert page.locator("#curves img:visible").count() == 2
    assert page.locator("#curves .legend li").count() == 6
    assert "no answer within 600 s" in page.locator("#runs-without-scores").inner_text()
    context.close()
    assert complaints == []


def test_columns_sort_both_ways(open_page):
    page = open_page()
    heading = page.locator("#components th", has_text="Size")
    button = heading.get_by_role("button")
    sizes = "#components tbody td:nth-child(5)"
    before = numbers(page, sizes)
    button.click()
    assert heading.get_attribute("aria-sort") == "descending"
    assert numbers(page, sizes) == sorted(before, reverse=True)
    button.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert numbers(page, sizes) == sorted(before)
    page.locator("#components th", has_text="Features").get_by_role("button").click()
    assert heading.get_attribute("aria-sort") is None
    assert numbers(page, sizes) != sorted(before)


def test_the_search_shows_components_with_the_words(open_page, run):
    page = open_page()
    box = page.get_by_label("Find a feature")
    box.press_sequentially("<SCRIPT>")
    having = [c for c in run.result.described() if run.matrix.columns[0] in c.features]
    assert 0 < len(having) < 20
    assert shown(page) == [str(c.number) for c in having]
    assert page.get_by_role("status").inner_text() == f"{len(having)} of 20 shown"
    box.press_sequentially(" nonsense")
    assert shown(page) == []
    box.press("Escape")
    assert len(shown(page)) == 20
    assert page.get_by_role("status").inner_text() == ""


def test_further_features_unfold(open_page, run):
    page = open_page()
    largest = max(gather(run.folder).describe_components(), key=lambda c: len(c.features))  # by lift, as on the page
    row = page.locator("#components tbody tr").filter(has=page.locator(f"th:text-is('{largest.number}')"))
    last = row.get_by_text(largest.features[-1], exact=True)
    assert not last.is_visible()
    row.locator("summary").click()
    assert last.is_visible()


def test_the_theme_follows_the_system_and_can_be_chosen(open_page):
    page = open_page(theme="dark")
    dark = background(page)
    button = page.get_by_role("button", name="Theme")
    button.click()
    assert "light" in button.get_attribute("aria-label")
    light = background(page)
    assert light != dark
    assert page.locator("#data-and-reconstruction img.on-light:visible").count() == 3
    assert page.locator("img.on-dark:visible").count() == 0
    page.reload()
    assert background(page) == light
    page.get_by_role("button", name="Theme").click()
    assert background(page) == dark
    assert page.locator("#data-and-reconstruction img.on-dark:visible").count() == 3


def test_text_is_easy_to_read_in_both_themes(open_page):
    contrast = """() => {
      const light = (text) => {
        const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
          .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const paper = light(getComputedStyle(document.body).backgroundColor);
      return [...document.querySelectorAll("p, dt, dd, th, td, h1, h2, h3, a, summary, figcaption")]
        .filter((one) => !one.closest(".heat, .skip"))
        .map((one) => light(getComputedStyle(one).color))
        .map((ink) => (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05));
    }"""
    for theme in ("light", "dark"):
        assert min(open_page(theme=theme).evaluate(contrast)) >= 4.5


def test_keys_are_enough(open_page):
    page = open_page()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.tagName"))
        width = page.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineWidth)")
        assert width >= 1 or page.evaluate("document.activeElement === document.body")
    assert {"A", "BUTTON", "INPUT", "SUMMARY", "DIV"} <= reached


def test_without_scripts_everything_can_be_read(open_page):
    page = open_page(java_script_enabled=False)
    assert page.locator("#components tbody tr:visible").count() == 20
    assert page.locator(".search:visible").count() == 0
    assert page.get_by_role("button").count() == 0
    assert page.locator("#data-and-reconstruction img:visible").count() == 3


def test_paper_is_light_and_shows_everything(open_page):
    page = open_page(theme="dark")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert background(page) == "rgb(255, 255, 255)"
    assert page.locator("details:not([open])").count() == 0
    assert page.locator(".bar:visible, .search:visible").count() == 0
    assert page.locator("img.on-dark:visible").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.pdf(path=SCREENSHOTS / "report.pdf", format="A4")


def test_the_page_is_small(file):
    assert file.stat().st_size < 5_000_000
