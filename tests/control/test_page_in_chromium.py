"""The page in a browser: the token, the buttons, the forms, the keyboard, and twelve nodes with two
hundred partitions. Headless Chromium does what a user would; every error of a script and every
breach of the policy fails the test.
"""

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

import kraftsim
from tests.control.fake_cluster import TOKEN
from tests.control.served_page import XSS, ServedPage, large_cluster

playwright = pytest.importorskip("playwright.sync_api", reason="the browser test needs playwright")

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.interop

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WAIT_MS = 15_000
LONG_TASK_MS = 200


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Chromium of this machine."""
    if CHROMIUM is None:
        pytest.skip("the browser test needs Chromium")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def troubles() -> Iterator[list[str]]:
    """Errors of the page; a test removes those that it expects."""
    found: list[str] = []
    yield found
    assert found == []


@pytest.fixture
def page(browser: "Browser", troubles: list[str]) -> "Iterator[Page]":
    """An empty tab of a user of their own."""
    context = browser.new_context(viewport={"width": 1500, "height": 1100})
    tab = context.new_page()
    tab.set_default_timeout(WAIT_MS)
    tab.on("pageerror", lambda error: troubles.append(str(error)))
    tab.on(
        "console",
        lambda message: (
            troubles.append(message.text)
            if message.type == "error" and "Failed to load resource" not in message.text
            else None
        ),
    )
    yield tab
    context.close()


@pytest.fixture
def served() -> Iterator[ServedPage]:
    """A page of twelve nodes that run nowhere."""
    with ServedPage(large_cluster()).serving() as page:
        yield page


def opened(page: "Page", served: ServedPage) -> "Page":
    """Open the page with its token, and wait for the nodes."""
    page.goto(f"{served.url}/#token={TOKEN}")
    page.locator("li.node").first.wait_for()
    return page


def test_the_token_leaves_the_address_and_never_enters_a_query(
    page: "Page", served: ServedPage
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    opened(page, served)
    assert page.url == f"{served.url}/"
    assert not [url for url in asked if TOKEN in url.partition("#")[0]]
    assert all(url.startswith(served.url) for url in asked)
    page.reload()  # this tab knows the token
    page.locator("li.node").first.wait_for()
    assert page.locator("#ask").is_hidden()


def test_without_a_token_the_page_asks_once_and_again_after_a_wrong_one(
    page: "Page", served: ServedPage
) -> None:
    page.goto(served.url)
    page.locator("#ask").wait_for()
    assert page.locator("li.node").count() == 0
    page.get_by_role("textbox", name="Token").fill("not-the-right-token")
    page.keyboard.press("Enter")
    page.get_by_text("The server refused this token").wait_for()
    page.get_by_role("textbox", name="Token").fill(TOKEN)
    page.get_by_role("button", name="Continue").click()
    page.locator("li.node").first.wait_for()
    assert page.locator("#ask").is_hidden()


def test_twelve_nodes_and_two_hundred_partitions_are_shown(
    page: "Page", served: ServedPage
) -> None:
    opened(page, served)
    assert page.locator("li.node").count() == 12
    assert page.locator(".cell").count() == 200
    health = page.locator("#health")
    for words in ("1 violation", "1 without leader", "1 down", "1 paused", "under-replicated"):
        assert words in health.inner_text()
    assert page.locator(".violation h3").inner_text() == "producer-id-unique"
    assert "broker 7 did not answer" in page.locator("#missing").inner_text()
    assert page.locator('[data-node="controller-102"]').inner_text().startswith("★")
    # a name stays text, whatever is in it
    assert XSS in page.locator("#topics").inner_text()
    assert page.locator("#topics img").count() == 0
    cell = page.get_by_role("button", name="orders-17: no leader")
    cell.click()
    assert "none" in page.locator("#partition-detail").inner_text()
    page.get_by_label("Filter topics").fill("pay")
    page.wait_for_function("document.querySelectorAll('.cell').length === 60")


def test_updates_of_two_hundred_partitions_do_not_stall_the_page(
    page: "Page", served: ServedPage
) -> None:
    opened(page, served)
    page.evaluate(
        """() => {
          window.long = [];
          const keep = (list) =>
            window.long.push(...list.getEntries().map((each) => each.duration));
          new PerformanceObserver(keep).observe({ type: "longtask" });
        }"""
    )
    cells = page.locator(".cell").first.element_handle()
    before = served.asked
    page.wait_for_timeout(5_000)
    assert served.asked - before >= 3
    longest = max([0, *page.evaluate("window.long")])
    assert longest < LONG_TASK_MS, f"the page stood still for {longest} ms"
    assert cells is not None
    assert cells.evaluate("(cell) => cell.isConnected"), "an update keeps the elements"


def test_verbs_are_carried_out_and_impossible_ones_say_why(
    page: "Page", served: ServedPage
) -> None:
    from kraftsim.control.controlled import Verb

    served.cluster.missing[Verb.PAUSE] = "nodes of one process cannot be paused"
    opened(page, served)
    page.get_by_role("button", name="Kill broker-2", exact=True).click()
    page.get_by_text("Kill broker-2: done").wait_for()
    pause = page.get_by_role("button", name="Pause broker-2", exact=True)
    assert pause.get_attribute("aria-disabled") == "true"
    assert pause.get_attribute("title") == "nodes of one process cannot be paused"
    pause.dispatch_event("click")
    page.get_by_role("button", name="Isolate broker-3", exact=True).click()
    page.get_by_role("button", name="Heal broker-3", exact=True).wait_for()
    page.get_by_role("button", name="Restart broker-4", exact=True).click()
    page.get_by_text("Restart broker-4: done").wait_for()
    assert served.cluster.done == [
        ("kill", "broker-2"),
        ("cut", "broker-3"),
        ("restart", "broker-4", None, {}),
    ]


def test_a_fault_is_injected_shown_and_ended(page: "Page", served: ServedPage) -> None:
    opened(page, served)
    page.get_by_label("API", exact=True).fill("Produce")
    page.get_by_label("Action", exact=True).select_option("delay=reply")
    page.get_by_label("Times", exact=True).fill("7")
    page.get_by_label("More", exact=True).fill("topic=orders")
    text = "Produce delay=reply delay_ms=500 times=7 topic=orders"
    assert page.get_by_label("As text", exact=True).input_value() == text
    page.get_by_role("button", name="Inject").click()
    page.locator("#faults code").wait_for()
    assert set(page.locator("#faults code").inner_text().split()) == set(text.split())
    page.get_by_label("As text", exact=True).fill("EndTxn eror=X")
    page.get_by_role("button", name="Inject").click()
    page.locator("#inject-trouble").get_by_text("did you mean error?").wait_for()
    page.get_by_role("button", name="End fault 1").click()
    page.locator("#faults [data-over]").wait_for()


def test_links_are_cut_and_healed(page: "Page", served: ServedPage) -> None:
    opened(page, served)
    page.get_by_label("Link", exact=True).fill("clients>broker-1")
    page.get_by_role("button", name="Impose").click()
    page.locator("#network code").get_by_text("clients>broker-1").wait_for()
    page.get_by_role("button", name="Heal all").click()
    page.get_by_text("All links are as they are.").wait_for()


def test_the_keyboard_reaches_everything(page: "Page", served: ServedPage) -> None:
    opened(page, served)
    page.get_by_role("tab", name="Transactions").focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", name="Producers").get_attribute("aria-selected") == "true"
    page.keyboard.press("End")
    assert page.get_by_role("tab", name="Events").get_attribute("aria-selected") == "true"
    page.get_by_role("button", name="Kill broker-1", exact=True).focus()
    page.keyboard.press("Enter")
    page.get_by_text("Kill broker-1: done").wait_for()
    page.locator("#lanes").focus()
    page.keyboard.press("ArrowLeft")
    page.locator("#tip").get_by_text("verb").wait_for()
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()
    assert names_of_controls(page) == []


def names_of_controls(page: "Page") -> list[str]:
    """Return controls that a screen reader cannot name."""
    unnamed: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, [tabindex='0']")]
          .filter((each) => each.checkVisibility() && !(each.labels?.length || each.ariaLabel
            || each.getAttribute("aria-labelledby") || each.textContent.trim()))
          .map((each) => each.outerHTML)"""
    )
    return unnamed


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_schemes(page: "Page", served: ServedPage, scheme: str) -> None:
    """At least 4.5 to 1, as WCAG 2.2 AA asks (success criterion 1.4.3)."""
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # one of two literals
    opened(page, served)
    assert page.locator("html").get_attribute("data-scheme") == scheme
    poor: list[Any] = page.evaluate(CONTRAST)
    assert poor == []


CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([red, green, blue]) => {
    const [r, g, b] = [red, green, blue].map((each) => each / 255)
      .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (each) => {
    for (let at = each; at; at = at.parentElement) {
      const found = rgba(getComputedStyle(at).backgroundColor);
      if (found[3] > 250) return found;
    }
    return [255, 255, 255, 255];
  };
  const seen = new Map();
  for (const each of document.querySelectorAll("body *")) {
    const isText = (child) => child.nodeType === 3 && child.textContent.trim();
    const isApart = each.closest("[aria-disabled], :disabled, .hidden, option, noscript");
    if (isApart || ![...each.childNodes].some(isText) || !each.checkVisibility()) continue;
    const [one, other] = [light(rgba(getComputedStyle(each).color)), light(ground(each))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const key = `${each.tagName.toLowerCase()}.${each.className}`;
    if (ratio < 4.5) seen.set(key, `${key} ${ratio.toFixed(2)} ${each.textContent.slice(0, 20)}`);
  }
  return [...seen.values()];
}"""


def test_without_event_logs_changes_between_snapshots_are_the_events(
    page: "Page", served: ServedPage
) -> None:
    """As in front of a cluster of another maker: /v1/events answers 409."""
    opened(page, served)
    page.get_by_role("tab", name="Events").click()
    page.get_by_text("No event so far.").wait_for()
    orders, *rest = served.latest.topics
    first, *others = orders.partitions
    assert (first.leader, first.isr) == (1, (1, 2, 3))
    moved = replace(first, leader=2, leader_epoch=4, isr=(2, 3))
    served.latest = served.of(topics=(replace(orders, partitions=(moved, *others)), *rest))
    table = page.locator("#table")
    table.get_by_text("leads orders-0, epoch 4").wait_for()
    table.get_by_text("orders-0: in sync 2,3").wait_for()


def test_a_server_that_is_gone_is_reported_and_found_again(
    page: "Page", served: ServedPage
) -> None:
    opened(page, served)
    page.route("**/v1/state", lambda route: route.abort())
    page.locator("#pulse[data-tone='bad']").wait_for()
    page.unroute("**/v1/state")
    page.locator("#pulse[data-tone='good']").wait_for()


def test_a_real_cluster_is_watched_and_acted_on(page: "Page", troubles: list[str]) -> None:
    """Kill a broker by the page: its lane says so, its leaders move, and it comes back."""
    settings = {"broker.session.timeout.ms": "2000"}
    with kraftsim.Cluster(brokers=3, settings=settings, http=True) as cluster:
        topic = cluster.create_topic(partitions=6, replicas=3)
        client = cluster.serve_http()
        page.goto(f"{client.url}/#token={client.token}")
        page.locator(".cell").nth(5).wait_for()
        assert page.locator("#health").inner_text() == "healthy"
        row = page.locator('[data-node="broker-2"]')
        row.get_by_role("button", name="Kill broker-2").click()
        page.locator('[data-node="broker-2"][data-condition="down"]').wait_for()
        page.locator(".topic", has_text=topic).get_by_text("6 under-replicated").wait_for()
        cells = page.locator(".topic", has_text=topic).locator(".cell .leader")
        page.wait_for_function(
            "(topic) => [...document.querySelectorAll('.topic')]"
            ".filter((each) => each.textContent.startsWith(topic))"
            ".flatMap((each) => [...each.querySelectorAll('.leader')])"
            ".every((each) => each.textContent !== '2')",
            arg=topic,
        )
        assert cells.count() == 6
        page.get_by_role("tab", name="Events").click()
        page.locator("#table").get_by_text("BrokerFenced").first.wait_for()
        row.get_by_role("button", name="Restart broker-2").click()
        page.locator("#health").get_by_text("healthy").wait_for()
        page.locator("#table").get_by_text("start 2, release").first.wait_for()
        assert "none violated" in page.locator("#violations").inner_text()
