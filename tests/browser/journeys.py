"""`make browser`: an operator's journeys through the web UI, in the machine's own Chromium.

Not part of `make test`, because a browser is no Python package. Real workers are killed and drained.
"""

import signal

import pytest
from browser_tools import Site, Visit, chromium

from support.waiting import wait_until


@pytest.fixture(scope="session")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture
def site(tmp_path):
    found = Site(tmp_path)
    yield found
    found.close()


@pytest.fixture
def visit(browser, site):
    """Sign in, and fail at the end if anything was wrong on a page."""
    opened = []

    def start(**options):
        opened.append(Visit(browser, site, **options))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def test_operator_finds_the_run_that_died_decides_its_effect_and_watches_it_finish(site, visit):
    site.touch("continue-tides")
    site.touch("worker-dies")
    site.submit("report", "tides", "r-tides")
    first = site.worker()
    wait_until(lambda: first.has_ended)
    (site.folder / "worker-dies").unlink()
    site.worker()
    site.submit("approval", "Publish the report about tides?", "ask-publish")
    site.submit("report", "moon", "r-moon")
    site.touch("continue-moon")
    here = visit()
    page = here.page
    page.wait_for_selector("section[aria-label=Parked]")
    page.wait_for_selector("section[aria-label='Waiting for an answer']")
    here.pictures("home")
    here.picture_for_docs("ui-home", 620)
    page.get_by_role("link", name="r-tides", exact=True).click()
    assert page.get_by_text("Worker died").is_visible()
    assert page.get_by_text("may or may not have happened").is_visible()
    here.pictures("died")
    here.picture_for_docs("ui-run", 960)
    here.picture_for_docs("ui-phone", 844, "phone")
    page.locator("summary", has_text="search#2").click()
    assert page.get_by_text("news did not answer").first.is_visible()
    here.pictures("run")
    page.get_by_role("link", name="Decide").first.click()
    here.pictures("decide")
    page.get_by_label("It happened, with the result below").check()
    page.get_by_label("Value is").select_option("text")
    page.get_by_label("Value", exact=True).fill("receipt 7")
    page.get_by_role("button", name="Decide").click()
    assert page.get_by_text("The effect was decided.").is_visible()
    # Nobody reloads the page.
    page.wait_for_selector("h1 .status.done")
    assert page.get_by_text("by local").first.is_visible()


def test_live_answer_continues_after_its_worker_was_killed(site, visit):
    site.submit("report", "moon", "r-moon")
    first = site.worker()
    here = visit()
    page = here.open("/runs/r-moon")
    shown = page.locator("pre[data-stream]")
    wait_until(lambda: "Sentence 19 about moon." in (shown.text_content() or ""))
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    site.worker()
    page.wait_for_selector(".handover.death")
    here.pictures("live")
    site.touch("continue-moon")
    page.wait_for_selector("h1 .status.done")
    whole = "".join(f"Sentence {number} about moon. " for number in range(40))
    wait_until(lambda: shown.text_content() == whole, lambda: shown.text_content() or "")
    assert page.locator("pre[data-stream]").count() == 1


def test_rolling_deploy_is_one_event(site, visit):
    old = [site.worker() for _ in range(3)]
    for number in range(9):
        site.submit("report", f"topic{number}", f"deploy-{number}")
    here = visit()
    page = here.open("/runs?status=running")
    wait_until(lambda: page.locator(".status.running").count() == 9)
    here.pictures("runs")
    page = here.open("/deploys")
    for worker in old:
        site.worker()
        worker.process.send_signal(signal.SIGTERM)
    for number in range(9):
        site.touch(f"continue-topic{number}")
    page.wait_for_selector("h2:has-text('3 workers drained')")
    for worker in old:
        wait_until(lambda worker=worker: worker.has_ended)
    page.wait_for_selector("text=9 runs resumed on other workers")
    wait_until(lambda: page.get_by_text("draining", exact=True).count() == 0)
    assert page.locator("section.timeline").count() == 1
    here.pictures("deploys")
    here.picture_for_docs("ui-deploy", 430)
    here.open("/fleet")
    here.pictures("fleet")
    here.open("/runs?status=done&workflow=report")
    wait_until(lambda: page.locator("tbody tr").count() == 9)


def test_everything_but_liveness_works_without_scripts(site, visit):
    site.submit("approval", "deploy?", "a/1")
    site.submit("approval", "again?", "a/2")
    here = visit(scripts=False)
    page = here.open("/runs?prefix=a")
    page.get_by_label("Select a/2").check()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel them").click()
    assert page.get_by_text("Cancel: 1 run").is_visible()
    page = here.open("/runs/a%2F1")
    site.worker()
    wait_until(lambda: here.open("/runs/a%2F1").get_by_text("the message decision").count())
    page.get_by_role("link", name="Answer").click()
    here.pictures("answer")
    page.get_by_role("button", name="Approve").click()
    assert page.get_by_text("The message was sent.").is_visible()
    page.locator(".messages summary", has_text="decision").click()
    assert page.locator(".messages pre", has_text="true").is_visible()


def test_keyboard_reaches_everything_and_keeps_its_place(site, visit):
    site.submit("report", "stars", "r-stars")
    site.worker()
    here = visit()
    page = here.open("/runs/r-stars")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.wait_for_selector("summary:has-text('search#1')")
    page.locator("summary", has_text="search#1").focus()
    page.keyboard.press("Enter")
    wait_until(lambda: page.locator("details[open]").count() == 1)
    site.touch("continue-stars")
    page.wait_for_selector("h1 .status.done")
    assert page.locator("details[open] > summary", has_text="search#1").count() == 1
    assert "search#1" in page.evaluate("document.activeElement.textContent")
    narrow = {"width": 320, "height": 700}
    page.set_viewport_size(narrow)
    for path in ("/", "/runs", "/runs/r-stars", "/runs/r-stars/message", "/deploys", "/fleet"):
        here.open(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= narrow["width"], path
