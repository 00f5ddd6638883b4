// Keep pages live, show streams, and help with forms. Every page works without this script.
"use strict";

// Replace the live part of the page, and keep what its reader has opened, selected and focused.
function replaceLive(live, html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  const next = template.content;
  for (const one of live.querySelectorAll("details[open][id]")) {
    const same = next.getElementById(one.id);
    if (same) same.open = true;
  }
  for (const one of live.querySelectorAll("input[type=checkbox]:checked")) {
    for (const same of next.querySelectorAll("input[type=checkbox]")) {
      if (same.name === one.name && same.value === one.value) same.checked = true;
    }
  }
  for (const one of live.querySelectorAll("[data-keep]")) {
    const same = next.getElementById(one.id);
    if (same) same.replaceWith(one);
  }
  const focused = live.contains(document.activeElement) ? pathTo(live, document.activeElement) : null;
  live.replaceChildren(next);
  improve(live);
  if (focused) {
    const again = focused(live);
    if (again) again.focus({ preventScroll: true });
  }
}

// Return what finds the element again after the live part was replaced.
function pathTo(live, element) {
  const details = element.closest("details[id]");
  if (element.tagName === "SUMMARY" && details) {
    return (root) => root.querySelector(`#${CSS.escape(details.id)} > summary`);
  }
  if (element.id) return (root) => root.querySelector(`#${CSS.escape(element.id)}`);
  if (element.tagName === "A") {
    const href = element.getAttribute("href");
    return (root) => [...root.querySelectorAll("a")].find((one) => one.getAttribute("href") === href);
  }
  if (element.type === "checkbox") {
    const { name, value } = element;
    return (root) =>
      [...root.querySelectorAll("input[type=checkbox]")].find((one) => one.name === name && one.value === value);
  }
  return () => null;
}

function followPage(live) {
  const source = new EventSource(live.dataset.live);
  let waiting = null;
  const show = () => {
    // A selection of text would be lost.
    if (!document.getSelection().isCollapsed && live.contains(document.getSelection().anchorNode)) return;
    if (waiting !== null) replaceLive(live, waiting);
    waiting = null;
  };
  source.addEventListener("page", (event) => {
    waiting = event.data;
    show();
  });
  document.addEventListener("selectionchange", show);
  source.addEventListener("open", () => setState("live"));
  source.addEventListener("error", () => setState(source.readyState === EventSource.CLOSED ? "off" : "away"));
  source.addEventListener("gone", () => {
    source.close();
    setState("off");
  });
}

function setState(state) {
  const shown = document.getElementById("state");
  if (!shown) return;
  shown.className = state;
  shown.textContent = { live: "live", away: "reconnecting", off: "not live: reload the page" }[state];
}

// Show what a run publishes, in place. A reset clears it.
function followStream(shown) {
  if (shown.dataset.followed) return;
  shown.dataset.followed = "yes";
  const source = new EventSource(shown.dataset.stream);
  let is_first = true;
  source.addEventListener("data", (event) => {
    if (is_first) shown.textContent = "";
    is_first = false;
    const value = JSON.parse(event.data).value;
    const at_end = shown.scrollTop + shown.clientHeight >= shown.scrollHeight - 8;
    if (value && value.masked === true) shown.textContent = "Hidden from your role.";
    else shown.append(typeof value === "string" ? value : JSON.stringify(value) + "\n");
    shown.classList.add("flowing");
    if (at_end) shown.scrollTop = shown.scrollHeight;
  });
  source.addEventListener("reset", () => {
    shown.textContent = "";
    is_first = false;
  });
  const stop = () => {
    shown.classList.remove("flowing");
    source.close();
  };
  source.addEventListener("end", stop);
  source.addEventListener("problem", stop);
}

function improve(root) {
  for (const one of root.querySelectorAll("time")) {
    const when = new Date(one.dateTime);
    if (!Number.isNaN(when.getTime())) {
      one.title = one.textContent;
      one.textContent = when.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
    }
  }
  for (const one of root.querySelectorAll("pre[data-stream]")) followStream(one);
  for (const value of root.querySelectorAll(".value > pre")) addCopy(value);
  for (const box of root.querySelectorAll("input[data-all]")) {
    box.addEventListener("change", () => {
      for (const one of document.querySelectorAll(`input[name="${box.dataset.all}"]`)) one.checked = box.checked;
    });
  }
}

function addCopy(value) {
  if (!navigator.clipboard) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy quiet";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(value.textContent);
    button.textContent = "Copied";
  });
  value.before(button);
}

// A form is submitted once.
document.addEventListener("submit", (event) => {
  for (const button of event.target.querySelectorAll("button")) {
    setTimeout(() => (button.disabled = true));
  }
});

improve(document);
const live = document.querySelector("[data-live]");
if (live) followPage(live);
