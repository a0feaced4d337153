"""The page, in a real browser: clicked, searched, sorted, large, and never asking for anything else."""

import re
import shutil

import pytest
from playwright.sync_api import expect, sync_playwright

from bk_jax import palette
from bk_jax.hlo import load, timeline, to_html
from bk_jax.hlo.page import page_data
from hlo import programs

PATIENCE = 200_000  # milliseconds, for a machine that has much else to do


@pytest.fixture(scope="module")
def browser():
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.fail("the page is tested in a browser: apt-get install chromium", pytrace=False)
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def show(browser, tmp_path):
    """Opens the page of a program; afterwards, that it made no error and no request is checked."""
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    page.set_default_timeout(PATIENCE)
    problems, requests = [], []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))

    def open_page(module, hash_="", **options):
        path = tmp_path / "program.html"
        path.write_text(to_html(module, **options), encoding="utf-8")
        page.goto(f"{path.as_uri()}{hash_}")
        return page

    yield open_page
    page.close()
    assert not problems
    assert [url.startswith("file:") for url in requests] == [True]  # the page itself


def test_kinds_have_the_colours_of_the_palette(show, gpt2):
    page = show(gpt2)
    assert set(page_data(gpt2)["strings"]) & set(palette.KINDS) >= {"bk call", "dot", "free"}
    chip = page.locator("#kinds button[data-kind='bk call'] .dot")
    shown = chip.evaluate("one => getComputedStyle(one).backgroundColor")
    wanted = ", ".join(str(int(palette.KINDS["bk call"][at : at + 2], 16)) for at in (1, 3, 5))
    assert shown == f"rgb({wanted})"
    style = to_html(gpt2)
    assert all(f'[data-kind="{name}"] {{ --k: var(--k-' in style for name in palette.KINDS)


@pytest.fixture(scope="module")
def gpt2(compiled):
    (module,) = load(compiled("gpt2").program)
    return module


def names(page):
    return page.locator(".row .name").all_inner_texts()


def chosen(page):
    return page.locator("#details h2").inner_text()


@pytest.mark.native
def test_the_page_opens_with_a_call_of_ours(show, gpt2):
    page = show(gpt2)
    assert page.title() == "jit_train · bk-hlo"
    first = gpt2.by_name[chosen(page)]
    assert first.is_bk_call
    assert page.locator("#cards .bk dd").inner_text() == str(len(gpt2.bk_calls))
    assert page.locator("#chart .call").count() == len(gpt2.bk_calls)
    peak = page.locator("#chart text.peak").text_content()
    time = timeline(gpt2)
    assert peak == f"peak {(time.base + max(time.live)) / 1000:.3g} kB"


@pytest.mark.native
def test_search_filter_and_sort(show, gpt2):
    page = show(gpt2)
    page.fill("#search", "bk_clipped_gemm UP")
    (name,) = names(page)
    assert gpt2.by_name[name].target == "bk_clipped_gemm"
    page.fill("#search", "no such thing")
    assert names(page) == []
    page.fill("#search", "")
    page.click("#kinds button[data-kind='bk call']")
    assert len(names(page)) == len(gpt2.bk_calls)
    page.click("#heads [data-column=flops]")
    flops = page_data(gpt2)["rows"]
    costs = dict(zip(flops["name"], flops["flops"], strict=True))
    shown = [costs[name] for name in names(page)]
    assert shown == sorted(shown, reverse=True)
    page.click("#heads [data-column=flops]")
    assert [costs[name] for name in names(page)] == sorted(shown)
    page.click("#heads [data-column=name]")
    assert names(page) == sorted(names(page))


@pytest.mark.native
def test_clicks_lead_from_row_to_graph_to_chart(show, gpt2):
    page = show(gpt2)
    page.fill("#search", "bk_clip_factor")
    page.click(".row")
    call = gpt2.by_name[chosen(page)]
    assert call.target == "bk_clip_factor"
    assert page.locator("#graph .node.center").count() == 1
    boxes = page.locator("#graph .node title").evaluate_all("all => all.map(t => t.textContent)")
    drawn = {text.split("\n")[0] for text in boxes}
    assert set(call.operands) <= drawn
    assert set(gpt2.users[call.name]) <= drawn
    page.locator("#depth button", has_text="1").click()
    assert page.locator("#graph .node").count() == 1 + len({*call.operands}) + len(
        gpt2.users[call.name]
    )
    page.locator("#graph .node:not(.center)").first.click()
    assert chosen(page) in call.operands
    page.click("#chart", position={"x": 900, "y": 60})
    place = re.match(r"Live at (\d+):", page.locator("#alive h2").inner_text())
    assert timeline(gpt2).order[int(place[1])] == chosen(page)
    assert page.url.endswith(f"#{chosen(page)}")


