"""Drive the machine's Chromium through the web UI of real processes."""

import base64
import os
import re
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

from support.processes import Program, clean_environment
from support.waiting import WAIT_SECONDS, wait_until

AGENT = Path(__file__).with_name("agent_program.py")
PICTURES = os.environ.get("BROWSER_PICTURES", "")
"""The folder for screenshots. None are taken without it."""
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
VIEWS = {"desktop": (1200, 850), "phone": (390, 844)}


CONTRAST_MIN, CONTRAST_MIN_LARGE = 4.5, 3.0
"""What WCAG AA asks of text, and of text from 24 px or 18.7 px in bold."""
FAINT_TEXTS = """
([least, leastLarge]) => {
  const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const over = (colours) => {
    context.clearRect(0, 0, 1, 1);
    for (const colour of colours) {
      context.fillStyle = colour;
      context.fillRect(0, 0, 1, 1);
    }
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (parts) => {
    const [r, g, b] = parts.map((one) => {
      const share = one / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const style = getComputedStyle(element);
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest("svg")) continue;
    const behind = [];
    for (let one = element; one; one = one.parentElement) behind.unshift(getComputedStyle(one).backgroundColor);
    const ground = over(["white", ...behind]);
    const text = over([`rgb(${ground})`, style.color]);
    const [low, high] = [luminance(ground), luminance(text)].sort((a, b) => a - b);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.7 && Number(style.fontWeight) >= 700);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < (isLarge ? leastLarge : least)) {
      found.add(`${element.tagName}.${element.className}: ${walker.currentNode.data.trim().slice(0, 30)} ${ratio.toFixed(2)}`);
    }
  }
  return [...found];
}
"""
NAMELESS = """
() => [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary")]
  .filter((one) => one.checkVisibility())
  .filter((one) => {
    const label = one.labels && [...one.labels].some((other) => other.textContent.trim());
    return !(one.textContent.trim() || one.getAttribute("aria-label") || one.title || label);
  })
  .map((one) => one.outerHTML.slice(0, 80))
"""


class Site:
    """A folder with a store, workers, and the process of `outlast ui`."""

    def __init__(self, folder):
        self.folder = folder
        shutil.copy(AGENT, folder / "agent.py")
        self.env = clean_environment(OUTLAST_STORE=f"sqlite:///{folder}/agents.db")
        self.programs = []
        pages = self.start("ui", "--listen", "127.0.0.1:0")

        def link():
            assert not pages.has_ended, pages.err.read_text()
            return re.search(r"Open (\S+)(/login\?token=\S+)", pages.output)

        found = wait_until(link)
        self.url, self.login = found[1], found[1] + found[2]

    def start(self, *words):
        program = Program(
            [sys.executable, "-m", "outlast", *words], self.folder, env=self.env, fork=False
        )
        self.programs.append(program)
        return program

    def worker(self):
        """Start a worker, and wait until it takes runs."""
        worker = self.start("worker", "agent.py")
        wait_until(lambda: "worker" in worker.err.read_text() or worker.has_ended)
        assert not worker.has_ended, worker.err.read_text()
        return worker

    def submit(self, workflow, argument, id):
        done = self.start("submit", f"agent.py:{workflow}", argument, "--id", id)
        wait_until(lambda: done.has_ended)
        assert done.process.returncode == 0, done.err.read_text()

    def touch(self, name):
        (self.folder / name).touch()

    def close(self):
        for program in self.programs:
            program.process.kill()
            program.process.wait()


@contextmanager
def chromium():
    """Yield the machine's browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ["CHROMIUM"], args=list(OPTIONS)
        )
        yield browser
        browser.close()


class Visit:
    """A page of a browser that is signed in. It fails if anything was wrong on a page."""

    def __init__(self, browser, site, *, scripts=True):
        self.site = site
        self.context = browser.new_context(
            java_script_enabled=scripts, viewport=dict(zip(("width", "height"), VIEWS["desktop"]))
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT_SECONDS * 1000)
        self.wrong = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))
        self.page.on("console", self._note)
        self.page.goto(site.login)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_selector("h1:has-text('Home')")

    def _note(self, message):
        if message.type == "error" and "ERR_" not in message.text:
            self.wrong.append(message.text)

    def open(self, path):
        self.page.goto(self.site.url + path)
        return self.page

    def pictures(self, name):
        """Take pictures of the page, light and dark, wide and narrow, and check that it is legible."""
        nameless = self.page.evaluate(NAMELESS)
        assert not nameless, f"{name}: {nameless}"
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)
            least = [CONTRAST_MIN, CONTRAST_MIN_LARGE]
            faint = self.page.evaluate(FAINT_TEXTS, least)
            assert not faint, f"{name}, {scheme}: {faint}"
            if not PICTURES:
                continue
            for view, (width, height) in VIEWS.items():
                self.page.set_viewport_size({"width": width, "height": height})
                path = Path(PICTURES) / f"ui-{name}-{view}-{scheme}.png"
                self.page.screenshot(path=path, full_page=True)
        self.page.emulate_media(color_scheme="light")
        width, height = VIEWS["desktop"]
        self.page.set_viewport_size({"width": width, "height": height})

    def picture_for_docs(self, name, height, view="desktop"):
        """Take a small picture of the upper part of the page, for docs/images."""
        if not PICTURES:
            return
        width, _ = VIEWS[view]
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.evaluate("scrollTo(0, 0)")
        asked = {"format": "webp", "quality": 85}
        found = self.context.new_cdp_session(self.page).send("Page.captureScreenshot", asked)
        (Path(PICTURES) / f"{name}.webp").write_bytes(base64.b64decode(found["data"]))
        width, height = VIEWS["desktop"]
        self.page.set_viewport_size({"width": width, "height": height})

    def close(self):
        self.context.close()
        assert self.wrong == []