@pytest.mark.native
def test_a_link_leads_to_an_instruction_and_arrows_to_the_next(show, gpt2):
    order = timeline(gpt2).order
    page = show(gpt2, f"#{order[3]}")
    assert chosen(page) == order[3]
    page.focus("#table")
    page.keyboard.press("ArrowDown")
    assert chosen(page) == order[4]


def long_program(tmp_path, length):
    lines = [f"  a{n + 1} = f32[4,4] sine(a{n})" for n in range(length)]
    path = tmp_path / "long.txt"
    body = "\n".join(
        ["  a0 = f32[4,4] parameter(0)", *lines, f"  ROOT r = f32[4,4] negate(a{length})"]
    )
    path.write_text(f"HloModule long\nENTRY e {{\n{body}\n}}\n")
    return load(path)[0]


def test_a_large_program_stays_usable_and_its_page_small(show, tmp_path):
    module = long_program(tmp_path, 100_000)
    text = to_html(module)
    assert len(text) < 6_000_000
    page = show(module)
    assert "60002 left out" in page.locator("#count").inner_text()
    assert page.locator(".row").count() < 60
    page.locator("#body").evaluate("body => body.scrollTo(0, 30000 * 24)")
    # Not wait_for_function: it evaluates a string in the page, which the page's policy forbids.
    expect(page.locator(".row .name").nth(9)).to_have_text(
        re.compile(r"^a[23]\d{4}$"), timeout=PATIENCE
    )
    assert page.locator(".row").count() < 60
    page.fill("#search", "a1234")
    page.locator(".row").first.click()
    assert chosen(page).startswith("a1234")


def test_names_are_text_and_not_markup(show, tmp_path):
    path = tmp_path / "odd.txt"
    path.write_text(
        "HloModule odd\nENTRY e {\n  a = f32[2] parameter(0)\n  ROOT b = f32[2] sine(a), "
        'metadata={op_name="</script><b id=bad>x</b>"}\n}\n'
    )
    page = show(load(path)[0], "#b")
    assert page.locator("#bad").count() == 0
    assert "</script><b id=bad>" in page.locator("#details").inner_text()


@pytest.mark.parametrize("name", list(programs.MODELS))
def test_live_buffers_fit_into_what_xla_allocated(compiled, name):
    (module,) = load(compiled(name).program)
    time = timeline(module)
    assert time.is_assigned
    assert 0 < max(time.live) <= module.memory.temporaries + module.memory.outputs
    (lowered,) = load(programs.step(name, platform="cuda").lowered)
    assert not timeline(lowered).is_assigned
    assert len(to_html(lowered)) < 1_000_000


LOOP = """HloModule loop, is_scheduled=true
body { p = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8] get-tuple-element(p), index=1
  y = f32[8] sine(x)
  z = f32[8] add(y, x)
  ROOT t = (s32[], f32[8]) tuple(i, z) }
condition { p = (s32[], f32[8]) parameter(0)
  ROOT yes = pred[] constant(true) }
ENTRY e {
  a = f32[8] parameter(0)
  zero = s32[] constant(0)
  b = f32[8] cosine(a)
  late = f32[8] negate(a)
  start = (s32[], f32[8]) tuple(zero, b)
  loop = (s32[], f32[8]) while(start), condition=condition, body=body
  out = f32[8] get-tuple-element(loop), index=1
  ROOT sum = f32[8] add(out, late)
}
"""


def test_the_schedule_is_xlas_and_loops_are_walked_once(tmp_path):
    path = tmp_path / "loop.txt"
    path.write_text(LOOP)
    time = timeline(load(path)[0])
    order = [name.partition(".")[0] for name in time.order]
    assert [name for name in order if name in ("b", "late", "y", "z", "loop", "sum")] == [
        "b", "late", "y", "z", "loop", "sum",
    ]  # fmt: skip
    live = dict(zip(order, time.live, strict=True))
    assert time.base == 32 + 4 + 1  # the argument; two constants
    assert (live["b"], live["late"]) == (32, 64)
    assert live["y"] == 64 + 32
    assert live["z"] == 64 + 2 * 32  # y is read here for the last time
    assert live["sum"] == 3 * 32
